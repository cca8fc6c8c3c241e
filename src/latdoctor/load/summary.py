"""The result of a run from the outcomes of its requests. Pure."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

import msgspec
from msgspec import Struct

from latdoctor.load.latencies import Latencies, merged, quantile
from latdoctor.load.live_changes import LoadChange
from latdoctor.load.mix import MALFORMED
from latdoctor.load.outcome import Ending, RequestOutcome
from latdoctor.load.plan import LoadPlan, PlannedRequest, plan_digest
from latdoctor.load.session_counts import SessionCounts, count_sessions
from latdoctor.load.user_sessions import SessionRecord


class RequestCounts(Struct, frozen=True):
    """Requests by `Ending`: `requests` is the sum of the next six.

    `attempts` is the number sent in all; `retries` of them were not the first of their request. `good`: answered within
    the SLO.
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
    """Count and latencies over `seconds`. Times in seconds, rates per second; None: not measured.

    Latencies run from the planned instant to the last answer, through all retries. They are of answered requests and of
    those that timed out or were not sent, which count with the time waited or the timeout. Refused and failed ones end
    quickly and would lower the percentiles; they are in the counts and in `goodput`. `late_p99` is the
    generator's own lateness. `statuses` counts attempts.
    """

    seconds: float
    counts: RequestCounts
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
    """One phase; `start` is in seconds from the start of the run. Requests belong to the phase they were planned in.

    `sessions`: of the users who arrived in it; None for a phase without users.
    """

    name: str
    start: float
    whole: Summary
    kinds: dict[str, Summary]
    sessions: SessionCounts | None = None


class SecondSummary(Struct, frozen=True):
    """The requests planned in one second of the run."""

    second: int
    counts: RequestCounts
    p50: float | None
    p99: float | None


class GeneratorHealth(Struct, frozen=True):
    """The generator's own health. Lateness in seconds; `cpu_share` is of one core."""

    late_p50: float | None
    late_p99: float | None
    late_max: float | None
    cpu_share: float
    most_in_flight: int


class LoadProblemCode(StrEnum):
    """Why the figures of a run cannot be trusted."""

    STOPPED = "stopped"
    NOT_SENT = "not-sent"
    GENERATOR_LATE = "generator-late"
    GENERATOR_BUSY = "generator-busy"
    NOT_STEADY = "not-steady"  # requests failed or were late before the incident
    CHANGED = "changed"  # the load was changed while it ran


class LoadProblem(Struct, frozen=True):
    """One reason not to trust the figures of a run, or of its phase `phase`."""

    code: LoadProblemCode
    message: str
    phase: str = ""

    @property
    def text(self) -> str:
        return f"{self.phase}: {self.message}" if self.phase else self.message


class LoadResult(Struct, frozen=True):
    """A whole run. `started` is Unix time. The figures can be trusted where there are no `problems`.

    `changes` were made while it ran: then the figures of a phase are of several loads, and `stretches` has those of
    each, phase by phase.
    """

    plan: LoadPlan
    schedule: str
    address: str
    started: float
    seconds: float
    warm_up_requests: int
    total: Summary
    kinds: dict[str, Summary]
    phases: tuple[PhaseResult, ...]
    series: tuple[SecondSummary, ...]
    generator: GeneratorHealth
    problems: tuple[LoadProblem, ...]
    sessions: SessionCounts | None = None
    changes: tuple[LoadChange, ...] = ()
    stretches: tuple[PhaseResult, ...] = ()

    def phase(self, name: str) -> PhaseResult:
        """The phase called `name`. Raises KeyError."""
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise KeyError(name)


def total(counts: Iterable[RequestCounts]) -> RequestCounts:
    """The sum of several counts."""
    sums: Counter[str] = Counter()
    for each in counts:
        sums.update(msgspec.structs.asdict(each))
    return RequestCounts(**sums)


