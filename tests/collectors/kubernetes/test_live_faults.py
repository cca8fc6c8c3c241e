"""Faults of rollouts, scaling and nodes on a real control plane, and the healthy changes that look like them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from latdoctor.case_from_bundle import seen
from latdoctor.cluster_api import ClusterApi
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.evidence.model import to_json
from latdoctor.lab.cluster.nodes import LOST
from latdoctor.report.answer import text
from tests.cli.running import run
from tests.collectors.kubernetes.observing import bundle_of, diagnosis_of, named
from tests.collectors.kubernetes.workloads import READY, alive, ready, wait_until_ready
from tests.lab.cluster.objects import HEALTH, Namespace, Object, condition, container, waiting
from tests.lab.cluster.shared_cluster import SPARE_LABEL

SLACK = 10.0  # seconds that "since when" may be wrong


def diagnosed(kubeconfig: Path, namespace: Namespace, name: str = "chat") -> Diagnosis:
    return diagnosis_of(bundle_of(kubeconfig, f"{namespace.name}/{name}"))


def now() -> float:
    return datetime.now(UTC).timestamp()


def with_template(namespace: Namespace, one: Object, name: str = "chat") -> None:
    body = {"spec": {"template": {"spec": {"containers": [one]}}}}
    namespace.api.patch(namespace.path("deployments", name), body)


def test_a_revision_that_does_not_start_is_named_with_its_time_and_an_undo_clears_it(
    namespace: Namespace, kubeconfig: Path
) -> None:
    namespace.deployment("chat", 2, READY)
    wait_until_ready(namespace, "chat", 2)
    at = now()
    with_template(namespace, {**READY, "image": "lab/workload:9"})
    namespace.wait("pods", lambda pods: any(waiting(one) == "ImagePullBackOff" for one in pods.values()))
    bad = diagnosed(kubeconfig, namespace)
    assert named(bad)[:2] == ["infra.kubernetes.bad-rollout", "infra.kubernetes.image-pull"]
    assert bad.since is not None
    assert abs(bad.since.time - at) < SLACK
    assert [one.message for one in bad.changes if one.kind == "change.deployment"] == ["revision of chat 1 → 2"]

    at = now()
    with_template(namespace, READY)
    namespace.wait("pods", lambda pods: len(pods) == len(ready(pods, "chat")) == 2)
    undone = diagnosed(kubeconfig, namespace)
    assert named(undone) == []
    changes = [one for one in undone.changes if one.kind == "change.deployment"]
    assert [one.message for one in changes] == ["revision of chat 2 → 3"]
    assert abs(changes[0].time - at) < SLACK  # not the time at which the set of the first revision was created


@contextmanager
def observing(kubeconfig: Path, namespace: Namespace, name: str) -> Iterator[list[Diagnosis]]:
    """Diagnose again and again while the block runs."""
    found: list[Diagnosis] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            found.append(diagnosed(kubeconfig, namespace, name))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def test_a_healthy_rollout_and_a_scale_out_show_no_cause_at_any_time(namespace: Namespace, kubeconfig: Path) -> None:
    slow_start = container(readinessProbe={**HEALTH, "initialDelaySeconds": 2})
    namespace.deployment("chat", 3, slow_start)
    with observing(kubeconfig, namespace, "chat") as found:
        wait_until_ready(namespace, "chat", 3)
        with_template(namespace, {**slow_start, "image": "lab/workload:2"})
        namespace.wait("pods", lambda pods: _all_of(pods, "lab/workload:2", 3))
        namespace.api.patch(namespace.path("deployments", "chat"), {"spec": {"replicas": 6}})
        wait_until_ready(namespace, "chat", 6)
    assert len(found) > 3
    assert [named(one) for one in found if named(one)] == []
    assert {one.verdict.level for one in found} == {"inconclusive"}


def _all_of(pods: dict[str, Object], image: str, replicas: int) -> bool:
    images = [one["spec"]["containers"][0]["image"] for one in ready(pods, "chat")]
    return images == [image] * replicas == [one["spec"]["containers"][0]["image"] for one in pods.values()]


def test_an_autoscaler_at_its_maximum_is_named_since_its_condition(namespace: Namespace, kubeconfig: Path) -> None:
    namespace.deployment("chat", 2, READY)
    wait_until_ready(namespace, "chat", 2)
    condition_ = {
        "type": "ScalingLimited",
        "status": "True",
        "reason": "TooManyReplicas",
        "message": "the desired replica count is more than the maximum replica count",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    at = now()
    autoscaler(namespace, maximum=2, load=34, conditions=[condition_])
    diagnosis = diagnosed(kubeconfig, namespace)
    assert named(diagnosis)[:1] == ["app.scale.at-maximum"]
    assert diagnosis.since is not None
    assert abs(diagnosis.since.time - at) < SLACK


def test_replicas_that_trail_the_load_are_named(namespace: Namespace, kubeconfig: Path, tmp_path: Path) -> None:
    allowed = {"exec": {"command": ["sh", "-c", f"test -e {tmp_path}/$POD_NAME"]}, "periodSeconds": 1}
    namespace.deployment("chat", 1, container(readinessProbe=allowed))
    pods = namespace.wait("pods", lambda pods: len(alive(pods, "chat")) == 1)
    for name in pods:
        (tmp_path / name).touch()
    wait_until_ready(namespace, "chat", 1)
    namespace.api.patch(namespace.path("deployments", "chat"), {"spec": {"replicas": 4}})
    namespace.wait("deployments", lambda all_: all_["chat"]["status"].get("replicas") == 4)
    autoscaler(namespace, maximum=8, load=34, conditions=[])
    assert named(diagnosed(kubeconfig, namespace))[:1] == ["app.scale.lagging"]


def autoscaler(namespace: Namespace, *, maximum: int, load: int, conditions: list[Object]) -> None:
    """One of `chat` with a target of 10, and the status that its controller would write at `load`."""
    metric = {"type": "External", "external": {"metric": {"name": "queue"}, "target": _average(10)}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        "minReplicas": 1,
        "maxReplicas": maximum,
        "metrics": [metric],
    }
    path = f"/apis/autoscaling/v2beta2/namespaces/{namespace.name}/horizontalpodautoscalers"
    namespace.api.create(path, {"metadata": {"name": "chat"}, "spec": spec})
    current = {"type": "External", "external": {"metric": {"name": "queue"}, "current": {"averageValue": str(load)}}}
    status = {"currentReplicas": 2, "desiredReplicas": maximum, "currentMetrics": [current], "conditions": conditions}
    namespace.api.patch(f"{path}/chat/status", {"status": status}, "application/merge-patch+json")


def _average(value: int) -> Object:
    return {"type": "AverageValue", "averageValue": str(value)}


def _leads_to_a_drain(diagnosis: Diagnosis, node: str, name: str, kubeconfig: Path, folder: Path) -> None:
    """The node that the diagnosis names is drained without typing its name."""
    assert f"--set node={node}" in text(diagnosis)
    (folder / "d.json").write_bytes(to_json(diagnosis))
    planned = run(["remediate", "--from", str(folder / "d.json"), "--kube", name, "--kubeconfig", str(kubeconfig)])
    assert planned.code == 0, planned.err
    assert f"nodes/{node}" in planned.out


@pytest.mark.usefixtures("spare_nodes")
def test_a_lost_node_is_named_since_it_last_reported_also_when_it_is_lost_again_and_leads_to_its_drain(
    api: ClusterApi, namespace: Namespace, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller of nodes counts a further loss with the first one, in one event."""
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    stays = [{"key": key, "operator": "Exists"} for key in (SPARE_LABEL, "node.kubernetes.io/unreachable")]
    namespace.deployment("chat", 1, READY, nodeSelector={SPARE_LABEL: "true"}, tolerations=stays)
    wait_until_ready(namespace, "chat", 1)
    (pod,) = namespace.wait("pods", lambda pods: ready(pods, "chat")).values()
    lost = pod["spec"]["nodeName"]
    for _ in range(2):
        at = now()
        with losing(api, namespace, lost):
            diagnosis = diagnosed(kubeconfig, namespace)
            _leads_to_a_drain(diagnosis, lost, f"{namespace.name}/chat", kubeconfig, tmp_path)
        wait_until_ready(namespace, "chat", 1)
        assert named(diagnosis)[:1] == ["infra.kubernetes.node-lost"]
        assert diagnosis.since is not None
        assert abs(diagnosis.since.time - at) < SLACK


