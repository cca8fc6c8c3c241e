"""Clocks that disagree: since when something is wrong must not be off by as much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from latdoctor.case_from_bundle import seen
from latdoctor.cluster_api import ClusterApi
from latdoctor.collectors.kubernetes.node_clocks import clocks_of
from latdoctor.gap_code import GapCode
from latdoctor.lab.cluster.nodes import CLOCK_AHEAD
from tests.collectors.kubernetes.observing import bundle_of, diagnosis_of, named
from tests.collectors.kubernetes.test_failing_api_server import Reply, as_json, listening
from tests.collectors.kubernetes.workloads import BROKEN
from tests.lab.cluster.objects import Namespace, Object
from tests.lab.cluster.shared_cluster import SPARE, SPARE_LABEL

AHEAD = 95.0
SLACK = 10.0


def now() -> float:
    return datetime.now(UTC).timestamp()


def stamp(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def skewed(api: ClusterApi, namespace: Namespace, node: str, ahead: float) -> Iterator[None]:
    """The clock of the node is `ahead` seconds ahead within the block."""
    path = f"/api/v1/nodes/{node}"
    api.patch(path, {"metadata": {"annotations": {CLOCK_AHEAD: f"{ahead:g}"}}})
    try:
        namespace.wait("nodes", lambda nodes: abs(heartbeat(nodes[node]) - now() - ahead) < SLACK, "/api/v1/nodes")
        yield
    finally:
        api.patch(path, {"metadata": {"annotations": {CLOCK_AHEAD: None}}})
        namespace.wait("nodes", lambda nodes: abs(heartbeat(nodes[node]) - now()) < SLACK, "/api/v1/nodes")


def heartbeat(node: Object) -> float:
    return max(datetime.fromisoformat(one["lastHeartbeatTime"]).timestamp() for one in node["status"]["conditions"])


@pytest.mark.usefixtures("spare_nodes")
@pytest.mark.parametrize("ahead", [AHEAD, -AHEAD], ids=["ahead", "behind"])
def test_a_fault_on_a_node_whose_clock_is_off_is_dated_right(
    api: ClusterApi, namespace: Namespace, kubeconfig: Path, ahead: float
) -> None:
    node = SPARE[0]
    name = "probe-kills"
    with skewed(api, namespace, node, ahead):
        at = now()
        here = {"kubernetes.io/hostname": node}
        stays = [{"key": SPARE_LABEL, "operator": "Exists"}]
        namespace.deployment("chat", 1, BROKEN[name].container, nodeSelector=here, tolerations=stays)
        namespace.wait("pods", lambda pods: any(BROKEN[name].shows(one) for one in pods.values()))
        broken = now()
        bundle = bundle_of(kubeconfig, f"{namespace.name}/chat")
    diagnosis = diagnosis_of(bundle)
    assert named(diagnosis)[0] == BROKEN[name].cause
    assert diagnosis.since is not None
    assert at - SLACK < diagnosis.since.time < broken + SLACK
    evidence, _ = seen(bundle)
    (offset,) = evidence.readings_by_signal["host.clock.offset"]
    assert offset.value == pytest.approx(ahead, abs=SLACK)
    assert offset.subject.startswith(f"node/{node}@")
    (gap,) = [one for one in evidence.gaps if one.code == GapCode.INCONSISTENT]
    assert f"the clock of node {node}" in gap.reason


@pytest.mark.parametrize("ahead", [600.0, -600.0], ids=["ahead", "behind"])
def test_times_of_an_api_server_whose_clock_is_off_are_by_that_of_this_machine(tmp_path: Path, ahead: float) -> None:
    began = now() - 60
    refused = {
        "metadata": {"name": "chat.1", "namespace": "prod", "creationTimestamp": stamp(began + ahead)},
        "involvedObject": {"kind": "ReplicaSet", "name": "chat-7f", "namespace": "prod"},
        "reason": "FailedCreate",
        "message": 'pods "chat-x" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=2, limited: pods=2',
        "type": "Warning",
        "firstTimestamp": stamp(began + ahead),
        "lastTimestamp": stamp(began + ahead),
    }

    wanted = {"metadata": {"name": "chat-7f"}, "spec": {"replicas": 3}, "status": {"replicas": 2}}

    def route(path: str) -> Reply | None:
        if "/replicasets?" in path:
            return as_json({"items": [wanted], "metadata": {}})
        return as_json({"items": [refused], "metadata": {}}) if "/prod/events?" in path else None

    with listening(route, tmp_path, ahead) as kubeconfig:
        bundle = bundle_of(kubeconfig, "prod/chat")
    diagnosis = diagnosis_of(bundle)
    assert named(diagnosis) == ["infra.kubernetes.no-capacity"]
    assert diagnosis.since is not None
    assert diagnosis.since.time == pytest.approx(began, abs=SLACK)
    evidence, _ = seen(bundle)
    assert any("the clock of the API server" in one.reason for one in evidence.gaps)
    assert "host.clock.offset" not in evidence.readings_by_signal


def test_clocks_that_agree_leave_no_gap(namespace: Namespace, kubeconfig: Path) -> None:
    namespace.deployment("chat", 1, BROKEN["image-pull"].container)
    namespace.wait("pods", lambda pods: any(BROKEN["image-pull"].shows(one) for one in pods.values()))
    evidence, _ = seen(bundle_of(kubeconfig, f"{namespace.name}/chat"))
    assert [one for one in evidence.gaps if one.code == GapCode.INCONSISTENT] == []


def event(first: float, created: float, component: str = "kubelet") -> Object:
    return {
        "metadata": {"name": "a", "creationTimestamp": stamp(created)},
        "source": {"component": component, "host": "n"},
        "firstTimestamp": stamp(first),
    }


def pod(created: float, started: float, **metadata: Any) -> Object:
    return {
        "metadata": {"name": "p", "creationTimestamp": stamp(created), **metadata},
        "spec": {"nodeName": "n"},
        "status": {"startTime": stamp(started)},
    }


T = 1_795_000_000.0


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"events": [event(T + 40, T)]}, {"n": 39.0}),
        ({"events": [event(T, T + 40)]}, {}),  # created late: the API server was away
        ({"events": [event(T + 40, T, "deployment-controller")]}, {}),
        ({"pods": [pod(T, T - 40)]}, {"n": -39.0}),
        ({"pods": [pod(T, T + 40)]}, {}),  # it waited for a node
        ({"pods": [pod(T, T - 40, annotations={"kubernetes.io/config.mirror": "x"})]}, {}),
        ({"events": [event(T + 2, T)], "pods": [pod(T, T - 2)]}, {}),
    ],
    ids=["event", "late-event", "controller", "pod", "waiting-pod", "static-pod", "rounding"],
)
def test_only_what_the_order_of_things_proves_is_an_offset(
    parts: dict[str, list[Object]], expected: dict[str, float]
) -> None:
    assert clocks_of(parts, T + 1000, 0.0).nodes == expected
