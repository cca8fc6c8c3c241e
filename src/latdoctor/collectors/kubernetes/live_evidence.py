"""The artifacts of a workload as evidence: what is over is left out, and the rest is read as kubectl's output is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.objects import read_object
from latdoctor.collectors.documents.kubernetes.rollouts import put_rollouts
from latdoctor.collectors.documents.text_format import Section
from latdoctor.collectors.kubernetes import NAME, accelerators
from latdoctor.collectors.kubernetes.cpu_evidence import cpu_evidence, is_counters
from latdoctor.collectors.kubernetes.node_clocks import Clocks, by_one_clock, clocks_of
from latdoctor.collectors.kubernetes.pod_page_address import page_of
from latdoctor.collectors.kubernetes.present_state import present
from latdoctor.collectors.prometheus.scrape import parse_target
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Subject
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean
from latdoctor.units import format_value

SCOPE = "scope"
# What an object of another shape than the API's raises: an artifact may be damaged, and a server no API server.
MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
NODE_EVENTS = "nodes' events"
_MOST_BYTES = 256 << 20
# What the control plane and the kubelet always report of a workload whose fault it is. Other events need extensions of
# the cluster, or come minutes after a fault (an eviction): that there is none says nothing.
_ALWAYS_REPORTED = (
    "kube.admission_failed",
    "kube.crash_loop",
    "kube.create_refused",
    "kube.image_pull_failed",
    "kube.probe_failed",
    "kube.probe_kill",
    "kube.rollout_stalled",
    "kube.scaling_limited",
    "kube.scaling_metric_failed",
    "kube.start_failed",
    "kube.unschedulable",
    "kube.volume_failed",
)


class Scope(Struct, frozen=True):
    """Which workload was read, of which cluster; `kind` and `name` are empty for a whole namespace.

    `whole`: the lists that were read to their end. `ahead`: seconds that the API server's clock is ahead of the one by
    which they were read.
    """

    cluster: str
    namespace: str
    kind: str = ""
    name: str = ""
    whole: tuple[str, ...] = ()
    ahead: float = 0.0


class _List(Struct, frozen=True):
    items: list[dict[str, Any]] = []


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """The evidence of one group. Raises SourceError for a damaged artifact."""
    scope = Scope("", "")
    lists: dict[str, tuple[Artifact, list[dict[str, Any]]]] = {}
    offered: Artifact | None = None
    counters = [one for one in artifacts if is_counters(one)]
    for artifact in artifacts:
        if artifact in counters:
            continue
        part = artifact.source.rpartition("/")[2]
        try:
            if part == SCOPE:
                scope = msgspec.json.decode(artifact.read(_MOST_BYTES), type=Scope)
            elif part == accelerators.PART:
                offered = artifact
            else:
                lists[part] = artifact, msgspec.json.decode(artifact.read(_MOST_BYTES), type=_List).items
        except msgspec.MsgspecError as error:
            raise SourceError(f"is no list of objects: {error}", where=artifact.source) from error
    try:
        found = _of_objects(lists, max(artifact.taken_at for artifact in artifacts), scope)
    except MALFORMED as error:
        raise SourceError(f"an object is damaged: {error!r}"[:200], where=artifacts[0].source) from error
    free = _accelerators(offered, scope) if offered else Evidence()
    throttling = cpu_evidence(counters, scope.cluster)
    return Evidence.merge([found, free, throttling, _searched(scope)])


def _of_objects(lists: Mapping[str, tuple[Artifact, list[dict[str, Any]]]], now: float, scope: Scope) -> Evidence:
    """Raises SourceError, and what an object of another shape than the API's raises."""
    raw = {part: items for part, (_, items) in lists.items()}
    clocks = clocks_of(raw, now, scope.ahead)
    shown = present(by_one_clock(raw, clocks), now)
    parts = [_of_list(lists[part][0], items, scope) for part, items in shown.items()]
    rollouts = _rollouts(lists, shown, scope)
    pages = _pages(lists["pods"][0], shown["pods"], scope) if "pods" in lists else Evidence()
    return Evidence.merge([*parts, rollouts, pages, _of_clocks(clocks, lists, scope)])


