"""Since when the present condition of an object lasts, for events that repeat.

The control plane counts the events of one object and reason together: the first of them may be of an earlier incident.
A condition of the object has the time since which it is as it is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from latdoctor.collectors.documents.kubernetes.conditions import holds_since
from latdoctor.collectors.documents.kubernetes.event_kinds import is_metric_failure
from latdoctor.collectors.documents.kubernetes.schema import Condition

Object = Mapping[str, Any]
Named = Mapping[tuple[str, str], Object]  # objects by kind and name
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_READY = ("Ready",)
# The conditions of an object that an event of this kind and reason is about.
_CONDITIONS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("Node", "NodeNotReady"): _READY,
    ("Node", "NodeLost"): _READY,
    ("Node", "NodeHasInsufficientMemory"): ("MemoryPressure",),
    ("Node", "NodeUnderMemoryPressure"): ("MemoryPressure",),
    ("Node", "NodeHasDiskPressure"): ("DiskPressure",),
    ("Node", "NodeHasInsufficientPID"): ("PIDPressure",),
    ("Node", "EvictionThresholdMet"): _PRESSURES,
    ("Pod", "NodeNotReady"): _READY,
    ("Pod", "FailedScheduling"): ("PodScheduled",),
    ("ReplicaSet", "FailedCreate"): ("ReplicaFailure",),
    ("HorizontalPodAutoscaler", "FailedComputeMetricsReplicas"): ("ScalingActive",),
}
_TRUE_IF_WELL = frozenset({"Ready", "PodScheduled", "ScalingActive"})


def by_name(objects: Iterable[Object]) -> Named:
    return {(str(one.get("kind")), str((one.get("metadata") or {}).get("name"))): one for one in objects}


def bad_since(event: Object, objects: Named) -> float | None:
    """Since when the object of the event is in the bad condition that the event reports, unix seconds.

    None where it is not, or where no condition shows it. Raises ValueError for a damaged condition.
    """
    kind, name = subject_of(event)
    reason = str(event.get("reason"))
    wanted = _CONDITIONS.get((kind, reason), ())
    if kind == "HorizontalPodAutoscaler" and is_metric_failure(reason):
        wanted = ("ScalingActive",)
    status = (objects.get((kind, name)) or {}).get("status") or {}
    raw = (one for one in status.get("conditions") or () if wanted and one.get("type") in wanted)
    bad = (one for one in (msgspec.convert(one, Condition, strict=False) for one in raw) if _is_bad(one))
    return min((time for one in bad if (time := holds_since(one)) is not None), default=None)


def _is_bad(condition: Condition) -> bool:
    return condition.status == "Unknown" or (condition.status == "True") != (condition.type in _TRUE_IF_WELL)


def subject_of(event: Object) -> tuple[str, str]:
    """The kind and the name of the object that the event is about."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    return str(about.get("kind")), str(about.get("name"))


def has_all_replicas(owner: Object) -> bool:
    """Whether a ReplicaSet or StatefulSet has as many Pods as it is to have: what was refused it is there by now."""
    wanted = (owner.get("spec") or {}).get("replicas")
    return wanted is not None and ((owner.get("status") or {}).get("replicas") or 0) >= wanted
