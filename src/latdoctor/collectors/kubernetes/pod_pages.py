"""The metrics pages of a workload's Pods: where each Pod says that it is, and what becomes of it while it is observed.

Only ready Pods are asked: one that starts, or is leaving, does not answer by design. A page that was found here is no
promise of its owner, so that one that does not answer is a gap and no outage; nor is one whose Pod was taken away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from latdoctor.cluster_api import ApiError, ClusterApi, Limits
from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.kubernetes import NAME, resources
from latdoctor.collectors.kubernetes.api_reads import ApiReader, Objects, Read, groups_of
from latdoctor.collectors.kubernetes.found_workload import find
from latdoctor.collectors.kubernetes.live_evidence import MALFORMED
from latdoctor.collectors.kubernetes.pod_page_address import Pod, page_of
from latdoctor.collectors.kubernetes.present_state import is_leaving
from latdoctor.collectors.kubernetes.workload_name import parse_workload
from latdoctor.collectors.prometheus.scrape import MAX_SERVERS, is_last_before_outage, kept_open, parse_target
from latdoctor.errors import OperationError
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Gap
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import counted

MOST_PAGES = 16
_PATIENCE = 2  # response time-outs in all
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PodPages:
    """The addresses of pages, and a gap for what is left out."""

    urls: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class _ReadyPod:
    """The set that a Pod is of, and the address of its page (empty: none is known)."""

    set: str
    page: str


def with_pages(request: CollectRequest) -> tuple[CollectRequest, tuple[Gap, ...]]:
    """The request with the pages of its workloads' Pods, where no page is named; why there are none is a gap."""
    if request.kubernetes is None or request.servers or request.metrics:
        return request, ()
    pods = _ready_pods(request)
    if pods is None:  # the collector of the workload says why
        return request, ()
    found = _chosen(pods)
    return replace(request, found_servers=found.urls), found.gaps


def _chosen(pods: Sequence[_ReadyPod]) -> PodPages:
    """Pages of Pods of all sets in turn, so that each revision is among them."""
    by_set: dict[str, list[str]] = {}
    for one in pods:
        if one.page:
            by_set.setdefault(one.set, []).append(one.page)
    longest = max(map(len, by_set.values()), default=0)
    pages = [found[place] for place in range(longest) for found in by_set.values() if place < len(found)]
    if not pages and pods:
        reason = f"no metrics page is known of the {counted(len(pods), 'ready Pod')}"
        step = "name the port metrics, annotate the Pods (prometheus.io/port), or add --server URL"
        return PodPages((), (Gap(NAME, reason, next_step=step, code=GapCode.ABSENT),))
    if len(pages) <= MOST_PAGES:
        return PodPages(tuple(pages))
    reason = f"the pages of {len(pages) - MOST_PAGES} Pods are left out: at most {MOST_PAGES} are read"
    gap = Gap(NAME, reason, next_step="use --prometheus URL, which scrapes all", code=GapCode.TOO_LARGE)
    return PodPages(tuple(pages[:MOST_PAGES]), (gap,))


assert MOST_PAGES <= MAX_SERVERS


def _is_ready(pod: Pod) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return not is_leaving(pod) and any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _ready_pods(request: CollectRequest) -> list[_ReadyPod] | None:
    """The ready Pods of the workloads; None where they cannot be read."""
    assert request.kubernetes is not None
    try:
        api = ClusterApi(request.kubernetes.login, Limits(request.timeout, request.timeout, _MOST_BYTES))
    except (OperationError, ImportError):
        return None
    try:
        reader = ApiReader(api, time.monotonic() + _PATIENCE * request.timeout, groups_of(api))
        pods = (pod for name in request.kubernetes.names for pod in _of_workload(reader, name))
        return [_ReadyPod(str(one["metadata"].get("generateName")), page_of(one)) for one in pods if _is_ready(one)]
    except (ApiError, *MALFORMED):  # the collector of the workload says why
        return None
    finally:
        api.close()


def _of_workload(reader: ApiReader, text: str) -> Iterator[Pod]:
    """Raises ApiError."""
    name = parse_workload(text)
    workload = find(reader, name, "").workload
    if workload is None:
        return
    query = {"labelSelector": workload.selector} if workload.selector else {}
    (answer,) = reader.read([Read(resources.PODS, name.namespace, workload.pod, query)])
    if not isinstance(answer, Objects):
        raise answer
    yield from answer.found


def without_ended_pods(bundle: Bundle, request: CollectRequest) -> Bundle:
    """The bundle, where pages of found Pods that stopped because the Pod was taken away count as read to their end."""
    found = {parse_target(url).display for url in request.found_servers}
    stopped = {one.source: one.name for one in bundle.artifacts if is_last_before_outage(one) and one.source in found}
    pods = _ready_pods(request) if stopped else None
    if pods is None:
        return bundle
    there = {parse_target(one.page).display for one in pods if one.page}
    ended = {name: page for page, name in stopped.items() if page not in there}
    return replace(
        bundle,
        artifacts=tuple(kept_open(one) if one.name in ended else one for one in bundle.artifacts),
        gaps=tuple(_of_ended(one, ended) for one in bundle.gaps),
    )


def _of_ended(gap: Gap, ended: Mapping[str, str]) -> Gap:
    """`ended`: the pages of Pods that are gone, by the name of the last artifact of each."""
    page = ended.get(gap.origin.artifact, "") if gap.origin and gap.code == GapCode.STOPPED else ""
    reason = f"{page} was read until its Pod left the service within the window"
    return Gap(gap.source, reason, code=GapCode.STOPPED) if page else gap