@contextmanager
def losing(api: ClusterApi, namespace: Namespace, node: str) -> Iterator[None]:
    """The node is lost, and known as that, within the block."""
    path = f"/api/v1/nodes/{node}"
    api.patch(path, {"metadata": {"annotations": {LOST: "true"}}})
    try:
        namespace.wait("nodes", lambda nodes: condition(nodes[node], "Ready") == "Unknown", "/api/v1/nodes")
        yield
    finally:
        api.patch(path, {"metadata": {"annotations": {LOST: None}}})
        namespace.wait("nodes", lambda nodes: condition(nodes[node], "Ready") == "True", "/api/v1/nodes")


def test_a_quota_that_refuses_pods_is_named_while_the_others_serve(
    api: ClusterApi, namespace: Namespace, kubeconfig: Path
) -> None:
    namespace.deployment("chat", 2, READY)
    wait_until_ready(namespace, "chat", 2)
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "2"}}}
    api.create(namespace.path("resourcequotas"), quota)
    namespace.wait("resourcequotas", lambda found: found["pods"].get("status", {}).get("used", {}).get("pods") == "2")
    full = diagnosed(kubeconfig, namespace)
    assert named(full) == []  # it is used up, and nothing is refused

    at = now()
    namespace.api.patch(namespace.path("deployments", "chat"), {"spec": {"replicas": 4}})
    namespace.wait("deployments", lambda found: condition(found["chat"], "ReplicaFailure") == "True")
    refused = diagnosed(kubeconfig, namespace)
    assert named(refused) == ["infra.kubernetes.no-capacity"]
    assert refused.since is not None
    assert abs(refused.since.time - at) < SLACK

    api.delete(namespace.path("resourcequotas", "pods"))
    wait_until_ready(namespace, "chat", 4)
    assert named(diagnosed(kubeconfig, namespace)) == []  # its events are of the last minutes, and over


