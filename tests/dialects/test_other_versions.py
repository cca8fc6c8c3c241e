"""Names and labels of other versions of the same exporters, each on a page of its own."""

from __future__ import annotations

import pytest

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages

OLD_POD = 'container_name="llm",namespace="a",pod_name="p-0",id="/k/1",name="n"'
DOCKER = 'id="/docker/1f",image="vllm",name="chat"'
CRI = (
    'container_label_io_kubernetes_container_name="llm",container_label_io_kubernetes_pod_name="p-0",'
    'container_label_io_kubernetes_pod_namespace="a",name="k8s_llm_p-0_a"'
)
EXPORTED = (
    'exported_namespace="a",exported_pod="p-0",exported_container="llm",'
    'namespace="monitoring",pod="ksm",container="ksm"'
)
KN = 'k8s_namespace_name="a",kn_revision_name="r-1",kn_service_name="r"'
USED = "container.memory.used"
PAGES = [
    ("cadvisor", f"container_memory_working_set_bytes{{{OLD_POD}}} 5", USED, "container/a/p-0/llm@x", 5),
    ("cadvisor", f"container_memory_working_set_bytes{{{DOCKER}}} 5", USED, "container/chat@x", 5),
    ("cadvisor", f"container_memory_working_set_bytes{{{CRI}}} 5", USED, "container/a/p-0/llm@x", 5),
    (
        "kube-state-metrics",
        f"kube_pod_container_status_restarts_total{{{EXPORTED}}} 4",
        "container.restarts",
        "container/a/p-0/llm@x",
        4,
    ),
    (
        "kube-state-metrics",
        'kube_hpa_spec_max_replicas{hpa="h",namespace="a"} 9',
        "hpa.replicas_max",
        "hpa/a/h@x",
        9,
    ),
    (
        "kube-state-metrics",
        'kube_pod_container_resource_limits_memory_bytes{container="llm",namespace="a",node="n",pod="p-0"} 7',
        "container.memory.limit",
        "container/a/p-0/llm@x",
        7,
    ),
    (
        "vllm-ray",
        'ray_vllm:num_requests_waiting{WorkerId="w1",model_name="m"} 3\n'
        'ray_vllm:num_requests_waiting{WorkerId="w2",model_name="m"} 8',
        "queue.depth",
        "model/m:WorkerId=w2@x",
        8,
    ),
    ("vllm-ray", 'ray_vllm_prompt_tokens{ReplicaId="r",model_name="m"} 3', "input.token_rate", "replica/r@x", 0.3),
    ("sglang-underscore", 'ray_sglang_num_queue_reqs{ReplicaId="r",model_name="m"} 3', "queue.depth", "replica/r@x", 3),
    ("lmdeploy", 'lmdeploy:num_requests_waiting{engine="0",model_name="m"} 3', "queue.depth", "model/m@x", 3),
    ("envoy", 'envoy_cluster_upstream_rq_active{cluster_name="|80||llm"} 3', "http.in_flight", "service/|80||llm@x", 3),
    ("knative", f"kn_revision_pods_desired{{{KN}}} 3", "workload.replicas_desired", "revision/a/r-1@x", 3),
    ("sglang-router", 'smg_worker_health{worker="http://w:1"} 0', "replica.up", "replica/http://w:1@x", 0),
    ("dynamo", 'nv_llm_http_service_inflight_requests{model="m"} 3', "http.in_flight", "model/m@x", 3),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "text", "signal", "subject", "value"), PAGES)
def test_it_is_read(dialect: str, text: str, signal: str, subject: str, value: float) -> None:
    (spoken,) = (one for one in shipped() if one.id == dialect)
    lines = "\n".join(line.rpartition(" ")[0] + " 0" for line in text.splitlines())  # counters begin at zero
    last = ScrapedPage(parse(f"{text}\n".encode(), "last"), "last", 1010.0)
    rate = signal.endswith("_rate")
    pages = [ScrapedPage(parse(f"{lines}\n".encode(), "first"), "first", 1000.0), last] if rate else [last]
    found = read_pages(spoken, pages, "server/x")
    assert [one.value for one in found.readings if (one.signal, one.subject) == (signal, subject)] == [value]


def test_a_dialect_by_other_names_keeps_what_it_says_itself() -> None:
    known = {one.id: one for one in shipped()}
    assert known["nim"].signals >= known["vllm"].signals
    (own,) = (options for options in known["nim"].rules if options[0].signal == "error.ratio")
    assert str(own[0].terms[0]) == "request_failure_total"
    names = {
        option.name
        for options in known["nim"].rules
        for rule in options
        for one in rule.terms
        for option in one.options
    }
    assert not [name for name in names if name.startswith("vllm:")]
