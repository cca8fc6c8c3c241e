"""Rollouts: which revision each Pod is of, since when the newest one is there, and how Pods of it fare beside others.

The revision of a Deployment is that of its ReplicaSet. An undo makes an old set the newest again, which keeps the time
of its creation: then the template's last change dates the rollout, by the fields that a client set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from latdoctor.collectors.documents.kubernetes.containers import CRASH_LOOP, IMAGE_REASONS, START_REASONS
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.quantities import moment
from latdoctor.collectors.documents.kubernetes.schema import ContainerStatus, Meta, Pod, PodStatus, Workload
from latdoctor.evidence.model import Value
from latdoctor.kubernetes_quantity import quantity

Raw = Mapping[str, Any]
_REVISION = "deployment.kubernetes.io/revision"
_HASH = "controller-revision-hash"
_BAD = frozenset({CRASH_LOOP}) | IMAGE_REASONS | START_REASONS


@dataclass(slots=True)
class _Revision:
    """A revision of a workload with its Pods; `since`: when its set was created, unix seconds."""

    number: float
    name: str
    since: float | None = None
    pods: list[Pod] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Rollout:
    """A workload and its revisions by the name of their set; `newest`: the name of that of its template."""

    kind: str
    workload: Workload
    revisions: Mapping[str, _Revision]
    newest: str


def put_rollouts(gathered: Gathered, objects: Sequence[Raw], line: int) -> None:
    """Add the rollouts of the workloads whose sets are among the objects."""
    by_kind: dict[str, list[Raw]] = {}
    for one in objects:
        by_kind.setdefault(str(one["kind"]), []).append(one)
    pods = [msgspec.convert(one, Pod, strict=False) for one in by_kind.get("Pod", ())]
    for rollout in (*_of_deployments(by_kind), *_of_stateful_sets(by_kind)):
        for pod in pods:
            revision = rollout.revisions.get(_set_of(pod, rollout.kind))
            if revision is not None:
                revision.pods.append(pod)
        _put(gathered, rollout, line)


def _of_deployments(by_kind: Mapping[str, Sequence[Raw]]) -> Iterator[_Rollout]:
    sets = [msgspec.convert(one, Workload, strict=False) for one in by_kind.get("ReplicaSet", ())]
    for raw in by_kind.get("Deployment", ()):
        found = msgspec.convert(raw, Workload, strict=False)
        own = [one for one in sets if _owner(one.metadata) == ("Deployment", found.metadata.name)]
        revisions = {one.metadata.name: _of_set(one.metadata) for one in own}
        numbered = {name: one for name, one in revisions.items() if one.number}
        if numbered:
            newest = max(numbered, key=lambda name: numbered[name].number)
            yield _Rollout("deployment", found, numbered, newest)


def _of_set(metadata: Meta) -> _Revision:
    text = (metadata.annotations or {}).get(_REVISION, "")
    number = float(text) if text.isdigit() and len(text) < 10 else 0.0
    return _Revision(number, metadata.name, moment(metadata.creation_timestamp or ""))


def _of_stateful_sets(by_kind: Mapping[str, Sequence[Raw]]) -> Iterator[_Rollout]:
    numbers = by_kind.get("ControllerRevision", ())
    for raw in by_kind.get("StatefulSet", ()):
        found = msgspec.convert(raw, Workload, strict=False)
        revisions: dict[str, _Revision] = {}
        for one in numbers:
            metadata = msgspec.convert(one.get("metadata") or {}, Meta, strict=False)
            if _owner(metadata) == ("StatefulSet", found.metadata.name):
                created = moment(metadata.creation_timestamp or "")
                number = quantity(one.get("revision")) or 0.0
                revisions[metadata.name] = _Revision(number, metadata.name, created)
        newest = (found.status.update_revision if found.status else "") or ""
        if newest in revisions:
            yield _Rollout("statefulset", found, revisions, newest)


def _owner(metadata: Meta) -> tuple[str, str]:
    owner = next((one for one in metadata.owner_references or () if one.controller), None)
    return (owner.kind, owner.name) if owner else ("", "")


def _set_of(pod: Pod, kind: str) -> str:
    """The name of the ReplicaSet or ControllerRevision that a Pod is of."""
    if kind == "deployment":
        owner, name = _owner(pod.metadata)
        return name if owner == "ReplicaSet" else ""
    return (pod.metadata.labels or {}).get(_HASH, "")


def _put(gathered: Gathered, rollout: _Rollout, line: int) -> None:
    metadata = rollout.workload.metadata
    subject = gathered.workload(rollout.kind, metadata.namespace or "", metadata.name)
    newest = rollout.revisions[rollout.newest]
    for revision in rollout.revisions.values():
        for pod in revision.pods:
            node = (pod.spec.node_name if pod.spec else "") or ""
            name = gathered.pod(pod.metadata.namespace or "", pod.metadata.name, node)
            labels = (("workload", f"{rollout.kind}/{metadata.name}"),)
            gathered.reading("pod.revision", name, revision.number, line, labels=labels, place=pod.metadata.name)
    place = metadata.name
    gathered.reading("rollout.revision", subject, newest.number, line, place=place)
    others = [one for one in rollout.revisions.values() if one is not newest]
    if not others:
        return  # nothing was rolled out yet
    since = _since(rollout, newest, others)
    if since is not None:
        age = max(0.0, gathered.taken_at - since)
        gathered.reading("rollout.age", subject, age, line, place=place)
        before = max(one.number for one in others)
        fields: dict[str, Value] = {
            "what": f"revision of {metadata.name}",
            "from": f"{before:.0f}",
            "to": f"{newest.number:.0f}",
        }
        gathered.event("change.deployment", subject, line, time=since, fields=fields, place=place)
    old = [pod for one in others for pod in one.pods]
    gathered.reading("rollout.old_pods", subject, float(len(old)), line, place=place)
    for signal, pods in (("rollout.failing_ratio", newest.pods), ("rollout.old_failing_ratio", old)):
        if pods:
            share = sum(map(_fails, pods)) / len(pods)
            gathered.reading(signal, subject, share, line, place=place)


def _since(rollout: _Rollout, newest: _Revision, others: Sequence[_Revision]) -> float | None:
    """When the newest revision became that, unix seconds."""
    if newest.since is not None and all(newest.since >= (one.since or 0.0) for one in others):
        return newest.since
    changed = max(_template_changes(rollout.workload.metadata), default=None)
    created = [time for pod in newest.pods if (time := moment(pod.metadata.creation_timestamp or "")) is not None]
    known = [time for time in (changed, *created) if time is not None]
    return min(known, default=None)


def _template_changes(metadata: Meta) -> Iterator[float]:
    """The times at which clients last set a part of the template."""
    for one in metadata.managed_fields or ():
        spec = (one.fields or {}).get("f:spec")
        time = moment(one.time or "")
        if isinstance(spec, Mapping) and "f:template" in spec and time is not None:
            yield time


def _fails(pod: Pod) -> bool:
    """Whether a container of the Pod cannot start, or ended and is not ready again."""
    status = pod.status or PodStatus()
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return any(_container_fails(one) for one in containers)


def _container_fails(status: ContainerStatus) -> bool:
    waiting = status.state.waiting if status.state else None
    if waiting and waiting.reason in _BAD:
        return True
    return bool(status.restart_count) and status.ready is False
