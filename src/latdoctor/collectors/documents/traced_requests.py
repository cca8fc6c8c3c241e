"""Evidence of the requests in traces: their latency, the share of each stage, and which stage the slow ones wait for.

A file of traces is a sample, so it has no rates. With fewer than a hundred requests P99 is at least P95; with fewer
than the detector of tails needs, the slowest tenth stands for the slowest hundredth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from latdoctor.collectors.access_log.replica_stats import ReplicaStats
from latdoctor.collectors.access_log.requests import RequestColumns, TimeSegment
from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.load_result import ENOUGH, NO_STAGE, STAGE_SHARE, stages
from latdoctor.collectors.documents.request_spans import (
    Span,
    SpanForest,
    TracedRequest,
    requests_of,
    stage_columns,
    store_seconds,
)
from latdoctor.collectors.documents.samples import timing_of
from latdoctor.detectors.tail_attribution import MIN_REQUESTS, attribute_tail
from latdoctor.evidence.model import AT_LEAST, Bucket, Distribution, Evidence, Gap, Origin, Reading, Subject
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean, counted
from latdoctor.units import format_value

_RATES = ("arrival.rate", "completion.rate", "error.rate", "cancel.rate")
_TENTH, _FEWEST = 0.9, 50  # the slowest share of a few requests, and how many that needs
_MAX_VALUES = 20_000
_FEWEST_STORES = 10  # requests with a call
_STAGE_SIGNALS = {"queue": "queue.time", "prefill": "prefill.time", "decode": "decode.time"}
# The signals that attributes of spans give; a distribution each.
VALUES = ("ttft", "input.length", "output.length")
STORE_TIME, STORE_SHARE = "dependency.time.mean", "dependency.time_share"
_SAMPLE = "a file of traces is a sample of the requests"
SIGNALS = frozenset(
    {
        *(f"latency{suffix}" for suffix in ("", ".mean", ".p50", ".p95", ".p99")),
        "error.ratio",
        "request.latency",
        "request.stage_time",
        "tail.share",
        STAGE_SHARE,
        STORE_TIME,
        STORE_SHARE,
        *VALUES,
        *_STAGE_SIGNALS.values(),
    }
)


def evidence(spans: Sequence[Span], artifact: str, name: str, *, dated: bool = True) -> Evidence:
    """`name` ends the subjects: `server/gateway@NAME`. Not `dated`: the times of the spans are of an unknown clock.

    Raises ValueError where there is no request.
    """
    forest = requests_of(spans)
    if not forest.requests:
        raise ValueError("it has no span that began and ended")
    by_service: dict[str, list[TracedRequest]] = {}
    for request in forest.requests:
        by_service.setdefault(request.span.service, []).append(request)
    parts = [
        _service(requests, artifact, f"server/{clean(service or 'unknown', 80)}@{name}", dated=dated)
        for service, requests in by_service.items()
    ]
    parts.append(Evidence(gaps=tuple(_gaps(forest, artifact))))
    return Evidence.merge(parts)


def _service(requests: Sequence[TracedRequest], artifact: str, subject: str, *, dated: bool) -> Evidence:
    origin = Origin(artifact, counted(len(requests), "trace"))
    columns = stage_columns(requests)
    found = _latency(requests, columns, subject, origin) if dated else _undated_latency(requests, subject, origin)
    readings = [*found.readings, *_bound(requests, subject, origin), *_shares(requests, columns, subject, origin)]
    readings.extend(_stores(requests, subject, origin))
    readings.extend(_tail(requests, columns, subject, origin))
    distributions = (*found.distributions, *value_distributions(requests, columns, subject, origin))
    return Evidence(
        subjects=(Subject(subject),), readings=tuple(readings), series=found.series, distributions=distributions
    )


def _latency(
    requests: Sequence[TracedRequest], columns: Mapping[str, Sequence[float]], subject: str, origin: Origin
) -> Evidence:
    """What an access log with these requests shows, without its rates."""
    rows = RequestColumns()
    for number, request in enumerate(requests):
        rows.ended.append(request.span.end)
        rows.duration.append(request.span.seconds)
        rows.status.append(500 if request.span.failed else 200)
        rows.answered.append(1)
        rows.number.append(number)
    for name, values in columns.items():
        rows.stages.setdefault(name, type(rows.duration)("d")).extend(values)
    ends = rows.ended
    whole = TimeSegment(0, len(rows) - 1, min(ends), max(ends))
    found = ReplicaStats(rows, (whole,), subject, origin, _SAMPLE).evidence(0.0)
    return Evidence(
        readings=tuple(one for one in found.readings if one.signal not in _RATES),
        series=tuple(one for one in found.series if one.signal not in _RATES),
        distributions=found.distributions,
    )


def _undated_latency(requests: Sequence[TracedRequest], subject: str, origin: Origin) -> Evidence:
    timing = timing_of([request.span.seconds for request in requests])
    values = {"latency.mean": timing.mean}
    values |= {f"latency.p{percent:g}": timing.percentiles.get(percent) for percent in (50.0, 95.0, 99.0)}
    note = f"of {len(requests)} requests; {_SAMPLE}"
    return Evidence(
        readings=tuple(
            Reading(signal, subject, value, origin, note=note) for signal, value in values.items() if value is not None
        )
    )


def _bound(requests: Sequence[TracedRequest], subject: str, origin: Origin) -> Iterator[Reading]:
    """P99 of few requests: at least P95, or the median."""
    timing = timing_of([request.span.seconds for request in requests])
    if len(requests) < ENOUGH[99.0] and timing.percentiles:
        percent = max(timing.percentiles)
        note = f"of {len(requests)} requests, fewer than the {ENOUGH[99.0]} that P99 needs: this is P{percent:g}"
        yield Reading("latency.p99", subject, timing.percentiles[percent], origin, note=note, bound=AT_LEAST)


def _shares(
    requests: Sequence[TracedRequest], columns: Mapping[str, Sequence[float]], subject: str, origin: Origin
) -> Iterator[Reading]:
    divided = [request for request in requests if request.stages]
    if divided:
        whole = math.fsum(request.span.seconds for request in divided)
        times = {name: math.fsum(values) for name, values in columns.items() if name != NO_STAGE}
        yield from stages(subject, origin, whole, times)


def _stores(requests: Sequence[TracedRequest], subject: str, origin: Origin) -> Iterator[Reading]:
    """The time in databases and caches, of the requests that ask any."""
    times = [seconds for one in requests if (seconds := store_seconds(one.span)) > 0]
    if len(times) >= _FEWEST_STORES and (whole := math.fsum(request.span.seconds for request in requests)) > 0:
        within = math.fsum(times)
        note = f"calls of data stores in {len(times)} of {len(requests)} requests"
        yield Reading(STORE_TIME, subject, within / len(times), origin, note=note)
        yield Reading(STORE_SHARE, subject, min(1.0, within / whole), origin, note=note)


def _tail(
    requests: Sequence[TracedRequest], columns: Mapping[str, Sequence[float]], subject: str, origin: Origin
) -> Iterator[Reading]:
    """The shares of the slowest tenth, where the detector has too few requests for the slowest hundredth."""
    import numpy as np

    if not columns or not _FEWEST <= len(requests) < MIN_REQUESTS:
        return
    latencies = np.array([request.span.seconds for request in requests])
    named = {name: np.array(values) for name, values in columns.items() if name != NO_STAGE}
    shares = attribute_tail(latencies, named, slowest=_TENTH, least=_FEWEST)
    place = Origin(origin.artifact, f"{origin.place}, the slowest tenth against the middle fifth")
    for name, share in shares.items():
        note = f"the slowest tenth of {len(requests)} requests"
        yield Reading("tail.share", subject, share, place, labels=(("stage", name),), note=note)


def value_distributions(
    requests: Sequence[TracedRequest], columns: Mapping[str, Sequence[float]], subject: str, origin: Origin
) -> Iterator[Distribution]:
    """Of what the attributes report of every request, and of the stages that are signals of their own."""
    found = {signal: [one.span.values[signal] for one in requests if signal in one.span.values] for signal in VALUES}
    found |= {signal: list(columns[stage]) for stage, signal in _STAGE_SIGNALS.items() if stage in columns}
    for signal, values in found.items():
        known = [value for value in values if math.isfinite(value) and value >= 0][:_MAX_VALUES]
        if known:
            buckets = tuple(Bucket(value, value, float(count)) for value, count in sorted(Counter(known).items()))
            yield Distribution(signal, subject, buckets, origin, math.fsum(known), note=_SAMPLE)


def _gaps(forest: SpanForest, artifact: str) -> Iterator[Gap]:
    origin = Origin(artifact)
    for service, count in forest.skewed.items():
        reason = (
            f"{counted(count, 'span')} of {clean(service or 'a service', 60)} lie outside the span that called them: "
            f"clocks differ by up to {format_value(forest.shift, 'time')}, so when these began is unknown"
        )
        yield Gap(NAME, reason, (), None, "synchronize the clocks of the machines", origin, GapCode.AMBIGUOUS)
    if forest.orphans:
        reason = f"the parents of {counted(forest.orphans, 'span')} are not in the file"
        yield Gap(NAME, reason, (), None, "export whole traces", origin, GapCode.ABSENT)
    if forest.broken:
        reason = f"{counted(forest.broken, 'span')} end before they begin or have no outermost span"
        yield Gap(NAME, reason, (), None, "", origin, GapCode.INCONSISTENT)
