"""Run all requested collectors in parallel and assemble their artifacts into a Bundle; parse a Bundle into Evidence.

A collector that fails or hangs becomes a gap; the others continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from latdoctor.background import BackgroundCall
from latdoctor.collectors.base import Clock, Collector, CollectRequest, CollectResult
from latdoctor.collectors.clock_alignment import with_one_timeline
from latdoctor.collectors.cluster_identity import unknown_clusters
from latdoctor.collectors.log_overlap import without_overlap
from latdoctor.collectors.machine_identity import with_machines_apart
from latdoctor.collectors.outage import is_outage
from latdoctor.errors import SourceError
from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.model import Coverage, CoverageStatus, Evidence, Gap, Origin, Window
from latdoctor.gap_code import GapCode

# A live collection takes its window; a collector is abandoned after that plus this many response timeouts.
PATIENCE = 4


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class _RunningCollector:
    """A collector running on its own thread."""

    collector: Collector
    call: BackgroundCall[CollectResult]


def _start(collector: Collector, request: CollectRequest, clock: Clock) -> _RunningCollector:
    reader = collector.reader()  # imported before any window begins
    return _RunningCollector(
        collector, BackgroundCall(lambda: reader.collect(request, clock), f"collect-{collector.name}")
    )


def collect_bundle(
    collectors: Sequence[Collector],
    request: CollectRequest,
    context: Context,
    clock: Clock,
    *,
    baseline: Baseline | None = None,
    waiting: Callable[[Sequence[str]], None] = lambda names: None,
) -> Bundle:
    """Collect everything in `request`. `waiting` gets the titles of the running collectors a few times a second."""
    started = clock.now()
    gaps: tuple[Gap, ...] = ()
    if request.kubernetes is not None:
        from latdoctor.collectors.kubernetes.pod_pages import with_pages, without_ended_pods

        request, gaps = with_pages(request)
    readings = [_start(collector, request, clock) for collector in collectors if collector.is_requested(request)]
    _wait(readings, request, waiting)
    stopped = _leader_failed(readings, request)
    parts = [_outcome(reading, request, stopped=stopped) for reading in readings]
    artifacts = tuple(artifact for part in parts for artifact in part.artifacts)
    bundle = Bundle(
        context=context,
        window=_window(artifacts, started),
        artifacts=artifacts,
        gaps=(*(gap for part in parts for gap in part.gaps), *gaps),
        baseline=baseline,
    )
    return without_ended_pods(bundle, request) if request.found_servers else bundle


def _wait(
    readings: Sequence[_RunningCollector], request: CollectRequest, waiting: Callable[[Sequence[str]], None]
) -> None:
    deadline = time.monotonic() + _patience(request)
    while busy := [reading for reading in readings if not reading.call.ended]:
        if time.monotonic() >= deadline or _leader_failed(readings, request):
            return
        waiting([reading.collector.title for reading in busy])
        busy[0].call.wait(0.2)


def _patience(request: CollectRequest) -> float:
    return request.window + PATIENCE * request.timeout


def _leader_failed(readings: Iterable[_RunningCollector], request: CollectRequest) -> bool:
    leader = next((one for one in readings if one.collector.name == request.leader), None)
    return leader is not None and leader.call.ended and all(is_outage(one) for one in leader.call.outcome().artifacts)


def _outcome(reading: _RunningCollector, request: CollectRequest, *, stopped: bool) -> CollectResult:
    if reading.call.ended:
        return reading.call.outcome()
    collector = reading.collector
    reason, code = f"{collector.title} did not answer within {_patience(request):.0f} s", GapCode.TIMEOUT
    next_step = "check that source by itself, or leave it out"
    if stopped:
        reason, next_step, code = f"{collector.title} was stopped, as no server answered", "", GapCode.STOPPED
    gap = Gap(collector.name, reason, tuple(sorted(collector.assured)), next_step=next_step, code=code)
    return CollectResult(gaps=(gap,))


def _window(artifacts: Iterable[Artifact], started: float) -> Window:
    """The time from the first to the last artifact."""
    times = [artifact.taken_at for artifact in artifacts] or [started]
    return Window(min(times), max(times))


def parse_bundle(collectors: Sequence[Collector], bundle: Bundle) -> tuple[Evidence, tuple[Coverage, ...]]:
    """Parse a bundle group by group; a group that cannot be parsed becomes a gap that hides its collector's signals."""
    parts = [Evidence(gaps=bundle.gaps)]
    coverage = []
    for collector in collectors:
        own = sorted((a for a in bundle.artifacts if a.collector == collector.name), key=lambda a: a.group)
        read = [_parsed(collector, tuple(group)) for _, group in groupby(own, key=lambda a: a.group)]
        parts.extend(read)
        gaps = [gap for part in (*read, parts[0]) for gap in part.gaps if gap.source == collector.name]
        coverage.append(_coverage(collector, len(own), read, gaps))
    sources = {artifact.name: artifact.source for artifact in bundle.artifacts}
    joined = with_machines_apart(with_one_timeline(without_overlap(parts)), sources)
    return Evidence.merge([*joined, Evidence(gaps=tuple(unknown_clusters(joined)))]), tuple(coverage)


def _parsed(collector: Collector, group: tuple[Artifact, ...]) -> Evidence:
    try:
        return collector.parse(group)
    except SourceError as error:
        from latdoctor.collectors.file_kinds import wrong_option_hint

        where = error.where or group[0].source
        gap = Gap(
            source=collector.name,
            reason=f"{where}: {error.what}",
            signals=tuple(sorted(collector.assured)),
            next_step=wrong_option_hint(group[0], collector.name) or error.next_step,
            origin=Origin(group[0].name),
            code=error.code,
        )
        return Evidence(gaps=(gap,))


def _coverage(collector: Collector, artifacts: int, read: Sequence[Evidence], gaps: Sequence[Gap]) -> Coverage:
    has_evidence = any(
        part.readings or part.distributions or part.series or part.events or part.looked for part in read
    )
    detail = gaps[0].message if gaps else ""
    if has_evidence:
        status = CoverageStatus.PARTLY if gaps else CoverageStatus.READ
    else:
        status = CoverageStatus.FAILED if artifacts or gaps else CoverageStatus.NOT_REQUESTED
    return Coverage(collector.name, collector.title, status, artifacts, detail)
