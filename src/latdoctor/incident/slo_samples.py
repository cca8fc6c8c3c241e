"""Samples of a service over some seconds: the points of an incident's charts.

A sample contains what metrics pages, a Prometheus server, the driver and the host counted or measured in that time.
Logs are left out: their lines may be from any time. Unknown values are absent, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Distribution, Evidence, Reading, Window
from latdoctor.gap_code import GapCode
from latdoctor.incident.elapsed import ElapsedTimes
from latdoctor.incident.events import ServiceSampled
from latdoctor.incident.state import decode_body
from latdoctor.incident.timeline_model import SloSample
from latdoctor.journal.entry import JournalEntry
from latdoctor.sanitize import clean

P99 = "latency.p99"
SHARE = 0.01  # of the requests may be later than the SLO of P99


class SloState(StrEnum):
    """State of a sample against the SLO."""

    OVER = "over"
    WITHIN = "within"
    UNJUDGED = "unjudged"


class _Sampled(Struct, frozen=True):
    """`events.ServiceSampled` as stored: non-finite numbers are null."""

    seconds: float
    values: dict[str, dict[str, float | None]]
    requests: float | None = None
    over_slo: float | None = None
    slo_p99: float | None = None
    bounds: dict[str, dict[str, str]] = {}
    over_slo_between: tuple[float, float] | None = None


def read_sample(entry: JournalEntry, count: ElapsedTimes) -> SloSample | None:
    """None for an entry in the format of another version."""
    try:
        raw = decode_body(entry, _Sampled)
    except UNDECODABLE:
        return None
    return SloSample(
        at=entry.at,
        seconds=count.of(entry).seconds,
        length=max(0.0, raw.seconds),
        digest=entry.digest,
        values={clean(subject, 200): _values(listed) for subject, listed in raw.values.items()},
        requests=_known(raw.requests),
        over_slo=_known(raw.over_slo),
        slo_p99=_known(raw.slo_p99),
        bounds={clean(subject, 200): _cleaned(listed) for subject, listed in raw.bounds.items()},
        over_slo_between=raw.over_slo_between,
    )


def _values(listed: Mapping[str, float | None]) -> dict[str, float]:
    return {clean(name, 200): value for name, value in listed.items() if value is not None}


def _cleaned(listed: Mapping[str, str]) -> dict[str, str]:
    return {clean(name, 200): clean(bound, 20) for name, bound in listed.items()}


def p99_of(one: SloSample) -> float | None:
    """Highest P99 of all subjects, seconds; None if unknown. Subjects are never averaged."""
    return max((listed[P99] for listed in one.values.values() if P99 in listed), default=None)


def slo_state(one: SloSample) -> SloState:
    """OVER where any subject's P99 is over the SLO; without a P99, where more than 1 % of the requests were.

    A P99 that is only a bound decides where the bound suffices.
    """
    if one.slo_p99 is None:
        return SloState.UNJUDGED
    judged = {
        _judged(listed[P99], one.bounds.get(subject, {}).get(P99, ""), one.slo_p99)
        for subject, listed in one.values.items()
        if P99 in listed
    }
    if judged:
        return (
            SloState.OVER
            if SloState.OVER in judged
            else SloState.UNJUDGED
            if SloState.UNJUDGED in judged
            else SloState.WITHIN
        )
    late = late_of(one)
    if not one.requests or late is None:
        return SloState.UNJUDGED
    return (
        SloState.OVER
        if late[0] > SHARE * one.requests
        else SloState.WITHIN
        if late[1] <= SHARE * one.requests
        else SloState.UNJUDGED
    )


def _judged(p99: float, bound: str, slo: float) -> SloState:
    if p99 > slo:
        return SloState.UNJUDGED if bound == AT_MOST else SloState.OVER
    return SloState.UNJUDGED if bound == AT_LEAST else SloState.WITHIN


def late_of(one: SloSample) -> tuple[float, float] | None:
    """At least and at most how many requests were later than the SLO."""
    return one.over_slo_between if one.over_slo is None else (one.over_slo, one.over_slo)


def _known(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None


PAGES, HISTORY = "prometheus", "promql"
_LIVE = (f"{PAGES}/", f"{HISTORY}/", "nvml.json", "host/")

# Charted signals: latency, load, serving and memory.
SIGNALS = (
    "latency.p50",
    "latency.p99",
    "router.latency.p50",
    "router.latency.p99",
    "ttft.p99",
    "arrival.rate",
    "completion.rate",
    "error.ratio",
    "queue.depth",
    "batch.size.mean",
    "batch.tokens.mean",
    "server.rss",
    "process.rss",
    "alloc.reserved",
    "kv.usage",
    "gpu.memory_used_ratio",
    "host.memory.available_ratio",
)
MAX_SUBJECTS = 64
_REQUESTS = ("router.latency", "latency")  # request counts: those of a router, else of all servers
_BEFORE = "-before.prom"  # suffix of a page from the previous observation


def with_previous_pages(bundle: Bundle, before: Bundle | None) -> Bundle:
    """`bundle` with the last page of each server from the observation `before`, so that counter rates also cover the
    time between both and nothing counts twice.
    """
    if before is None:
        return bundle
    last: dict[tuple[str, str], Artifact] = {}
    for page in (one for one in before.artifacts if one.collector == PAGES):
        last[page.group, page.source] = max((page, last.get((page.group, page.source), page)), key=_time)
    shown = {(one.group, one.source) for one in bundle.artifacts if one.collector == PAGES}
    front = tuple(replace(page, name=f"{PAGES}/{page.group}{_BEFORE}") for key, page in last.items() if key in shown)
    times = [page.taken_at for page in (*front, *bundle.artifacts)]
    window = Window(min(times), max(times)) if front else bundle.window
    return replace(bundle, artifacts=(*front, *bundle.artifacts), window=window)


def sample_of(evidence: Evidence, window: Window, slo_p99: float | None) -> ServiceSampled:
    """Sample of `window` from `evidence` including derived readings."""
    values: dict[str, dict[str, float]] = {}
    bounds: dict[str, dict[str, str]] = {}
    for reading in _charted(evidence):
        raw = values.get(reading.subject, {})
        if reading.signal in raw or (not raw and len(values) >= MAX_SUBJECTS):
            continue
        values.setdefault(reading.subject, {})[reading.signal] = float(reading.value)
        if reading.bound:
            bounds.setdefault(reading.subject, {})[reading.signal] = reading.bound
    requests, least, most = _requests(evidence, slo_p99)
    return ServiceSampled(
        seconds=max(0.0, window.seconds or 0.0),
        values=values,
        requests=requests,
        over_slo=least if least == most else None,
        slo_p99=slo_p99,
        bounds=bounds,
        over_slo_between=None if least is None or most is None or least == most else (least, most),
    )


def _time(page: Artifact) -> float:
    return page.taken_at


def _charted(evidence: Evidence) -> Iterator[Reading]:
    for signal in SIGNALS:
        for reading in evidence.readings_by_signal.get(signal, ()):
            known = isinstance(reading.value, int | float) and math.isfinite(reading.value)
            if known and not reading.labels and reading.origin.artifact.startswith(_LIVE):
                yield reading


def _requests(evidence: Evidence, slo: float | None) -> tuple[float | None, float | None, float | None]:
    """Answered requests, and the minimum and maximum of those later than `slo`; None: unknown.

    One server without counts, as after its start, makes the sum unknown.
    """
    for signal in _REQUESTS:
        for source in (PAGES, HISTORY):
            found = [
                one
                for one in evidence.distributions
                if one.signal == signal and not one.labels and one.origin.artifact.startswith(f"{source}/")
            ]
            gaps = [gap for gap in evidence.gaps if gap.source == source and signal in gap.signals]
            if not found and not any(gap.code is GapCode.NOTHING_COUNTED for gap in gaps):
                continue
            if any(gap.code is not GapCode.NOTHING_COUNTED for gap in gaps):
                return None, None, None
            if any(one.window.start is None for one in found):
                return None, None, None
            count = sum(one.count for one in found)
            if slo is None:
                return count, None, None
            return count, sum(_later(one, slo)[0] for one in found), sum(_later(one, slo)[1] for one in found)
    return None, None, None


def _later(one: Distribution, slo: float) -> tuple[float, float]:
    """Minimum and maximum count of observations above `slo`: the buckets above it, and the one that contains it."""
    least = sum(bucket.count for bucket in one.buckets if bucket.low >= slo and bucket.high > slo)
    around = sum(bucket.count for bucket in one.buckets if bucket.low < slo < bucket.high)
    return least, least + around
