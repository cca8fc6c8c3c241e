"""From what became of each request to the result of the run. Pure: the same outcomes give the same result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from latdoctor.lab.load.ending import Outcome
from latdoctor.lab.load.histogram import Latencies, quantile
from latdoctor.lab.load.mix import MALFORMED
from latdoctor.lab.load.plan import LoadPlan
from latdoctor.lab.load.result import Counts, Generator, LoadResult, PhaseResult, Second, Summary, summary
from latdoctor.lab.load.schedule import Planned, digest

_TIMED = frozenset({"answered", "timed_out", "not_sent"})  # endings whose time belongs to the latencies
# Lateness is part of every latency: up to a tenth of the P99 it changes no conclusion, above it may be the conclusion.
_LATE_SHARE = 0.1
# A generator this busy answers late itself, though it may wake up on time.
_BUSY_SHARE = 0.85


class Ran(Struct, frozen=True):
    """What a run leaves behind: `started` in Unix time, `cpu_seconds` of the generator's process."""

    address: str
    started: float
    seconds: float
    cpu_seconds: float
    most_in_flight: int
    stopped: bool
    outcomes: tuple[Outcome, ...]


Pair = tuple[Planned, Outcome]
_K = TypeVar("_K", bound=Hashable)


def summarise(plan: LoadPlan, planned: tuple[Planned, ...], ran: Ran) -> LoadResult:
    """The result of a run of `planned`; requests that a stop kept from their turn are in no count."""
    pairs = sorted(((planned[outcome.index], outcome) for outcome in ran.outcomes), key=lambda pair: pair[0].index)
    measured = [pair for pair in pairs if pair[0].at >= plan.warm_up_s]
    # A stopped run was as long as it was sent for, not as planned.
    end = min(plan.seconds, max(ran.seconds, 1e-3)) if ran.stopped else plan.seconds
    phases = tuple(_phases(plan, measured, end))
    late = sorted(outcome.late for _, outcome in measured)
    generator = Generator(
        late_p50=quantile(late, 0.5),
        late_p99=quantile(late, 0.99),
        late_max=late[-1] if late else None,
        cpu_share=ran.cpu_seconds / max(ran.seconds, 1e-9),
        most_in_flight=ran.most_in_flight,
    )
    length = max(end - plan.warm_up_s, 1e-3)
    return LoadResult(
        plan=plan,
        schedule=digest(planned),
        address=ran.address,
        started=ran.started,
        seconds=ran.seconds,
        warm_up_requests=len(pairs) - len(measured),
        total=_summary(plan, measured, length),
        kinds=_kinds(plan, measured, length),
        phases=phases,
        series=tuple(_series(plan, measured)),
        generator=generator,
        spoiled=tuple(_spoiled(plan, ran, phases, generator)),
    )


def _phases(plan: LoadPlan, pairs: Sequence[Pair], end: float) -> Iterable[PhaseResult]:
    by_phase = _grouped(pairs, lambda pair: pair[0].phase)
    for number, (phase, start) in enumerate(zip(plan.phases, plan.starts(), strict=True)):
        begin = max(start, plan.warm_up_s)
        length = min(start + phase.seconds, end) - begin
        if length > 0:
            own = by_phase.get(number, [])
            yield PhaseResult(phase.name, start, _summary(plan, own, length), _kinds(plan, own, length))


def _kinds(plan: LoadPlan, pairs: Sequence[Pair], seconds: float) -> dict[str, Summary]:
    groups = _grouped(pairs, lambda pair: pair[0].ask.kind)
    return {kind: _summary(plan, groups[kind], seconds) for kind in sorted(groups)}


def _series(plan: LoadPlan, pairs: Sequence[Pair]) -> Iterable[Second]:
    seconds = _grouped(pairs, lambda pair: int(pair[0].at))
    for second in range(math.ceil(plan.seconds)):
        own = seconds.get(second, [])
        took = sorted(_timed(own))
        yield Second(second, _counts(plan, own), quantile(took, 0.5), quantile(took, 0.99))


def _summary(plan: LoadPlan, pairs: Sequence[Pair], seconds: float) -> Summary:
    statuses = Counter(status for _, outcome in pairs for status in outcome.statuses)
    late = sorted(outcome.late for _, outcome in pairs)
    return summary(
        seconds, _counts(plan, pairs), Latencies(_timed(pairs)), dict(sorted(statuses.items())), quantile(late, 0.99)
    )


def _timed(pairs: Sequence[Pair]) -> Iterable[float]:
    return (outcome.took for _, outcome in pairs if outcome.ending in _TIMED)


def _counts(plan: LoadPlan, pairs: Sequence[Pair]) -> Counts:
    endings = Counter[str](outcome.ending for _, outcome in pairs)
    attempts = sum(len(outcome.statuses) for _, outcome in pairs)
    good = sum(
        outcome.ending == "answered" and outcome.took <= plan.slo_s and planned.ask.kind != MALFORMED
        for planned, outcome in pairs
    )
    retries = attempts - sum(bool(outcome.statuses) for _, outcome in pairs)
    return Counts(requests=len(pairs), attempts=attempts, retries=retries, good=good, **endings)


def _grouped(pairs: Sequence[Pair], key: Callable[[Pair], _K]) -> dict[_K, list[Pair]]:
    groups: dict[_K, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(key(pair), []).append(pair)
    return groups


def _spoiled(plan: LoadPlan, ran: Ran, phases: Sequence[PhaseResult], generator: Generator) -> Iterable[str]:
    """Why the figures cannot be trusted, in words; a reason that holds in one phase names it."""
    if ran.stopped:
        yield f"stopped after {ran.seconds:.1f} s of {plan.seconds:.1f} s"
    for phase in phases:
        if phase.whole.counts.not_sent:
            yield (
                f"{phase.name}: {phase.whole.counts.not_sent} requests were not sent, "
                f"with {plan.max_in_flight} in flight: the load was not as planned"
            )
        late, p99 = phase.whole.late_p99, phase.whole.p99
        if late is not None and late * 1000 > plan.late_ms and (p99 is None or late > _LATE_SHARE * p99):
            against = "" if p99 is None else f" against a measured P99 of {p99 * 1000:.0f} ms"
            yield f"{phase.name}: the generator was {late * 1000:.0f} ms late (P99){against}: the machine was too busy"
    if generator.cpu_share > _BUSY_SHARE:
        yield f"the generator used {generator.cpu_share:.0%} of a core: it could not keep up"
