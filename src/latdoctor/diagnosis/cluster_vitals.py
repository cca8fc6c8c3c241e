"""The key numbers of a cluster: pods ready, restarts, nodes ready, and how far the autoscalers are from their maximum.

Each source (a file, a page) lists the pods of its own; the source that lists most counts, since two of them may list
the same pods.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.result import Vital
from latdoctor.evidence.model import Evidence, Value

# Flags of which it is said how many of all subjects have them: "3 of 4".
_COUNTED = ("pod.ready", "node.ready")
_RESTARTS = ("pod.restarts", "container.restarts")
_READY, _DESIRED = "workload.replicas_ready", "workload.replicas_desired"
_RATIO = "hpa.metric_ratio"
_LIMITS = ("container.memory.limit", "container.cpu.limit")
_GPUS = ("node.gpus_allocatable", "node.gpus_requested")
# Events, and the first of their fields that say what they are about.
_EVENTS = {
    "kube.container_ended": ("reason", "exit_code"),
    "kube.unschedulable": ("resource",),
    "kube.probe_failed": ("probe", "why"),
    "kube.evicted": ("resource",),
}


def cluster_vitals(evidence: Evidence) -> Iterator[Vital]:
    """Pods and nodes ready of those listed, restarts, replicas of workloads and of autoscalers."""
    for signal in _COUNTED:
        found = _largest_source(evidence, signal)
        if found:
            ready = sum(found.values())
            yield Vital(signal, _only(found), ready, f"{ready:.0f} of {len(found)}")
    pending = _largest_source(evidence, "pod.pending")
    if pending and not evidence.readings_by_signal.get("pod.ready"):
        yield Vital(
            "pod.pending", _only(pending), sum(pending.values()), f"{sum(pending.values()):.0f} of {len(pending)}"
        )
    for signal in _RESTARTS:
        found = _largest_source(evidence, signal)
        if found:
            total = sum(found.values())
            yield Vital("pod.restarts", _only(found), total, f"{total:.0f}")
            break
    yield from _of_target(evidence, "hpa.replicas", "hpa.replicas_max")
    if not evidence.readings_by_signal.get("pod.ready"):
        yield from _of_target(evidence, _READY, _DESIRED)
    ratios = [one for one in evidence.readings_by_signal.get(_RATIO, ()) if not isinstance(one.value, str)]
    if ratios:
        worst = max(ratios, key=lambda one: float(one.value))
        yield Vital(_RATIO, worst.subject, worst.value, show(_RATIO, worst.value))
    yield from _last_events(evidence)
    yield from _resources(evidence)


def _last_events(evidence: Evidence) -> Iterator[Vital]:
    """What the newest event of each kind is about: why a container ended, what no node has."""
    for signal, fields in _EVENTS.items():
        found = evidence.events_by_signal.get(signal, ())
        if not found:
            continue
        newest = max(found, key=lambda one: one.time if one.time is not None else math.inf)
        said = [_shown(newest.fields[name]) for name in fields if name in newest.fields]
        if said:
            yield Vital(signal, newest.subject, float(len(found)), " ".join(said))


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _resources(evidence: Evidence) -> Iterator[Vital]:
    """The smallest limits of the containers; GPUs of all nodes."""
    for signal in _LIMITS:
        values = _values(evidence, signal)
        if values:
            subject = min(values, key=lambda one: values[one])
            yield Vital(signal, subject, values[subject], show(signal, values[subject]))
    for signal in _GPUS:
        found = _largest_source(evidence, signal)
        if found:
            yield Vital(signal, _only(found), sum(found.values()), f"{sum(found.values()):.0f}")


def _of_target(evidence: Evidence, now: str, most: str) -> Iterator[Vital]:
    """`6 of 6`, of the subject that lacks most, or is nearest to its limit."""
    values, limits = _values(evidence, now), _values(evidence, most)
    known = {subject: (value, limits[subject]) for subject, value in values.items() if limits.get(subject)}
    if not known:
        return
    at_limit = max if now.startswith("hpa.") else min
    subject = at_limit(known, key=lambda one: known[one][0] / known[one][1])
    value, limit = known[subject]
    yield Vital(now, subject, value, f"{value:.0f} of {limit:.0f}")


def _largest_source(evidence: Evidence, signal: str) -> Mapping[str, float]:
    sources: dict[str, dict[str, float]] = {}
    for subject, value in _values(evidence, signal).items():
        sources.setdefault(subject.rpartition("@")[2], {})[subject] = value
    return max(sources.values(), key=len, default={})


def _values(evidence: Evidence, signal: str) -> dict[str, float]:
    return {
        one.subject: one.value
        for one in evidence.readings_by_signal.get(signal, ())
        if not isinstance(one.value, str) and not one.labels
    }


def _only(found: Mapping[str, float]) -> str:
    """The one subject; the kind of several."""
    first = next(iter(found))
    return first if len(found) == 1 else first.partition("/")[0]