def summary(
    seconds: float, counts: RequestCounts, latencies: Latencies, statuses: dict[str, int], late_p99: float | None
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
    """The per-second series as CSV: one line a second, times in seconds, blank where not measured."""
    text = io.StringIO()
    names = [field.name for field in msgspec.structs.fields(RequestCounts)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["second", *names, "p50_s", "p99_s"])
    for row in result.series:
        writer.writerow([row.second, *(getattr(row.counts, name) for name in names), row.p50, row.p99])
    return text.getvalue()


_TIMED = frozenset({Ending.ANSWERED, Ending.TIMED_OUT, Ending.NOT_SENT})  # endings that count towards the latencies
# Lateness is part of every latency: up to a tenth of the P99 it changes no conclusion.
_LATE_SHARE = 0.1
# A generator this busy handles responses late, even if it wakes up on time.
_BUSY_SHARE = 0.85
_SHORTEST = 1e-3  # seconds of a stretch


class RawRun(Struct, frozen=True):
    """The raw data of a run: `started` in Unix time, `cpu_seconds` of the generator's process.

    `added`: requests that were not in the schedule before the run.
    """

    address: str
    started: float
    seconds: float
    cpu_seconds: float
    most_in_flight: int
    stopped: bool
    outcomes: tuple[RequestOutcome, ...]
    added: tuple[PlannedRequest, ...] = ()
    sessions: tuple[SessionRecord, ...] = ()
    changes: tuple[LoadChange, ...] = ()


Pair = tuple[PlannedRequest, RequestOutcome]
_K = TypeVar("_K", bound=Hashable)


def summarise(plan: LoadPlan, planned: tuple[PlannedRequest, ...], ran: RawRun) -> LoadResult:
    """The result of a run of `planned`; requests not yet due at a stop are not counted."""
    added = {request.index: request for request in ran.added}
    known = ((added.get(outcome.index) or planned[outcome.index], outcome) for outcome in ran.outcomes)
    pairs = sorted(known, key=lambda pair: pair[0].index)
    measured = [pair for pair in pairs if pair[0].at >= plan.warm_up_s]
    # A stopped run was as long as it was sent for, not as planned.
    end = min(plan.seconds, max(ran.seconds, 1e-3)) if ran.stopped else plan.seconds
    phases = tuple(_phases(plan, measured, end, ran.sessions))
    late = sorted(outcome.late for _, outcome in measured)
    generator = GeneratorHealth(
        late_p50=quantile(late, 0.5),
        late_p99=quantile(late, 0.99),
        late_max=late[-1] if late else None,
        cpu_share=ran.cpu_seconds / max(ran.seconds, 1e-9),
        most_in_flight=ran.most_in_flight,
    )
    length = max(end - plan.warm_up_s, 1e-3)
    return LoadResult(
        plan=plan,
        schedule=plan_digest(plan, planned),
        address=ran.address,
        started=ran.started,
        seconds=ran.seconds,
        warm_up_requests=len(pairs) - len(measured),
        total=_summary(plan, measured, length),
        kinds=_kinds(plan, measured, length),
        phases=phases,
        series=tuple(_series(plan, measured)),
        generator=generator,
        problems=tuple(_problems(plan, ran, phases, generator)),
        sessions=count_sessions(plan, ran.sessions) if any(phase.users for phase in plan.phases) else None,
        changes=ran.changes,
        stretches=tuple(_stretches(plan, measured, end, ran.changes)) if ran.changes else (),
    )


def _phases(
    plan: LoadPlan, pairs: Sequence[Pair], end: float, sessions: Sequence[SessionRecord]
) -> Iterable[PhaseResult]:
    by_phase = _grouped(pairs, lambda pair: pair[0].phase)
    for number, (phase, start) in enumerate(zip(plan.phases, plan.starts(), strict=True)):
        begin = max(start, plan.warm_up_s)
        length = min(start + phase.seconds, end) - begin
        if length > 0:
            own = by_phase.get(number, [])
            users = [record for record in sessions if record.phase == number]
            counts = count_sessions(plan, users) if phase.users else None
            yield PhaseResult(phase.name, start, _summary(plan, own, length), _kinds(plan, own, length), counts)


def _stretches(
    plan: LoadPlan, pairs: Sequence[Pair], end: float, changes: Sequence[LoadChange]
) -> Iterable[PhaseResult]:
    """The phases, cut where the load was changed."""
    for phase, start in zip(plan.phases, plan.starts(), strict=True):
        first, last = max(start, plan.warm_up_s), min(start + phase.seconds, end)
        cuts = [first, *(change.at for change in changes if first < change.at < last), last]
        for begin, until in pairwise(cuts):
            if until - begin > _SHORTEST:
                own = [pair for pair in pairs if begin <= pair[0].at < until]
                length = until - begin
                yield PhaseResult(phase.name, begin, _summary(plan, own, length), _kinds(plan, own, length))


def _kinds(plan: LoadPlan, pairs: Sequence[Pair], seconds: float) -> dict[str, Summary]:
    groups = _grouped(pairs, lambda pair: pair[0].ask.kind)
    return {kind: _summary(plan, groups[kind], seconds) for kind in sorted(groups)}


def _series(plan: LoadPlan, pairs: Sequence[Pair]) -> Iterable[SecondSummary]:
    seconds = _grouped(pairs, lambda pair: int(pair[0].at))
    for second in range(math.ceil(plan.seconds)):
        own = seconds.get(second, [])
        took = sorted(_timed(own))
        yield SecondSummary(second, _counts(plan, own), quantile(took, 0.5), quantile(took, 0.99))


def _summary(plan: LoadPlan, pairs: Sequence[Pair], seconds: float) -> Summary:
    statuses = Counter(status for _, outcome in pairs for status in outcome.statuses)
    late = sorted(outcome.late for _, outcome in pairs)
    return summary(
        seconds, _counts(plan, pairs), Latencies(_timed(pairs)), dict(sorted(statuses.items())), quantile(late, 0.99)
    )


def _timed(pairs: Sequence[Pair]) -> Iterable[float]:
    return (outcome.took for _, outcome in pairs if outcome.ending in _TIMED)


def _counts(plan: LoadPlan, pairs: Sequence[Pair]) -> RequestCounts:
    endings = Counter(outcome.ending.value for _, outcome in pairs)
    attempts = sum(len(outcome.statuses) for _, outcome in pairs)
    good = sum(
        outcome.ending is Ending.ANSWERED and outcome.took <= plan.slo_s and planned.ask.kind != MALFORMED
        for planned, outcome in pairs
    )
    retries = attempts - sum(bool(outcome.statuses) for _, outcome in pairs)
    return RequestCounts(requests=len(pairs), attempts=attempts, retries=retries, good=good, **endings)


def _grouped(pairs: Sequence[Pair], key: Callable[[Pair], _K]) -> dict[_K, list[Pair]]:
    groups: dict[_K, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(key(pair), []).append(pair)
    return groups


def _problems(
    plan: LoadPlan, ran: RawRun, phases: Sequence[PhaseResult], generator: GeneratorHealth
) -> Iterable[LoadProblem]:
    if ran.stopped:
        yield LoadProblem(LoadProblemCode.STOPPED, f"stopped after {ran.seconds:.1f} s of {plan.seconds:.1f} s")
    if ran.changes:
        times = "once" if len(ran.changes) == 1 else f"{len(ran.changes)} times"
        message = f"the load was changed {times} while it ran: the figures of a whole phase are of several loads"
        yield LoadProblem(LoadProblemCode.CHANGED, message)
    for phase in phases:
        if unsent := phase.whole.counts.not_sent:
            message = f"{unsent} requests were not sent with {plan.max_in_flight} in flight: the load is below the plan"
            yield LoadProblem(LoadProblemCode.NOT_SENT, message, phase.name)
        late, p99 = phase.whole.late_p99, phase.whole.p99
        if late is not None and late * 1000 > plan.late_ms and (p99 is None or late > _LATE_SHARE * p99):
            against = "" if p99 is None else f" against a measured P99 of {p99 * 1000:.0f} ms"
            message = f"the generator was {late * 1000:.0f} ms late (P99){against}: the machine was too busy"
            yield LoadProblem(LoadProblemCode.GENERATOR_LATE, message, phase.name)
    if generator.cpu_share > _BUSY_SHARE:
        message = f"the generator used {generator.cpu_share:.0%} of a core: it could not keep up"
        yield LoadProblem(LoadProblemCode.GENERATOR_BUSY, message)
