"""The key numbers of a cluster: pods ready, restarts, nodes ready, and how far the autoscalers are from their maximum.

Each source (a file, a page) lists the pods of its own; the source that lists most counts, since two of them may list
the same pods. Those of named clusters are others, and count together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.result import Vital
from latdoctor.evidence.model import Evidence, Value
from latdoctor.evidence.subject_branch import cluster_of

# Flags of which it is said how many of all subjects have them: "3 of 4".
_COUNTED = ("pod.ready", "node.ready")
_RESTARTS = ("pod.restarts", "container.restarts")
_READY, _DESIRED = "workload.replicas_ready", "workload.replicas_desired"
_RATIO = "hpa.metric_ratio"
_LIMITS = ("container.memory.limit", "container.cpu.limit")
_FREE, _THERE = "cluster.gpus_free", "cluster.gpus_allocatable"
_GPUS = ("node.gpus_allocatable", "node.gpus_requested")
# Events, and the first of their fields that say what they are about.
_EVENTS = {
    "kube.container_ended": ("reason", "exit_code"),
    "kube.probe_failed": ("probe", "why"),
}
_MEMORY_USED = "container.memory.used"
_OOM_KILLED = "OOMKilled"  # listed as trouble, by name
# Why no node fits a pod, behind "no node".
_UNFIT = {
    "insufficient": "has enough {}",
    "taint": "without a taint",
    "affinity": "matches the affinity or selector",
    "volume": "can have the volume",
    "cordoned": "takes new pods",
    "pods": "has room for another pod",
    "no-node": "is available",
    "quota": "within the quota",
    "other": "fits a pod",
}
_USED = (
    "node.memory.used_ratio",
    "node.cpu.used_ratio",
    "node.memory.requested_ratio",
    "node.cpu.requested_ratio",
    "container.memory.used",
    "pod.memory.used",
    "container.cpu.used",
    "container.oom_kills",
)


def cluster_vitals(evidence: Evidence) -> Iterator[Vital]:
    """Pods and nodes ready of those listed, restarts, replicas of workloads and of autoscalers."""
    for signal in _COUNTED:
        found = _largest_source(evidence, signal)
        if found:
            ready = sum(found.values())
            yield Vital(signal, _only(found), ready, f"{ready:.0f} of {len(found)}")
    pending = _largest_source(evidence, "pod.pending")
    if pending and not any(pending.values()) and not evidence.readings_by_signal.get("pod.ready"):
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
    yield from _unschedulable(evidence)
    yield from _last_events(evidence)
    yield from _resources(evidence)
    yield from _taints(evidence)


def _free_gpus(evidence: Evidence) -> Iterator[Vital]:
    """What is free of each kind of accelerator: `0 of 6 nvidia.com/gpu`."""
    there = {one.labels: one.value for one in evidence.readings_by_signal.get(_THERE, ())}
    for one in evidence.readings_by_signal.get(_FREE, ()):
        of, name = there.get(one.labels), dict(one.labels).get("resource", "")
        if of and not isinstance(one.value, str):
            yield Vital(_FREE, one.subject, one.value, f"{one.value:g} of {of:g} {name}", name)


def _unschedulable(evidence: Evidence) -> Iterator[Vital]:
    """Why no node fits a pod, by the newest event."""
    found = evidence.events_by_signal.get("kube.unschedulable", ())
    if found:
        newest = max(found, key=lambda one: one.time if one.time is not None else math.inf)
        resource = newest.fields.get("resource", "")
        words = _UNFIT["insufficient" if resource else str(newest.fields.get("why", "other"))]
        yield Vital("kube.unschedulable", newest.subject, float(len(found)), words.format(resource))


def _taints(evidence: Evidence) -> Iterator[Vital]:
    """The taints of the one node that is shown; those of many nodes are too much for a line."""
    nodes = {one.subject for one in evidence.readings_by_signal.get("node.ready", ())}
    for one in evidence.readings_by_signal.get("node.taints", ()):
        if len(nodes | {one.subject}) == 1:
            yield Vital(one.signal, one.subject, one.value, str(one.value))


def _last_events(evidence: Evidence) -> Iterator[Vital]:
    """What the newest event of each kind is about: why a container ended, what no node has."""
    for signal, fields in _EVENTS.items():
        found = evidence.events_by_signal.get(signal, ())
        if not found:
            continue
        newest = max(found, key=lambda one: one.time if one.time is not None else math.inf)
        if newest.fields.get("reason") == _OOM_KILLED:
            continue
        said = [_shown(newest.fields[name]) for name in fields if name in newest.fields]
        if said:
            yield Vital(signal, newest.subject, float(len(found)), " ".join(said))


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _resources(evidence: Evidence) -> Iterator[Vital]:
    """What is used most of, the smallest limits of the containers, GPUs of all nodes."""
    for signal in _USED:
        values = _values(evidence, signal)
        if values and not (signal == _MEMORY_USED and "cgroup.memory.used_ratio" in evidence.readings_by_signal):
            limit = f"{signal.removesuffix('.used')}.limit"
            subject, share = _fullest(values, _values(evidence, limit))
            yield Vital(signal, subject, values[subject], f"{show(signal, values[subject])}{share}")
    ratios = [one for one in evidence.readings_by_signal.get("quota.used_ratio", ()) if not isinstance(one.value, str)]
    if ratios:
        fullest = max(ratios, key=lambda one: float(one.value))
        if float(fullest.value) < 1:  # else listed as trouble
            yield Vital(fullest.signal, fullest.subject, fullest.value, show(fullest.signal, fullest.value))
    for signal in _LIMITS:
        values = _values(evidence, signal)
        if values:
            subject = min(values, key=lambda one: values[one])
            yield Vital(signal, subject, values[subject], show(signal, values[subject]))
    yield from _free_gpus(evidence)
    for signal in _GPUS if _FREE not in evidence.readings_by_signal else ():
        found = _largest_source(evidence, signal)
        if found:
            yield Vital(signal, _only(found), sum(found.values()), f"{sum(found.values()):.0f}")


def _fullest(used: Mapping[str, float], limits: Mapping[str, float]) -> tuple[str, str]:
    """The subject that is nearest to its limit, with the share: ` (97 % of its limit)`; else that which uses most.

    What is used and what may be used come from two outputs of kubectl: the names of their files are left out.
    """
    most = {subject.rpartition("@")[0] or subject: limit for subject, limit in limits.items() if limit > 0}
    shares = {
        subject: value / most[name]
        for subject, value in used.items()
        if (name := subject.rpartition("@")[0] or subject) in most
    }
    if not shares:
        return max(used, key=lambda one: used[one]), ""
    subject = max(shares, key=lambda one: shares[one])
    return subject, f" ({shares[subject]:.0%} of its limit)".replace("%", " %")


def _of_target(evidence: Evidence, now: str, most: str) -> Iterator[Vital]:
    """`6 of 6`, of the subject that lacks most, or is nearest to its limit."""
    values, limits = _values(evidence, now), _values(evidence, most)
    known = {subject: (value, limits[subject]) for subject, value in values.items() if limits.get(subject)}
    if not known:
        return
    at_limit = max if now.startswith("hpa.") else min
    subject = at_limit(known, key=lambda one: known[one][0] / known[one][1])
    value, limit = known[subject]
    if now == _READY and value < limit:
        return  # listed as trouble, by name
    yield Vital(now, subject, value, f"{value:.0f} of {limit:.0f}")


def _largest_source(evidence: Evidence, signal: str) -> Mapping[str, float]:
    """Of each cluster that is named, all that is known; of what names none, the source that lists most."""
    sources: dict[str, dict[str, float]] = {}
    clusters: dict[str, float] = {}
    for subject, value in _values(evidence, signal).items():
        if cluster_of(evidence, subject):
            clusters[subject] = value
        else:
            sources.setdefault(subject.rpartition("@")[2], {})[subject] = value
    return clusters or max(sources.values(), key=len, default={})


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
