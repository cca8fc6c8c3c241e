"""Series over a log that is too long to keep its requests one by one, from the sums of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import structs

from latdoctor.collectors.access_log.failure_stats import GATEWAY
from latdoctor.collectors.access_log.replica_stats import QUANTILES, ReplicaStats
from latdoctor.collectors.access_log.requests import REASONS
from latdoctor.collectors.access_log.stages import SIGNALS_OF
from latdoctor.collectors.access_log.step_table import Step, StepTable
from latdoctor.evidence.model import Evidence, Labels, Origin, Series

SIGNALS = frozenset(
    {
        *(f"latency{suffix}" for suffix, _, _ in QUANTILES), "arrival.rate", "error.ratio", "request.failure_rate",
        *GATEWAY, *(one.mean for one in SIGNALS_OF.values() if one.mean),
    }
)  # fmt: skip
_Points = list[tuple[float, float]]


def with_whole_log(found: Evidence, stats: ReplicaStats, table: StepTable) -> Evidence:
    """`found`, which has the series of the requests that are kept, with those of the whole log in their place.

    It adds the kept requests to `table`.
    """
    table.add(stats.requests.chosen(stats.timed))
    kept = tuple(one for one in found.series if one.signal not in SIGNALS)
    return structs.replace(found, series=(*kept, *_series(stats, table)))


def _series(stats: ReplicaStats, table: StepTable) -> tuple[Series, ...]:
    """The series that `SIGNALS` names, each from the beginning of the log to its end."""
    steps = list(table.steps())
    place = Origin(stats.origin.artifact, f"{stats.origin.place}, each {table.width} s".lstrip(", "))
    return tuple(
        Series(signal, stats.subject, tuple(time for time, _ in points), tuple(one for _, one in points), place, labels)
        for signal, points, labels in (*_latency(steps), *_load(steps, table.width), *_failures(steps, table))
        if len(points) > 1
    )


def _latency(steps: list[tuple[float, Step]]) -> Iterator[tuple[str, _Points, Labels]]:
    for suffix, q, _ in QUANTILES:
        yield f"latency{suffix}", [(end, step.latency(q)) for end, step in steps if step.durations], ()
    for name, signals in SIGNALS_OF.items():
        sums = [(end, step.stages[name]) for end, step in steps if name in step.stages]
        if signals.mean:
            yield signals.mean, [(end, seconds / count) for end, (seconds, count) in sums], ()


def _load(steps: list[tuple[float, Step]], width: int) -> Iterator[tuple[str, _Points, Labels]]:
    yield "error.ratio", [(end, step.failed / step.known) for end, step in steps if step.known], ()
    # The first and the last step are incomplete, and the slow ones among the last arrivals are not in the log yet.
    slowest = max((step.latency(0.99) for _, step in steps[-3:] if step.durations), default=0.0)
    last = steps[-1][0] - width - slowest if steps else 0.0
    arrived = {end: step.arrived for end, step in steps[1:] if end <= last}
    if arrived:
        first, count = min(arrived), math.floor((max(arrived) - min(arrived)) / width) + 1
        ends = [first + place * width for place in range(count)]
        yield "arrival.rate", [(end, arrived.get(end, 0) / width) for end in ends], ()


def _failures(steps: list[tuple[float, Step]], table: StepTable) -> Iterator[tuple[str, _Points, Labels]]:
    """Steps without a request have no point, as in a log that is kept whole."""
    ended = [(end, step) for end, step in steps if step.requests]
    for place in table.reasons:
        rates = [(end, step.reasons[place] / table.width) for end, step in ended]
        yield "request.failure_rate", rates, (("reason", str(REASONS[place])),)
    for signal, reasons in GATEWAY.items():
        places = [place for place in table.reasons if REASONS[place] in reasons]
        if places:
            yield signal, [(end, sum(step.reasons[one] for one in places) / table.width) for end, step in ended], ()
