"""What is over is not the present: old events, ends of containers long ago, and Pods that are leaving as they should.

The API server keeps events for an hour and the last end of a container for ever. A person who asks why a service is
slow now must not be answered with a restart of last week, nor one who asks since when with an earlier incident.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from latdoctor.collectors.documents.kubernetes.event_kinds import probe_failure
from latdoctor.collectors.documents.kubernetes.quantities import moment
from latdoctor.collectors.kubernetes.present_conditions import (
    Named,
    bad_since,
    by_name,
    has_all_replicas,
    subject_of,
)

Object = Mapping[str, Any]
EVENTS_FOR = 900.0  # seconds; a crash loop and the scheduler report at least every five minutes
ENDS_FOR = 3600.0  # seconds since a container ended, or a Pod failed
_EVENTS = "events"  # the end of the names of parts with events
_CHANGES = frozenset({"ScalingReplicaSet", "SuccessfulRescale", "DeploymentRollback"})  # changes of the last hour
# Of a Pod that is gone: why it was taken away.
_OF_FORMER = frozenset(
    {"Evicted", "TaintManagerEviction", "EvictedByVPA", "Preempted", "Preempting", "NodeControllerEviction"}
)


def present(parts: Mapping[str, Sequence[Object]], now: float) -> dict[str, list[Object]]:
    """The objects by part, less what is over; `now` in unix seconds."""
    lost = {one["metadata"]["name"] for one in parts.get("nodes", ()) if not _is_ready(one)}
    found = {part: list(objects) for part, objects in parts.items()}
    if "pods" in found:
        found["pods"] = [_without_old_ends(one, now) for one in found["pods"] if _counts(one, lost, now)]
    named = by_name(one for part, objects in found.items() if not part.endswith(_EVENTS) for one in objects)
    for part, objects in found.items():
        if part.endswith(_EVENTS):  # of the workload, and of nodes
            first = _first_times(objects)
            recent = (one for one in objects if _is_recent(one, now) and not _is_settled(one, named, now))
            dated = (_dated(one, first[_series_of(one)], named) for one in recent)
            found[part] = [one for one in dated if one is not None]
    return found


def _dated(event: Object, first: str, named: Named) -> Object | None:
    """The event, begun no earlier than the present condition of its object; None for one of an earlier condition."""
    since, began, last = bad_since(event, named), moment(first), _last_time(event)
    if since is None or began is None or began >= since:
        return {**event, "firstTimestamp": first}
    if last is not None and last < since:
        return None
    return {**event, "firstTimestamp": datetime.fromtimestamp(since, UTC).isoformat()}


def _first_times(events: Sequence[Object]) -> dict[tuple[str, ...], str]:
    """When an event of each reason and object first happened: what goes on writes new ones, with other details."""
    found: dict[tuple[str, ...], str] = {}
    for one in events:
        stamp = str(one.get("firstTimestamp") or one.get("eventTime") or one["metadata"].get("creationTimestamp") or "")
        key = _series_of(one)
        found[key] = min(stamp, found.get(key) or stamp)
    return found


def _series_of(event: Object) -> tuple[str, ...]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return *subject_of(event), str(about.get("fieldPath")), str(event.get("reason"))


def is_leaving(pod: Object) -> bool:
    """Whether the Pod was deleted and has not ended yet."""
    return "deletionTimestamp" in pod["metadata"]


def _counts(pod: Object, lost: set[str], now: float) -> bool:
    """A Pod that is leaving counts only where its node is lost, and an ended one only for a while."""
    if is_leaving(pod):
        return pod.get("spec", {}).get("nodeName") in lost
    if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
        changed = max(_changes(pod), default=now)
        return now - changed <= ENDS_FOR
    return True


def _changes(pod: Object) -> Iterator[float]:
    """The times at which its status changed."""
    stamps = [one.get("lastTransitionTime") for one in pod["status"].get("conditions") or ()]
    stamps += [one.get("time") for one in pod["metadata"].get("managedFields") or ()]
    stamps.append(pod["status"].get("startTime"))
    yield from (time for stamp in stamps if stamp and (time := moment(stamp)) is not None)


def _without_old_ends(pod: Object, now: float) -> Object:
    status = dict(pod.get("status") or {})
    for name in ("containerStatuses", "initContainerStatuses"):
        if name in status:
            status[name] = [_without_old_end(one, now) for one in status[name] or ()]
    return {**pod, "status": status}


def _without_old_end(container: Object, now: float) -> Object:
    ended = (container.get("lastState") or {}).get("terminated")
    finished = moment(ended.get("finishedAt") or "") if ended else None
    if finished is None or now - finished <= ENDS_FOR:
        return container
    return {key: value for key, value in container.items() if key != "lastState"}


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)


def _is_recent(event: Object, now: float) -> bool:
    last = _last_time(event)
    kept = ENDS_FOR if event.get("reason") in _CHANGES else EVENTS_FOR
    return last is None or now - last <= kept


def _is_settled(event: Object, named: Named, now: float) -> bool:
    """Whether what it reports is over: its Pod is gone or became ready, or all Pods that were refused are there."""
    kind, name = subject_of(event)
    about = named.get((kind, name))
    if event.get("reason") == "FailedCreate":
        return about is not None and has_all_replicas(about)
    if kind != "Pod":
        return False
    if about is None:
        return event.get("reason") not in _OF_FORMER
    if event.get("reason") != "Unhealthy" or _restarts(about):
        return False
    if probe_failure(str(event.get("message"))).get("probe") == "startup" and _may_still_start(about, now):
        return True
    ready, last = _ready_since(about), _last_time(event)
    return ready is not None and last is not None and last <= ready


def _may_still_start(pod: Object, now: float) -> bool:
    """Whether the failures of its startup probes are those that they allow: the servers are not up yet."""
    allowed = [_allowed(one.get("startupProbe") or {}) for one in pod["spec"].get("containers") or ()]
    started = [
        moment((one.get("state") or {}).get("running", {}).get("startedAt") or "")
        for one in pod["status"].get("containerStatuses") or ()
    ]
    return all(since is None or now - since <= max(allowed) for since in started)


def _allowed(probe: Object) -> float:
    """Seconds from a container's start in which the failures of its startup probe have no consequence."""
    period, failures = probe.get("periodSeconds") or 10.0, probe.get("failureThreshold") or 3.0
    return float((probe.get("initialDelaySeconds") or 0.0) + failures * (period + (probe.get("timeoutSeconds") or 1.0)))


def _restarts(pod: Object) -> float:
    return sum(one.get("restartCount") or 0 for one in pod["status"].get("containerStatuses") or ())


def _ready_since(pod: Object) -> float | None:
    conditions = pod["status"].get("conditions") or ()
    stamps = (one.get("lastTransitionTime") for one in conditions if (one["type"], one["status"]) == ("Ready", "True"))
    return moment(next(stamps, None) or "")


def _last_time(event: Object) -> float | None:
    series = event.get("series") or {}
    stamps = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((time for stamp in stamps if stamp and (time := moment(stamp)) is not None), None)
