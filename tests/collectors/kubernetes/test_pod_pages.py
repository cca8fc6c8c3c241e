"""Metrics pages that are found through Pods: joined with them; one that fails, or whose Pod leaves, is no outage."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from latdoctor.case_from_bundle import seen
from latdoctor.cluster_api import Login
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import CollectRequest, KubernetesWorkloads
from latdoctor.collectors.kubernetes.pod_page_address import page_of
from latdoctor.collectors.runner import SystemClock, collect_bundle
from latdoctor.detectors import revision_means
from latdoctor.evidence.bundle import Bundle, Context
from latdoctor.evidence.model import Evidence
from latdoctor.gap_code import GapCode
from tests.collectors.kubernetes.observing import diagnosis_of, named
from tests.collectors.kubernetes.workloads import alive, ready, wait_until_ready
from tests.lab.cluster.objects import HEALTH, Namespace, Object

SERVER = Path(__file__).with_name("metrics_server.py")


def serving(seconds: float = 0.02, port: str = "metrics") -> Object:
    return {
        "name": "server",
        "image": "lab/workload:1",
        "command": [sys.executable, "-S", str(SERVER), str(seconds)],
        "ports": [{"name": port, "containerPort": 8000}],
        "readinessProbe": HEALTH,
    }


class ScaleInAtFirst(SystemClock):
    """A clock that scales the workload in, to one Pod, when the first interval of the window begins."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace: Namespace | None = namespace

    def sleep(self, seconds: float) -> None:
        if self._namespace is not None:
            namespace, self._namespace = self._namespace, None
            namespace.api.patch(namespace.path("deployments", "chat"), {"spec": {"replicas": 1}})
            namespace.wait("pods", lambda pods: len(pods) == 1)
        super().sleep(seconds)


def observed(kubeconfig: Path, namespace: Namespace, clock: SystemClock | None = None) -> Bundle:
    wanted = KubernetesWorkloads((f"{namespace.name}/chat",), Login(kubeconfig))
    request = CollectRequest(kubernetes=wanted, window=2.0, timeout=10.0)
    return collect_bundle(COLLECTORS, request, Context("chat"), clock or SystemClock())


def servers(evidence: Evidence) -> dict[str, str]:
    """The Pod of each server that something was measured on."""
    measured = {name for one in evidence.readings for name in evidence.lineage(one.subject)}
    return {name: str(evidence.parents[name]) for name in measured if name.startswith("server/")}


def test_pages_are_found_through_the_pods_and_belong_to_them(namespace: Namespace, kubeconfig: Path) -> None:
    namespace.deployment("chat", 2, serving())
    wait_until_ready(namespace, "chat", 2)
    bundle = observed(kubeconfig, namespace)
    evidence, _ = seen(bundle)
    pods = namespace.wait("pods", lambda pods: pods)
    assert servers(evidence) == {
        f"server/{pod['status']['podIP']}:8000": f"pod/{namespace.name}/{name}@lab" for name, pod in pods.items()
    }
    rates = [one.value for one in evidence.readings if one.signal == "completion.rate"]
    assert len(rates) == 2
    assert rates == [pytest.approx(50, rel=0.2)] * 2


def test_a_page_that_does_not_answer_is_a_gap_and_no_outage(namespace: Namespace, kubeconfig: Path) -> None:
    wrong = {**serving(), "ports": [{"name": "metrics", "containerPort": 9999}]}
    namespace.deployment("chat", 1, wrong)
    wait_until_ready(namespace, "chat", 1)
    bundle = observed(kubeconfig, namespace)
    (gap,) = bundle.gaps
    assert gap.code == GapCode.UNREACHABLE
    assert "latency.p99" in gap.signals
    diagnosis = diagnosis_of(bundle)
    assert (named(diagnosis), diagnosis.verdict.level) == ([], "inconclusive")


def test_a_pod_that_leaves_while_it_is_observed_is_no_outage(namespace: Namespace, kubeconfig: Path) -> None:
    namespace.deployment("chat", 3, serving())
    wait_until_ready(namespace, "chat", 3)
    bundle = observed(kubeconfig, namespace, ScaleInAtFirst(namespace))
    stopped = [one for one in bundle.gaps if one.code == GapCode.STOPPED]
    assert len(stopped) == 2
    assert all("its Pod left the service" in one.reason and not one.signals for one in stopped)
    diagnosis = diagnosis_of(bundle)
    assert (named(diagnosis), diagnosis.since) == ([], None)


def test_a_revision_that_computes_longer_than_the_one_before_is_a_bad_rollout(
    namespace: Namespace, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[revision_means.__module__], "WARM", 0.0)
    namespace.deployment("chat", 2, serving())
    half = {"spec": {"minReadySeconds": 300, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}
    namespace.api.patch(namespace.path("deployments", "chat"), half)  # the rollout stays where it is
    wait_until_ready(namespace, "chat", 2)
    slower = {"spec": {"template": {"spec": {"containers": [serving(0.08)]}}}}
    namespace.api.patch(namespace.path("deployments", "chat"), slower)
    namespace.wait("pods", lambda pods: len(ready(pods, "chat")) == len(alive(pods, "chat")) == 3)
    diagnosis = diagnosis_of(observed(kubeconfig, namespace))
    assert named(diagnosis)[:1] == ["framework.model.bad-rollout"]


@pytest.mark.parametrize(
    ("annotations", "ports", "page"),
    [
        ({}, [("http", 8000), ("metrics", 9400)], "http://10.0.0.7:9400/metrics"),
        ({}, [("http", 8000)], "http://10.0.0.7:8000/metrics"),
        ({}, [("grpc", 8001)], ""),
        ({"port": "8002", "path": "stats"}, [("http", 8000)], "http://10.0.0.7:8002/stats"),
        ({"port": "8002", "scheme": "https"}, [], "https://10.0.0.7:8002/metrics"),
        ({"scrape": "true"}, [("grpc", 8001)], "http://10.0.0.7:8001/metrics"),
        ({"scrape": "false"}, [("metrics", 8000)], ""),
        ({"port": "http"}, [("http", 8000)], ""),
    ],
)
def test_where_a_pod_has_its_page(annotations: dict[str, str], ports: list[tuple[str, int]], page: str) -> None:
    declared = [{"name": name, "containerPort": number} for name, number in ports]
    pod = {
        "metadata": {"annotations": {f"prometheus.io/{key}": value for key, value in annotations.items()}},
        "spec": {"containers": [{"name": "server", "ports": declared}]},
        "status": {"podIP": "10.0.0.7"},
    }
    assert page_of(pod) == page
