"""What a run gave: totals, phases, classes and seconds, whose counts all add up, and whether it was spoiled."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from latdoctor.lab.load.histogram import Latencies, merged
from latdoctor.lab.load.plan import LoadPlan


class Counts(Struct, frozen=True):
    """Requests by how they ended. They end in exactly one way: `requests` is the sum of the next six.

    `refused`: 429 or 503. `rejected`: another 4xx. `failed`: 5xx, no connection, a broken or wrong answer. `timed_out`:
    the last attempt was given up. `not_sent`: the bound on requests in flight was reached. `attempts` were sent in
    all; `retries` of them were not the first. `good`: answered within the SLO.
    """

    requests: int = 0
    answered: int = 0
    refused: int = 0
    rejected: int = 0
    failed: int = 0
    timed_out: int = 0
    not_sent: int = 0
    attempts: int = 0
    retries: int = 0
    good: int = 0


class Summary(Struct, frozen=True):
    """Counts and latencies over `seconds`. Times in seconds, rates per second; None: nothing to tell it by.

    Latencies run from the planned instant to the last answer, through all retries. They are of answered requests and of
    those that timed out or were not sent, which count with the time waited or the timeout: never with nothing. Refused
    and failed ones end quickly and would flatter; they show in the counts and in `goodput`. `late_p99` is the
    generator's own lateness. `statuses` counts attempts.
    """

    seconds: float
    counts: Counts
    offered: float
    completed: float
    goodput: float
    p50: float | None
    p95: float | None
    p99: float | None
    longest: float | None
    late_p99: float | None
    statuses: dict[str, int]
    histogram: str


class PhaseResult(Struct, frozen=True):
    """One phase; `start` is in seconds from the start of the run. Requests belong to the phase they were planned in."""

    name: str
    start: float
    whole: Summary
    kinds: dict[str, Summary]


class Second(Struct, frozen=True):
    """The requests planned in one second of the run."""

    second: int
    counts: Counts
    p50: float | None
    p99: float | None


class Generator(Struct, frozen=True):
    """The generator's own health. Lateness in seconds; `cpu_share` is of one core."""

    late_p50: float | None
    late_p99: float | None
    late_max: float | None
    cpu_share: float
    most_in_flight: int


class LoadResult(Struct, frozen=True):
    """A whole run. `started` is Unix time. `spoiled` says why the figures cannot be trusted; empty: they can."""

    plan: LoadPlan
    schedule: str
    address: str
    started: float
    seconds: float
    warm_up_requests: int
    total: Summary
    kinds: dict[str, Summary]
    phases: tuple[PhaseResult, ...]
    series: tuple[Second, ...]
    generator: Generator
    spoiled: tuple[str, ...]

    def phase(self, name: str) -> PhaseResult:
        """The phase called `name`. Raises KeyError."""
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise KeyError(name)


def total(counts: Iterable[Counts]) -> Counts:
    """The sum of several counts."""
    sums: Counter[str] = Counter()
    for each in counts:
        sums.update(msgspec.structs.asdict(each))
    return Counts(**sums)


def summary(
    seconds: float, counts: Counts, latencies: Latencies, statuses: dict[str, int], late_p99: float | None
) -> Summary:
    """A summary from its parts. Goodput is good answers per second of the schedule."""
    return Summary(
        seconds=seconds,
        counts=counts,
        offered=counts.requests / seconds,
        completed=counts.answered / seconds,
        goodput=counts.good / seconds,
        p50=latencies.percentile(50),
        p95=latencies.percentile(95),
        p99=latencies.percentile(99),
        longest=latencies.longest,
        late_p99=late_p99,
        statuses=statuses,
        histogram=latencies.encoded(),
    )


def merge(parts: Sequence[Summary]) -> Summary:
    """Several runs (say, of three seeds) as one: exact counts, exact histogram; the worst lateness of all.

    Raises SourceError for a damaged histogram, ValueError for none at all.
    """
    if not parts:
        raise ValueError("nothing to merge")
    statuses: Counter[str] = Counter()
    for part in parts:
        statuses.update(part.statuses)
    return summary(
        sum(part.seconds for part in parts),
        total(part.counts for part in parts),
        merged(part.histogram for part in parts),
        dict(sorted(statuses.items())),
        max((part.late_p99 for part in parts if part.late_p99 is not None), default=None),
    )


def series_csv(result: LoadResult) -> str:
    """The per-second series as CSV: one line a second, times in seconds, blank where there is nothing to tell."""
    text = io.StringIO()
    names = [field.name for field in msgspec.structs.fields(Counts)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["second", *names, "p50_s", "p99_s"])
    for row in result.series:
        writer.writerow([row.second, *(getattr(row.counts, name) for name in names), row.p50, row.p99])
    return text.getvalue()
