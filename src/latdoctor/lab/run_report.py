"""What a scenario's run was like, phase by phase, and which of its causes really moved the tail."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from latdoctor.lab.clients import MetricsDelta, MetricsSnapshot, collect_metrics
from latdoctor.lab.scenario import Scenario
from latdoctor.load.summary import LoadResult, Summary

# As for a whole run (see `outcome`): within twice the time of before, or of no account to anybody.
BACK = 2.0
NEGLIGIBLE = 0.05  # seconds
QUEUE = 8.0  # requests more than before


class ServerLoad(Struct, frozen=True):
    """Means over one look: requests per second, seconds per request, requests that wait at its end."""

    rate: float
    latency: float | None
    queue: float

    @property
    def told(self) -> str:
        latency = "no request" if self.latency is None else f"{self.latency * 1000:.0f} ms a request"
        return f"{self.rate:.1f} requests/s, {latency}, {self.queue:.0f} waiting"


def measure_load(addresses: Sequence[str], seconds: float) -> ServerLoad:
    """The state of the servers at `addresses`, watched for so long. Raises OperationError where none answers."""
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
    """Whether `after` is as good as `before`; without any request nothing is slow."""
    if after.queue > before.queue + QUEUE:
        return False
    if after.latency is None or before.latency is None:
        return True
    return after.latency <= max(NEGLIGIBLE, BACK * before.latency)


# A cause is true of a run where taking it away alone leaves at most this share of the incident's P99: less is within
# what two runs of the same scenario differ by on a shared machine.
MOVES = 0.7
STEADY_ANSWERED, STEADY_GOOD = 0.99, 0.95  # shares of the requests before the incident
RECOVERED = 2.0  # times the P99 before the incident, or within the SLO
BEFORE, AFTER = "before", "after"


class PhaseReport(Struct, frozen=True):
    """One phase in figures. Times in seconds, rates per second; None: nothing to tell it by."""

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
    """A cause taken away alone, and the P99 of the incident then."""

    cause: str
    p99: float | None


class CauseEffect(Struct, frozen=True):
    """A cause that was put in. `moves`: taking it away alone moved P99; None: that was not tried."""

    cause: str
    p99_without: float | None = None
    moves: bool | None = None


class RunReport(Struct, frozen=True):
    """A whole run. `spoiled` says why its figures cannot be trusted; `recovered`: the tail came back afterwards."""

    scenario: str
    seed: int
    rate: float
    started: float  # unix seconds
    slo: float  # seconds
    incident: str  # the name of the phase in which something was wrong
    phases: tuple[PhaseReport, ...]
    spoiled: tuple[str, ...]
    recovered: bool | None
    truth: tuple[CauseEffect, ...]

    def phase(self, name: str) -> PhaseReport:
        """Raises KeyError."""
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise KeyError(name)


def report_of(
    scenario: Scenario, seed: int, rate: float, result: LoadResult, looks: Sequence[MetricsSnapshot]
) -> RunReport:
    """The report of a run from what the generator measured and what the servers' pages said at each phase's edges."""
    phases = tuple(
        phase_report(phase.name, result.phase(phase.name).whole, MetricsDelta(looks[2 * index], looks[2 * index + 1]))
        for index, phase in enumerate(scenario.phases)
    )
    by_name = {phase.name: phase for phase in phases}
    before, incident, after = by_name.get(BEFORE), by_name[scenario.incident.name], by_name.get(AFTER)
    well = without_its_cause(scenario, before, after)
    return RunReport(
        scenario=scenario.id,
        seed=seed,
        rate=rate,
        started=result.started,
        slo=scenario.load.slo,
        incident=incident.name,
        phases=phases,
        spoiled=(*result.spoiled, *(unsteady(before) if before else ())),
        recovered=None if before is None or after is None else recovered(before, after, scenario.load.slo),
        truth=tuple(_confirmed(truth.cause, incident, well.p99 if well else None) for truth in scenario.causes),
    )


def without_its_cause(scenario: Scenario, before: PhaseReport | None, after: PhaseReport | None) -> PhaseReport | None:
    """The phase that shows the tail without the only cause: once that is taken out, or before it was put in if the run
    ends in it. None where a run of its own tells, and where there are several causes.
    """
    several = len(scenario.causes) != 1 or scenario.causes[0].can_be_left_out
    return None if several else after or before


def confirmed(report: RunReport, taken: Sequence[LeaveOneOut]) -> RunReport:
    """`report` with what each cause taken away alone has shown."""
    found = {one.cause: one.p99 for one in taken}
    incident = report.phase(report.incident)
    truth = tuple(
        _confirmed(one.cause, incident, found[one.cause]) if one.cause in found else one for one in report.truth
    )
    return msgspec.structs.replace(report, truth=truth)


def _confirmed(cause: str, incident: PhaseReport, p99: float | None) -> CauseEffect:
    if p99 is None or incident.p99 is None:
        return CauseEffect(cause)
    return CauseEffect(cause, p99, p99 <= MOVES * incident.p99)


def unsteady(before: PhaseReport) -> Iterator[str]:
    """Why the phase before the incident was no steady state to compare with."""
    if before.answered < STEADY_ANSWERED * before.requests:
        yield f"{before.name}: only {before.answered} of {before.requests} requests were answered"
    elif before.good < STEADY_GOOD * before.requests:
        yield f"{before.name}: only {before.good} of {before.requests} requests were answered within the SLO"


def recovered(before: PhaseReport, after: PhaseReport, slo: float) -> bool | None:
    if before.p99 is None or after.p99 is None:
        return None
    return after.p99 <= max(slo, RECOVERED * before.p99)


def phase_report(name: str, whole: Summary, between: MetricsDelta) -> PhaseReport:
    """What clients saw and what the servers did meanwhile."""
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
    """What is written where diagnosis does not look: a cause is true where taking it away alone moved P99."""
    return {
        "scenario": report.scenario,
        "seed": report.seed,
        "truth": [one.cause for one in report.truth if one.moves],
        "injected": [msgspec.to_builtins(one) for one in report.truth],
        "spoiled": list(report.spoiled),
    }
