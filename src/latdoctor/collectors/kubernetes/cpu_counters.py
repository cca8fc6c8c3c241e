"""CPU throttling of containers with a CPU limit: the counters of cAdvisor in the kubelet of their nodes.

They are read through the API server (`nodes/NODE/proxy/metrics/cadvisor`) at the beginning and at the end of the
window: what grew in between is the present. Only the lines of the workload's own Pods are kept. A limit without the
counters says nothing of throttling.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from latdoctor.background import run_concurrently
from latdoctor.cluster_api import FORBIDDEN, ApiError, ClusterApi
from latdoctor.collectors.base import Clock, CollectResult
from latdoctor.collectors.kubernetes import NAME
from latdoctor.collectors.kubernetes.api_reads import Object, Read
from latdoctor.collectors.kubernetes.failed_reads import gap_of
from latdoctor.collectors.kubernetes.resources import CPU_COUNTERS, NODE_PROXY
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Gap
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

PART = "cpu-counters"
ROLE = "latdoctor-node-metrics"  # the ClusterRole in deploy/kubernetes/node-metrics.yaml
MOST_NODES = 8
_AT_ONCE = 4
_REFRESH = 5.0  # seconds until a page is read again whose counters have not moved: cAdvisor takes up to 15 s
_FAMILIES = rb"container_cpu_cfs_(?:throttled_)?periods_total|container_cpu_cfs_throttled_seconds_total"
_LINE = re.compile(rb"^(?:" + _FAMILIES + rb"|container_spec_cpu_(?:quota|period))\{([^}]*)\} .*$", re.MULTILINE)
_COUNTED = re.compile(rb"^container_cpu_cfs_periods_total\{.*$", re.MULTILINE)
_LABEL = re.compile(rb'(?:^|,)(namespace|pod)="([^"]*)"')
_STEP = f"bind the ClusterRole {ROLE} (deploy/kubernetes/node-metrics.yaml), or add --prometheus URL"


@dataclass(frozen=True, slots=True)
class LimitedPods:
    """The Pods of a workload with a CPU limit: their namespaces and names by node. `group`: of the artifacts."""

    group: str
    workload: str
    by_node: Mapping[str, frozenset[tuple[str, str]]]


def limited_pods(group: str, workload: str, pods: Iterable[Object]) -> LimitedPods:
    by_node: dict[str, set[tuple[str, str]]] = {}
    for pod in pods:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        if spec.get("nodeName") and any(map(_has_cpu_limit, spec.get("containers") or ())):
            own = (str(metadata.get("namespace")), str(metadata["name"]))
            by_node.setdefault(str(spec["nodeName"]), set()).add(own)
    return LimitedPods(group, workload, {node: frozenset(found) for node, found in sorted(by_node.items())})


def _has_cpu_limit(container: Object) -> bool:
    return "cpu" in ((container.get("resources") or {}).get("limits") or {})


@dataclass(slots=True)
class _NodePages:
    """The pages of a node so far, as time and content."""

    limited: LimitedPods
    node: str
    pages: list[tuple[float, bytes]]


def read_cpu_counters(api: ClusterApi, limited: Sequence[LimitedPods], window: float, clock: Clock) -> CollectResult:
    """Two pages of each node, or more; takes the window where any can be read."""
    known = [_NodePages(one, node, []) for one in limited for node in one.by_node]
    gaps = [_left_out(len(known))] if len(known) > MOST_NODES else []
    failures: dict[str, ApiError] = {}
    watched = _read(api, known[:MOST_NODES], clock, failures)
    if watched:
        clock.sleep(window)
        until = time.monotonic() + 2 * _REFRESH
        pending = _read(api, watched, clock, failures)
        while (pending := [one for one in pending if not _moved(one)]) and time.monotonic() < until:
            clock.sleep(_REFRESH)
            pending = _read(api, pending, clock, failures)
    gaps.extend(_failed(failures))
    return CollectResult(tuple(one for node in watched for one in _artifacts(node)), tuple(gaps))


def _read(
    api: ClusterApi, nodes: Sequence[_NodePages], clock: Clock, failures: dict[str, ApiError]
) -> list[_NodePages]:
    """The nodes whose page could be read and shows the Pods; it is added to theirs."""
    calls = [partial(_page, api, one.node) for one in nodes]
    found: list[_NodePages] = []
    for one, page in zip(nodes, run_concurrently(calls, _AT_ONCE, "latdoctor-cadvisor"), strict=True):
        if isinstance(page, ApiError):
            failures[one.node] = page
        elif lines := own_lines(page, one.limited.by_node[one.node]):
            one.pages.append((clock.now(), lines))
            found.append(one)
    return found


def _page(api: ClusterApi, node: str) -> bytes | ApiError:
    try:
        return api.content(f"/api/v1/nodes/{node}/proxy/metrics/cadvisor")
    except ApiError as error:
        return error


def own_lines(page: bytes, pods: frozenset[tuple[str, str]]) -> bytes:
    """The lines about CPU limits of these Pods, each a namespace and a name."""
    return b"".join(found[0] + b"\n" for found in _LINE.finditer(page) if _pod_of(found[1]) in pods)


def _pod_of(labels: bytes) -> tuple[str, str]:
    found = {name: value.decode(errors="replace") for name, value in _LABEL.findall(labels)}
    return found.get(b"namespace", ""), found.get(b"pod", "")


def _moved(one: _NodePages) -> bool:
    """Whether the counters, or their times, differ from those of the beginning."""
    first, last = (_COUNTED.findall(content) for _, content in (one.pages[0], one.pages[-1]))
    return bool(first != last)


def _artifacts(one: _NodePages) -> Iterator[Artifact]:
    """The first and the last page."""
    pages = one.pages[:1] + one.pages[1:][-1:]
    for number, (at, content) in enumerate(pages):
        part = f"{PART} {one.node} {number}"
        name = f"{NAME}/{one.limited.group}-{re.sub(r'[^a-z0-9.]+', '-', part)}.prom"
        yield Artifact(name, NAME, one.limited.group, f"{one.limited.workload}/{part}", at, content)


def _failed(failures: Mapping[str, ApiError]) -> Iterator[Gap]:
    """One gap of the nodes whose pages could not be read; all of them are refused alike."""
    for node, error in failures.items():
        gap = gap_of(error, Read(NODE_PROXY, "", node))
        step = _STEP if error.status == FORBIDDEN else "check the kubelet of the node, or add --prometheus URL"
        more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
        yield structs.replace(gap, reason=f"node {clean(node, 100)}{more}: {gap.reason}", next_step=step)
        return


def _left_out(nodes: int) -> Gap:
    reason = f"CPU throttling: the pages of {nodes - MOST_NODES} nodes are left out: at most {MOST_NODES} are read"
    return Gap(NAME, reason, CPU_COUNTERS, next_step="add --prometheus URL, which scrapes all", code=GapCode.TOO_LARGE)
