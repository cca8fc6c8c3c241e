"""The report of a scenario run: the figures of each phase, and which injected causes raised P99."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from latdoctor.lab.metrics_snapshot import MetricsDelta, MetricsSnapshot, collect_metrics
from latdoctor.lab.scenario import Scenario
from latdoctor.load.summary import LoadProblem, LoadProblemCode, LoadResult, Summary

# Recovered: latency at most RECOVERED times the one before (or negligible), and no longer queue.
RECOVERED = 2.0
NEGLIGIBLE = 0.05  # seconds
QUEUE = 8.0  # requests more than before


class ServerLoad(Struct, frozen=True):
    """Means over a measurement: requests per second, seconds per request, and the queue length at its end."""

    rate: float
    latency: float | None
    queue: float

    @property
    def text(self) -> str:
        latency = "no request" if self.latency is None else f"{self.latency * 1000:.0f} ms a request"
        return f"{self.rate:.1f} requests/s, {latency}, {self.queue:.0f} waiting"


def measure_load(addresses: Sequence[str], seconds: float) -> ServerLoad:
    """The load of the servers at `addresses` over `seconds`. Raises OperationError where no server answers."""
    bases = [address.rstrip("/").removesuffix("/metrics") for address in addresses]
    first = collect_metrics(bases)
    time.sleep(seconds)
    between = MetricsDelta(first, collect_metrics(bases))
    return ServerLoad(
        rate=between.rise("ref_requests_total") / seconds,
        latency=between.mean("ref_request_seconds"),
        queue=between.now("ref_queue_depth") or 0.0,
    )


def is_recovered(before: ServerLoad, after: ServerLoad) -> bool:
    """Whether `after` is as good as `before`. Without requests there is no latency to compare."""
    if after.queue > before.queue + QUEUE:
        return False
    if after.latency is None or before.latency is None:
        return True
    return after.latency <= max(NEGLIGIBLE, RECOVERED * before.latency)


# A cause is confirmed where removing it alone leaves at most this share of the incident's P99. Smaller reductions are
# within the variation of two runs of one scenario on a shared machine.
MOVES = 0.7
STEADY_ANSWERED, STEADY_GOOD = 0.99, 0.95  # shares of the requests before the incident
BEFORE, AFTER = "before", "after"


class PhaseReport(Struct, frozen=True):
    """The figures of one phase. Times in seconds, rates per second; None: not measured."""

    name: str
    requests: int
    answered: int
    refused: int
    failed: int
    timed_out: int
    good: int
    p50: float | None
    p95: float | None
    p99: float | None
    goodput: float
    forward_calls: float
    calls_per_answer: float | None
    padding_waste: float | None
    batch_size_mean: float | None
    allocations_per_call: float | None
    page_faults_per_call: float | None
    queue_depth: float | None


class LeaveOneOut(Struct, frozen=True):
    """P99 of the incident with `cause` removed."""

    cause: str
    p99: float | None


class CauseEffect(Struct, frozen=True):
    """An injected cause. `moves`: removing it alone lowered P99; None: not tried."""

    cause: str
    p99_without: float | None = None
    moves: bool | None = None


class RunReport(Struct, frozen=True):
    """A whole run. Its figures can be trusted where there are no `problems`. `recovered`: P99 recovered afterwards."""

    scenario: str
    seed: int
    rate: float
    started: float  # unix seconds
    slo: float  # seconds
    incident: str  # the name of the phase with the fault
    phases: tuple[PhaseReport, ...]
    problems: tuple[LoadProblem, ...]
    recovered: bool | None
    truth: tuple[CauseEffect, ...]

    def phase(self, name: str) -> PhaseReport:
        """Raises KeyError."""
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise KeyError(name)


def report_of(
    scenario: Scenario, seed: int, rate: float, result: LoadResult, snapshots: Sequence[MetricsSnapshot]
) -> RunReport:
    """The report from the generator's result and the servers' pages at the start and end of each phase."""
    phases = tuple(
        phase_report(
            phase.name, result.phase(phase.name).whole, MetricsDelta(snapshots[2 * index], snapshots[2 * index + 1])
        )
        for index, phase in enumerate(scenario.phases)
    )
    by_name = {phase.name: phase for phase in phases}
    before, incident, after = by_name.get(BEFORE), by_name[scenario.incident.name], by_name.get(AFTER)
    calm = without_its_cause(scenario, before, after)
    p99_without = calm.p99 if calm else None
    return RunReport(
        scenario=scenario.id,
        seed=seed,
        rate=rate,
        started=result.started,
        slo=scenario.load.slo,
        incident=incident.name,
        phases=phases,
        problems=(*result.problems, *(unsteady(before) if before else ())),
        recovered=None if before is None or after is None else recovered(before, after, scenario.load.slo),
        truth=tuple(_confirmed(one.cause, incident, p99_without if one.slows else None) for one in scenario.causes),
    )


def without_its_cause(scenario: Scenario, before: PhaseReport | None, after: PhaseReport | None) -> PhaseReport | None:
    """The phase without the only cause: the one after the incident, or else the one before it.

    None where there are several causes, or where a separate run measures P99 without the cause.
    """
    several = len(scenario.causes) != 1 or scenario.causes[0].can_be_left_out
    return None if several else after or before


def confirmed(report: RunReport, runs: Sequence[LeaveOneOut]) -> RunReport:
    """`report` with the effect of each cause that was removed alone."""
    found = {one.cause: one.p99 for one in runs}
    incident = report.phase(report.incident)
    truth = tuple(
        _confirmed(one.cause, incident, found[one.cause]) if one.cause in found else one for one in report.truth
    )
    return msgspec.structs.replace(report, truth=truth)


def _confirmed(cause: str, incident: PhaseReport, p99: float | None) -> CauseEffect:
    if p99 is None or incident.p99 is None:
        return CauseEffect(cause)
    return CauseEffect(cause, p99, p99 <= MOVES * incident.p99)


def unsteady(phase: PhaseReport) -> Iterator[LoadProblem]:
    """Why a phase without a fault was no steady state to compare with."""
    if phase.answered < STEADY_ANSWERED * phase.requests:
        message = f"only {phase.answered} of {phase.requests} requests were answered"
        yield LoadProblem(LoadProblemCode.NOT_STEADY, message, phase.name)
    elif phase.good < STEADY_GOOD * phase.requests:
        message = f"only {phase.good} of {phase.requests} requests were answered within the SLO"
        yield LoadProblem(LoadProblemCode.NOT_STEADY, message, phase.name)


def recovered(before: PhaseReport, after: PhaseReport, slo: float) -> bool | None:
    if before.p99 is None or after.p99 is None:
        return None
    return after.p99 <= max(slo, RECOVERED * before.p99)


def phase_report(name: str, whole: Summary, between: MetricsDelta) -> PhaseReport:
    """The clients' measurements and the servers' counters of one phase."""
    return PhaseReport(
        name=name,
        requests=whole.counts.requests,
        answered=whole.counts.answered,
        refused=whole.counts.refused,
        failed=whole.counts.failed,
        timed_out=whole.counts.timed_out,
        good=whole.counts.good,
        p50=whole.p50,
        p95=whole.p95,
        p99=whole.p99,
        goodput=whole.goodput,
        forward_calls=between.rise("ref_forward_calls_total"),
        calls_per_answer=between.per("ref_forward_calls_total", "ref_requests_total"),
        padding_waste=between.waste,
        batch_size_mean=between.mean("ref_batch_size"),
        allocations_per_call=between.per("ref_device_alloc_total", "ref_forward_calls_total"),
        page_faults_per_call=between.per("ref_page_faults_total", "ref_forward_calls_total"),
        queue_depth=between.now("ref_queue_depth"),
    )


def truth_file(report: RunReport) -> Mapping[str, object]:
    """The ground-truth document. A cause is in `truth` where removing it alone lowered P99."""
    return {
        "scenario": report.scenario,
        "seed": report.seed,
        "truth": [one.cause for one in report.truth if one.moves],
        "injected": [msgspec.to_builtins(one) for one in report.truth],
        "spoiled": [problem.text for problem in report.problems],
    }
