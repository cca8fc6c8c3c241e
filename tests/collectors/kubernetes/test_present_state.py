"""Which events are of the present, and since when they last: those of an earlier incident are not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from latdoctor.collectors.documents.kubernetes.quantities import moment
from latdoctor.collectors.kubernetes.present_state import present

NOW = datetime(2026, 11, 25, 14, 0, tzinfo=UTC).timestamp()
Object = dict[str, Any]


def ago(seconds: float) -> str:
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(kind: str, name: str, reason: str, first: float, last: float, message: str = "") -> Object:
    """`first` and `last`: seconds ago."""
    return {
        "kind": "Event",
        "metadata": {"name": f"{name}.{first:g}", "creationTimestamp": ago(first)},
        "involvedObject": {"kind": kind, "name": name},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "firstTimestamp": ago(first),
        "lastTimestamp": ago(last),
    }


def with_condition(
    kind: str, name: str, type_: str, status: str, since: float, heartbeat: float | None = None
) -> Object:
    condition = {"type": type_, "status": status, "lastTransitionTime": ago(since)}
    if heartbeat is not None:
        condition["lastHeartbeatTime"] = ago(heartbeat)
    return {"kind": kind, "metadata": {"name": name}, "status": {"conditions": [condition]}}


def replica_set(replicas: int, there: int) -> Object:
    return {
        "kind": "ReplicaSet",
        "metadata": {"name": "chat-7f"},
        "spec": {"replicas": replicas},
        "status": {"replicas": there},
    }


def starting(since: float, *, restarts: int = 0, threshold: int = 60) -> Object:
    """A Pod whose container started so many seconds ago and is not up yet."""
    return {
        "kind": "Pod",
        "metadata": {"name": "chat-7f-x"},
        "spec": {
            "nodeName": "node-0",
            "containers": [{"name": "server", "startupProbe": {"periodSeconds": 1, "failureThreshold": threshold}}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "server", "restartCount": restarts, "state": {"running": {"startedAt": ago(since)}}}
            ],
        },
    }


LOST = with_condition("Node", "node-0", "Ready", "Unknown", 10, heartbeat=20)
REFUSED = {**replica_set(5, 3), "status": with_condition("", "", "ReplicaFailure", "True", 30)["status"]}
BLIND = with_condition("HorizontalPodAutoscaler", "chat", "ScalingActive", "False", 40)
NOT_STARTED = "Startup probe failed: GET /healthz: connection refused"


def kept(events: list[Object], **parts: list[Object]) -> list[float]:
    """How many seconds ago each event that is left began."""
    found = present({**parts, "events": events}, NOW)["events"]
    return [NOW - (moment(one["firstTimestamp"]) or 0.0) for one in found]


@pytest.mark.parametrize(
    ("one", "parts", "began"),
    [
        (event("Node", "node-0", "NodeNotReady", 70, 10), {"nodes": [LOST]}, 20),
        (event("Node", "node-0", "NodeNotReady", 10, 10), {"nodes": [LOST]}, 10),
        (
            event("ReplicaSet", "chat-7f", "FailedCreate", 3000, 5, "exceeded quota: pods"),
            {"replicasets": [REFUSED]},
            30,
        ),
        (
            event("HorizontalPodAutoscaler", "chat", "FailedGetExternalMetric", 3000, 5),
            {"horizontalpodautoscalers": [BLIND]},
            40,
        ),
        (event("Pod", "chat-7f-x", "BackOff", 500, 5, "back-off restarting"), {"pods": [starting(5, restarts=4)]}, 500),
    ],
    ids=["node-lost-again", "node-lost", "refused-again", "no-metric-again", "crash-loop"],
)  # fmt: skip
def test_a_repeated_event_began_with_the_present_condition(
    one: Object, parts: dict[str, list[Object]], began: float
) -> None:
    assert kept([one], **parts) == [began]


@pytest.mark.parametrize(
    ("one", "parts"),
    [
        (event("Node", "node-0", "NodeNotReady", 70, 60), {"nodes": [LOST]}),
        (event("ReplicaSet", "chat-7f", "FailedCreate", 70, 60), {"replicasets": [replica_set(3, 3)]}),
        (event("ReplicaSet", "chat-7f", "FailedCreate", 70, 60), {"replicasets": [replica_set(0, 0)]}),
        (event("Pod", "chat-7f-x", "Unhealthy", 20, 2, NOT_STARTED), {"pods": [starting(21)]}),
    ],
    ids=["loss-before-this-one", "created-since", "scaled-in-since", "still-starting"],
)
def test_what_is_over_or_normal_is_left_out(one: Object, parts: dict[str, list[Object]]) -> None:
    assert kept([one], **parts) == []


@pytest.mark.parametrize(
    ("one", "parts"),
    [
        (event("ReplicaSet", "chat-7f", "FailedCreate", 70, 60), {"replicasets": [replica_set(5, 3)]}),
        (event("ReplicaSet", "gone", "FailedCreate", 70, 60), {"replicasets": [replica_set(3, 3)]}),
        (event("Pod", "chat-7f-x", "Unhealthy", 140, 2, NOT_STARTED), {"pods": [starting(141)]}),
        (event("Pod", "chat-7f-x", "Unhealthy", 20, 2, NOT_STARTED), {"pods": [starting(5, restarts=1)]}),
        (event("Pod", "chat-7f-x", "Unhealthy", 20, 2, "Liveness probe failed: "), {"pods": [starting(21)]}),
    ],
    ids=["refused", "unknown-set", "beyond-what-the-probe-allows", "restarted-for-it", "liveness"],
)
def test_what_is_wrong_now_is_kept(one: Object, parts: dict[str, list[Object]]) -> None:
    assert len(kept([one], **parts)) == 1
