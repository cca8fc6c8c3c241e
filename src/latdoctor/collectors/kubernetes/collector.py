"""Collector of a workload's objects. Each kind of object is an artifact, a list in JSON like kubectl's.

The artifact `scope` of a group says which workload of which cluster it is, and which lists are complete.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import msgspec

from latdoctor.cluster_api import ApiError, ClusterApi, Limits
from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    SourceAvailability,
    SourceReader,
)
from latdoctor.collectors.kubernetes import NAME, accelerators, provided_signals, resources
from latdoctor.collectors.kubernetes.api_reads import ApiReader, Object, groups_of
from latdoctor.collectors.kubernetes.cpu_counters import LimitedPods, limited_pods, read_cpu_counters
from latdoctor.collectors.kubernetes.failed_reads import gap_of, is_fatal
from latdoctor.collectors.kubernetes.found_workload import find
from latdoctor.collectors.kubernetes.live_evidence import MALFORMED, SCOPE, Scope, parse
from latdoctor.collectors.kubernetes.workload_name import WorkloadName, parse_workload
from latdoctor.collectors.kubernetes.workload_objects import read_objects
from latdoctor.errors import OperationError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Gap
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

MOST_WORKLOADS = 8
MOST_BYTES = 64 << 20  # of one answer
_PATIENCE = 3  # response time-outs, after which what has not been answered is given up
_IN_POD = "in-cluster"


def _collect(request: CollectRequest, clock: Clock) -> CollectResult:
    assert request.kubernetes is not None
    wanted = request.kubernetes
    if find_spec("kubernetes") is None:
        return _nothing(
            "the package kubernetes is not installed", "pip install 'latdoctor[kubernetes]'", GapCode.ABSENT
        )
    try:
        api = ClusterApi(wanted.login, Limits(request.timeout, request.timeout, MOST_BYTES))
    except OperationError as error:
        listed = f": {', '.join(error.listed)}" if error.listed else ""
        return _nothing(clean(error.what, 300), f"{error.next_step}{listed}", GapCode.NOT_MATCHED)
    try:
        return _workloads(api, request, clock)
    except MALFORMED as error:
        reason = f"the API server {api.address} sent an object of another shape: {clean(repr(error), 100)}"
        return _nothing(reason, "check that it is an API server of Kubernetes", GapCode.UNREADABLE)
    finally:
        api.close()


def _nothing(reason: str, next_step: str, code: GapCode) -> CollectResult:
    hidden = tuple(sorted(provided_signals()))
    return CollectResult(gaps=(Gap(NAME, reason, hidden, next_step=next_step, code=code),))


def _workloads(api: ClusterApi, request: CollectRequest, clock: Clock) -> CollectResult:
    assert request.kubernetes is not None
    wanted = request.kubernetes
    deadline = time.monotonic() + _PATIENCE * request.timeout
    try:
        reader = ApiReader(api, deadline, groups_of(api))
    except ApiError as error:
        if is_fatal(error):
            from latdoctor.collectors.kubernetes.api_reads import Read
            from latdoctor.collectors.kubernetes.resources import Resource

            read = Read(Resource(f"the API server {api.address}", ""))
            return CollectResult(gaps=(gap_of(error, read, tuple(sorted(provided_signals()))),))
        reader = ApiReader(api, deadline)
    artifacts: list[Artifact] = []
    gaps: dict[Gap, None] = {}
    limited: list[LimitedPods] = []
    for number, text in enumerate(wanted.names[:MOST_WORKLOADS], 1):
        found = _workload(api, reader, parse_workload(text), number, clock, limited)
        artifacts.extend(found.artifacts)
        gaps.update(dict.fromkeys(found.gaps))
    if wanted.names[MOST_WORKLOADS:]:
        reason = f"{len(wanted.names) - MOST_WORKLOADS} workloads are left out: at most {MOST_WORKLOADS} are read"
        gaps[Gap(NAME, reason, next_step="name fewer", code=GapCode.TOO_LARGE)] = None
    counters = read_cpu_counters(api, limited, request.window, clock)
    return CollectResult((*artifacts, *counters.artifacts), (*gaps, *counters.gaps))


def _workload(
    api: ClusterApi, reader: ApiReader, name: WorkloadName, number: int, clock: Clock, limited: list[LimitedPods]
) -> CollectResult:
    """The artifacts of a workload; its Pods with a CPU limit are added to `limited`."""
    cluster = cluster_name(api.context)
    place = f"the cluster of the context {api.context}" if api.context else "this cluster"
    search = find(reader, name, place)
    if search.workload is None:
        return CollectResult(gaps=search.gaps)
    objects = read_objects(reader, search.workload)
    top = search.workload.objects[-1] if search.workload.objects else None
    scope = Scope(
        cluster,
        name.namespace,
        str(top["kind"]) if top else "",
        str(top["metadata"]["name"]) if top else "",
        tuple(sorted(objects.whole)),
        api.clock.ahead,
    )
    group = f"{number}-{str(name).replace('/', '-')}"
    limited.append(limited_pods(group, str(name), objects.of(resources.PODS)))
    at = clock.now()
    parts: Mapping[str, bytes] = {
        SCOPE: msgspec.json.encode(scope),
        **{part: _listed(found) for part, found in objects.parts.items() if found},
    }
    if objects.accelerators is not None:
        parts = {**parts, accelerators.PART: msgspec.json.encode(objects.accelerators)}
    artifacts = tuple(
        Artifact(f"{NAME}/{group}-{_file_name(part)}.json", NAME, group, f"{name}/{part}", at, content)
        for part, content in parts.items()
    )
    return CollectResult(artifacts, (*search.gaps, *objects.gaps))


def cluster_name(context: str) -> str:
    """The context as subjects carry it."""
    return re.sub(r"[^\w.:/-]", "-", context)[:200] or _IN_POD


def _file_name(part: str) -> str:
    return re.sub(r"[^a-z]+", "-", part)


def _listed(objects: Sequence[Object]) -> bytes:
    content = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects})
    return msgspec.json.format(content, indent=1) + b"\n"


def _preflight() -> Sequence[SourceAvailability]:
    row = SourceAvailability(
        "a workload on Kubernetes",
        Availability.IF_GIVEN,
        "its Pods, nodes, autoscaler and events, from the API server",
        "latdoctor diagnose --kube NAMESPACE/NAME",
        option="--kube NAMESPACE/NAME",
    )
    return (row,)


READER = SourceReader(_collect, parse, _preflight)
