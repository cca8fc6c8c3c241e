"""Times of objects by one clock: that of the machine that collected them.

A kubelet writes when its containers started and ended, its conditions and its events by the clock of its node; all
other times are by that of the control plane. Where these clocks disagree, "since when" would be wrong by as much. What
a node's clock is ahead or behind at least is proven by order: a Pod starts after it was created, the server creates an
event after it first happened, and nothing is reported before it happens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from latdoctor.collectors.documents.kubernetes.quantities import moment

Object = Mapping[str, Any]
Parts = Mapping[str, Sequence[Object]]
LEAST = 2.0  # seconds: times have whole seconds, and are written one after the other
_ROUNDING = 1.0  # seconds
_TIMES = frozenset(
    {
        *("creationTimestamp", "deletionTimestamp", "startTime", "startedAt", "finishedAt", "time"),
        *("firstTimestamp", "lastTimestamp", "eventTime", "lastObservedTime", "deprecatedLastTimestamp"),
        *("lastTransitionTime", "lastHeartbeatTime", "lastProbeTime", "lastUpdateTime", "lastScaleTime"),
    }
)  # fmt: skip
_EVENTS = "events"  # the end of the names of parts with events
_KUBELET = "kubelet"
_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds ahead of this machine's clock: that of the control plane; and each node's, of the control plane's."""

    server: float
    nodes: Mapping[str, float]


def clocks_of(parts: Parts, taken_at: float, server: float) -> Clocks:
    """`taken_at`: when the objects were read, by this machine's clock; `server`: how far the server's is ahead."""
    least: dict[str, float] = {}
    most: dict[str, float] = {}
    for node, proven in _proven_least(parts, taken_at + server):
        least[node] = max(proven, least.get(node, proven))
    for node, proven in _proven_most(parts):
        most[node] = min(proven, most.get(node, proven))
    ahead = {node: max(least.get(node, 0.0), 0.0) + min(most.get(node, 0.0), 0.0) for node in sorted({*least, *most})}
    return Clocks(
        server if abs(server) > LEAST else 0.0, {node: one for node, one in ahead.items() if abs(one) > LEAST}
    )


def _proven_least(parts: Parts, now: float) -> Iterator[tuple[str, float]]:
    """How far ahead a node's clock is at least; `now` by the server's clock."""
    for event in _events(parts):
        node, first = _node_of_event(event), moment(str(event.get("firstTimestamp") or ""))
        created = moment(str(event["metadata"].get("creationTimestamp") or ""))
        if node and first is not None and created is not None:
            yield node, first - created - _ROUNDING
    for one in parts.get("nodes", ()):
        for condition in (one.get("status") or {}).get("conditions") or ():
            if (beat := moment(condition.get("lastHeartbeatTime") or "")) is not None:
                yield str(one["metadata"]["name"]), beat - now


def _proven_most(parts: Parts) -> Iterator[tuple[str, float]]:
    """How far ahead a node's clock is at most: no Pod starts before it was created."""
    for pod in parts.get("pods", ()):
        if _MIRROR in (pod["metadata"].get("annotations") or {}):
            continue  # a static Pod starts before the server has it
        started = moment(str((pod.get("status") or {}).get("startTime") or ""))
        created = moment(str(pod["metadata"].get("creationTimestamp") or ""))
        if started is not None and created is not None:
            yield _node_of_pod(pod), started - created + _ROUNDING


def _events(parts: Parts) -> Iterator[Object]:
    for part, objects in parts.items():
        if part.endswith(_EVENTS):
            yield from objects


def _node_of_event(event: Object) -> str:
    """The node whose kubelet has written the event; empty for one of the control plane."""
    source = event.get("source") or {}
    if source.get("component") == _KUBELET:
        return str(source.get("host") or "")
    return str(event.get("reportingInstance") or "") if event.get("reportingComponent") == _KUBELET else ""


def _node_of_pod(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def by_one_clock(parts: Parts, clocks: Clocks) -> dict[str, list[Object]]:
    """The objects with all times by this machine's clock."""
    if not clocks.server and not clocks.nodes:
        return {part: list(objects) for part, objects in parts.items()}
    lost = {str(one["metadata"]["name"]) for one in parts.get("nodes", ()) if _is_lost(one)}
    return {part: [_moved(one, part, clocks, lost) for one in objects] for part, objects in parts.items()}


def _is_lost(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any((one.get("type"), one.get("status")) == ("Ready", "Unknown") for one in conditions)


def _moved(one: Object, part: str, clocks: Clocks, lost: Collection[str]) -> Object:
    """An object whose node's times are moved to the server's clock, and then all of them to this machine's."""
    found = dict(one)
    name = str(one["metadata"]["name"]) if part == "nodes" else _node_of_pod(one) if part == "pods" else ""
    if part.endswith(_EVENTS) and (ahead := clocks.nodes.get(_node_of_event(one))):
        found = {key: value if key == "metadata" else _shifted(value, ahead, key) for key, value in one.items()}
    elif ahead := clocks.nodes.get(name):
        found["status"] = _of_kubelet(one.get("status") or {}, ahead, is_lost=name in lost)
    return _shifted(found, clocks.server) if clocks.server else found


def _of_kubelet(status: Object, ahead: float, *, is_lost: bool) -> Object:
    """A status as a kubelet writes it, but for the times at which the control plane changed a condition."""
    conditions = [_condition(one, ahead, is_lost=is_lost) for one in status.get("conditions") or ()]
    return {**_shifted(status, ahead), "conditions": conditions}


def _condition(one: Object, ahead: float, *, is_lost: bool) -> Object:
    """The scheduler, and the controller of nodes for a lost node and its Pods, write by the control plane's clock."""
    moved = _shifted(one, ahead)
    by_control_plane = one.get("type") == "PodScheduled" or (is_lost and one.get("type") == "Ready")
    if by_control_plane or one.get("status") == "Unknown":
        return {**moved, "lastTransitionTime": one.get("lastTransitionTime")}
    return dict(moved)


def _shifted(value: Any, ahead: float, key: str = "") -> Any:
    """The value with all times in it earlier by `ahead` seconds."""
    if isinstance(value, Mapping):
        return {name: _shifted(inner, ahead, str(name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shifted(one, ahead, key) for one in value]
    if key in _TIMES and isinstance(value, str) and (time := moment(value)) is not None:
        return datetime.fromtimestamp(time - ahead, UTC).isoformat()
    return value
