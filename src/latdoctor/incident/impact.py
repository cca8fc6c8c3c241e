"""User impact of an incident: seconds and requests over the SLO, as far as measured.

Sources are service samples and the verification windows of runs. Time covered by neither is unmeasured. No second
counts twice; where both overlap, the sample counts, because it has request counts.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from latdoctor.conditions.evaluator import FAILS, HOLDS
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.incident import slo_samples
from latdoctor.incident.elapsed import ElapsedTimes
from latdoctor.incident.slo_samples import SloState
from latdoctor.incident.timeline_model import Impact, SloSample
from latdoctor.journal.entry import JournalEntry, unix_seconds
from latdoctor.remediation.run_result import WindowResult
from latdoctor.units import format_value

DEFINITION = (
    "Seconds from the start to the end in which P99 of any subject was over its SLO (of samples without a P99: in which"
    " more than 1 % of the requests were later than the SLO), and the requests that were answered well but later than"
    " the SLO. Counted from samples of the service and from verification windows; other time is not measured."
)
OVERLAP = 0.1  # of its length may a sample overlap the one before, and its requests still count
# A condition of a verification that compares with the SLO itself.
_TELLS = re.compile(r"latency\.p99 <=? slo\.p99|p99-over-slo clear")

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _ObservedSpan:
    """From `begin` to `end`, seconds since the start."""

    begin: float
    end: float
    state: SloState
    requests: float | None = None
    late: tuple[float, float] | None = None  # of these, at least and at most


def impact(entries: Iterable[JournalEntry], samples: Sequence[SloSample], count: ElapsedTimes, span: float) -> Impact:
    """Of the `span` seconds from the start on."""
    span = max(0.0, span)
    sampled = [
        _ObservedSpan(
            one.seconds - one.length, one.seconds, slo_samples.slo_state(one), one.requests, slo_samples.late_of(one)
        )
        for one in samples
        if one.seconds is not None
    ]
    tally = _Tally()
    covered = _count_samples(sampled, span, tally)
    windows = list(_windows(entries, count))
    _count_windows(windows, covered, span, tally)
    peaks = [p99 for p99 in map(slo_samples.p99_of, samples) if p99 is not None]
    judged = bool(tally.seconds[SloState.OVER] or tally.seconds[SloState.WITHIN])
    return Impact(
        definition=DEFINITION,
        span=span,
        seen=min(span, sum(tally.seconds.values())),
        over=tally.seconds[SloState.OVER] if judged else None,
        within=tally.seconds[SloState.WITHIN] if judged else None,
        unjudged=tally.seconds[SloState.UNJUDGED],
        requests=tally.requests if tally.counted else None,
        requests_over=tally.late[0] if tally.counted else None,
        requests_over_most=tally.late[1] if tally.counted else None,
        counted=tally.counted,
        slo_p99=tuple(sorted({one.slo_p99 for one in samples if one.slo_p99 is not None})),
        worst_p99=max(peaks, default=None),
        sources=tuple(_sources(len(samples), len(windows))),
    )


class _Tally:
    """Running totals."""

    def __init__(self) -> None:
        self.seconds = {SloState.OVER: 0.0, SloState.WITHIN: 0.0, SloState.UNJUDGED: 0.0}
        self.requests = 0.0
        self.late = (0.0, 0.0)
        self.counted = 0.0


def _count_samples(sampled: Sequence[_ObservedSpan], span: float, tally: _Tally) -> list[Span]:
    """Counts each second once; the spans that are covered, in order."""
    covered: list[Span] = []
    reached = 0.0
    for one in sorted(sampled, key=lambda samples: (samples.begin, samples.end)):
        begin, end = max(one.begin, reached), min(one.end, span)
        if end <= begin:
            continue
        tally.seconds[one.state] += end - begin
        covered.append((begin, end))
        reached = end
        whole = end - begin >= (1 - OVERLAP) * (one.end - one.begin)
        if whole and one.requests is not None and one.late is not None:
            tally.requests += one.requests
            tally.late = (tally.late[0] + one.late[0], tally.late[1] + one.late[1])
            tally.counted += end - begin
    return covered


def _count_windows(windows: Iterable[_ObservedSpan], covered: Sequence[Span], span: float, tally: _Tally) -> None:
    """Count windows for the time between samples."""
    ends = [end for _, end in covered]
    reached = 0.0
    for one in sorted(windows, key=lambda samples: (samples.begin, samples.end)):
        begin, last = max(one.begin, reached), min(one.end, span)
        reached = max(reached, last)
        for place in range(bisect.bisect_right(ends, begin), len(covered)):
            if begin >= last:
                break
            tally.seconds[one.state] += max(0.0, min(covered[place][0], last) - begin)
            begin = max(begin, covered[place][1])
        tally.seconds[one.state] += max(0.0, last - begin)


def _windows(entries: Iterable[JournalEntry], count: ElapsedTimes) -> Iterator[_ObservedSpan]:
    """Verification windows; those without observations, or of another version, are skipped."""
    for entry in entries:
        if entry.kind != "verify.window":
            continue
        try:
            window = msgspec.json.decode(entry.body, type=WindowResult)
        except UNDECODABLE:
            continue
        seconds = count.of(entry).seconds
        if seconds is None:
            continue
        # Window times are wall-clock times: correct them by what the clock was set by since the start.
        set_by = seconds - count.at(unix_seconds(entry.at))
        begin, end = count.at(window.started) + set_by, count.at(window.ended) + set_by
        if end > begin:
            yield _ObservedSpan(begin, end, _judged(window))


def _judged(window: WindowResult) -> SloState:
    statuses = [one.status for one in window.conditions if _TELLS.fullmatch(one.text)]
    if FAILS in statuses:
        return SloState.OVER
    return SloState.WITHIN if statuses and all(status == HOLDS for status in statuses) else SloState.UNJUDGED


def _sources(sampled: int, windows: int) -> Iterator[str]:
    if sampled:
        yield f"{sampled} sample{'s' if sampled > 1 else ''} of the service"
    if windows:
        yield f"{windows} verification window{'s' if windows > 1 else ''}"


def impact_lines(impact: Impact) -> Iterator[str]:
    """Sentences on seconds, requests and coverage."""
    if not impact.span:
        yield "It has just begun: no time has been measured yet."
        return
    span, samples = format_value(impact.span, "time"), format_value(impact.seen, "time")
    if impact.over is None:
        yield f"Time over the SLO is unknown: of {span} none could be judged."
    else:
        judged = impact.over + (impact.within or 0.0)
        over, of = format_value(impact.over, "time"), format_value(judged, "time")
        yield f"Over its SLO for {over} of the {of} that could be judged, of {span} in all."
    if impact.requests is None or impact.requests_over is None:
        yield "How many requests were late is unknown: no source counted them."
    else:
        late, of = format_value(impact.requests_over, "count"), format_value(impact.requests, "count")
        if impact.requests_over_most is not None and impact.requests_over_most > impact.requests_over:
            late = f"{late} to {format_value(impact.requests_over_most, 'count')}"
        counted = format_value(impact.counted, "time")
        yield f"{late} of {of} requests were answered later than the SLO, in the {counted} in which they were counted."
    if impact.worst_p99 is not None:
        slos = ", ".join(format_value(one, "time") for one in impact.slo_p99)
        slo = f" (SLO {slos})" if slos else ""
        yield f"The highest P99 of any sample was {format_value(impact.worst_p99, 'time')}{slo}."
    share = f"{impact.unseen / impact.span:.0%}".replace("%", " %")
    yield f"User impact was measured for {samples} of {span}; the other {share} may have been as bad."