def _of_clocks(clocks: Clocks, lists: Mapping[str, tuple[Artifact, Any]], scope: Scope) -> Evidence:
    """Which clocks disagree; the times of the evidence are moved to that of the machine that collected them."""
    if not clocks.server and not clocks.nodes:
        return Evidence()
    artifact = next(iter(lists.values()))[0]
    gathered = _gathered(artifact, scope)
    gaps = []
    if clocks.server:
        gaps.append(_moved_times("the clock of the API server", clocks.server, "this machine's", artifact))
    for node, ahead in clocks.nodes.items():
        gathered.reading("host.clock.offset", gathered.node(node), ahead, 0, note="at least", place=node)
        gaps.append(_moved_times(f"the clock of node {clean(node, 100)}", ahead, "the API server's", artifact))
    return structs.replace(gathered.evidence(), gaps=tuple(gaps))


def _moved_times(what: str, ahead: float, other: str, artifact: Artifact) -> Gap:
    amount = format_value(abs(ahead), "time")
    reason = (
        f"{what} is at least {amount} {'ahead of' if ahead > 0 else 'behind'} {other}: its times are corrected by that"
    )
    return Gap(
        NAME, reason, next_step="check its NTP: timedatectl", origin=Origin(artifact.name), code=GapCode.INCONSISTENT
    )


def _of_list(artifact: Artifact, items: Sequence[Mapping[str, Any]], scope: Scope) -> Evidence:
    gathered = _gathered(artifact, scope)
    try:
        read_object(gathered, {"items": list(items)}, 0)
    except ValueError as error:
        raise SourceError(f"an object of it is damaged: {error}", where=artifact.source) from error
    found = gathered.evidence()
    return structs.replace(found, gaps=tuple(structs.replace(one, source=NAME) for one in found.gaps))


def _gathered(artifact: Artifact, scope: Scope) -> Gathered:
    command = f"kubectl --context {scope.cluster} -n {scope.namespace} get"
    return Gathered(Section("", 1, artifact.name, artifact.source, artifact.taken_at, command=command))


def _rollouts(
    lists: Mapping[str, tuple[Artifact, Any]], shown: Mapping[str, Sequence[Mapping[str, Any]]], scope: Scope
) -> Evidence:
    """The rollouts, for which a workload, its sets and its Pods are read together."""
    artifact = next((lists[part][0] for part in ("deployments", "statefulsets") if part in lists), None)
    if artifact is None:
        return Evidence()
    gathered = _gathered(artifact, scope)
    put_rollouts(gathered, [one for items in shown.values() for one in items], 0)  # each was read before
    return gathered.evidence()


def _accelerators(artifact: Artifact, scope: Scope) -> Evidence:
    gathered = _gathered(artifact, scope)
    try:
        accelerators.put_accelerators(gathered, artifact.read(_MOST_BYTES), f"cluster/{scope.cluster}")
    except ValueError as error:
        raise SourceError(f"is damaged: {error}", where=artifact.source) from error
    return gathered.evidence()


def _pages(artifact: Artifact, pods: Sequence[Mapping[str, Any]], scope: Scope) -> Evidence:
    """That the server of a metrics page is a part of its Pod."""
    gathered = _gathered(artifact, scope)
    found = []
    for one in pods:
        metadata, spec = one["metadata"], one.get("spec") or {}
        if page := page_of(one):
            pod = gathered.pod(metadata.get("namespace", ""), metadata["name"], spec.get("nodeName") or "")
            found.append(Subject(f"server/{parse_target(page).name}", pod))
    return Evidence(subjects=tuple(found))


def _searched(scope: Scope) -> Evidence:
    """That a complete list of events was searched: what is not among them did not happen to any of the objects."""
    return Evidence(looked=tuple((signal, f"cluster/{scope.cluster}") for signal in _looked(scope)))


def _looked(scope: Scope) -> Iterator[str]:
    if "events" in scope.whole:
        yield from _ALWAYS_REPORTED
    if "pods" in scope.whole:
        yield "kube.container_ended"
    if NODE_EVENTS in scope.whole:
        yield "kube.node_not_ready"