def test_the_accelerators_that_are_free_are_counted(namespace: Namespace, kubeconfig: Path) -> None:
    namespace.deployment("chat", 1, {**READY, "resources": {"limits": {"nvidia.com/gpu": "2"}}})
    wait_until_ready(namespace, "chat", 1)
    evidence, _ = seen(bundle_of(kubeconfig, f"{namespace.name}/chat"))
    found = {
        (one.signal, dict(one.labels)["resource"]): one.value
        for one in evidence.readings
        if "gpus_" in one.signal and one.labels
    }
    there, free = found["cluster.gpus_allocatable", "nvidia.com/gpu"], found["cluster.gpus_free", "nvidia.com/gpu"]
    assert isinstance(there, float)
    assert isinstance(free, float)
    assert there % 2 == 0
    assert free <= there - 2
    assert found["cluster.gpus_free_on_node", "nvidia.com/mig-1g.5gb"] <= 7


@pytest.mark.parametrize(
    ("labels", "manager"),
    [({"argocd.argoproj.io/instance": "chat-prod"}, "Argo CD (chat-prod)"), ({"app": "chat"}, None)],
)
def test_what_manages_a_workload_is_read(
    namespace: Namespace, kubeconfig: Path, labels: dict[str, str], manager: str | None
) -> None:
    namespace.deployment("chat", 0, READY)
    namespace.api.patch(namespace.path("deployments", "chat"), {"metadata": {"labels": labels}})
    evidence, _ = seen(bundle_of(kubeconfig, f"{namespace.name}/chat"))
    assert next((one.value for one in evidence.readings if one.signal == "workload.managed_by"), None) == manager
