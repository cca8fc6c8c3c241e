"""The progress of one remediation run, and the report made from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from latdoctor import __version__
from latdoctor.errors import OperationError
from latdoctor.evaluation.ground_truth import MachineLoad, TimeRange
from latdoctor.evaluation.remediation.run_specs import PlaybookChoice, RemediationRunSpec
from latdoctor.evaluation.remediation.simulated_operator import SelectedPlaybook
from latdoctor.evidence.bundle import Bundle
from latdoctor.journal.entry import JournalEntry, unix_seconds
from latdoctor.lab.metrics_snapshot import MetricsDelta, MetricsSnapshot
from latdoctor.lab.run_report import BEFORE, MOVES, PhaseReport, phase_report, unsteady
from latdoctor.lab.scenario import Scenario
from latdoctor.load import machine_state
from latdoctor.load.openloop import Progress
from latdoctor.load.plan import LoadPlan
from latdoctor.load.summary import LoadProblemCode, LoadResult, Summary, merge
from latdoctor.remediation.observation import ConditionResult
from latdoctor.remediation.run_observer import WINDOW
from latdoctor.remediation.run_result import Result


class RemediationOutcome(StrEnum):
    """How a run ended: the outcome of its playbook, or why none was run."""

    NOTHING_NAMED = "nothing-named"
    NO_PLAYBOOK = "no-playbook"
    PLANNED = "planned"
    VERIFIED = "verified"
    FAILED = "failed"
    ROLLED_BACK = "rolled-back"
    PARTLY_ROLLED_BACK = "partly-rolled-back"
    HELD = "held"
    REFUSED = "refused"
    INCOMPLETE = "incomplete"


class IncidentTimes(Struct, frozen=True):
    """Times in seconds after the incident began; None: did not happen.

    `over`: the start of the first five-second window in which the clients' P99 exceeded the SLO.
    """

    over: float | None = None
    noticed: float = 0.0
    diagnosed: float | None = None
    changed: float | None = None
    settled: float | None = None
    verified: float | None = None
    closed: float | None = None

    @property
    def to_verified(self) -> float | None:
        """The time to mitigation; from the beginning of the incident where the SLO was never violated."""
        return None if self.verified is None else self.verified - (self.over or 0.0)


class SaturatedRates(Struct, frozen=True):
    """The saturated server: requests per second, and the cost of one answer and one forward call."""

    rate: float
    calls_per_answer: float | None
    page_faults_per_call: float | None
    allocations_per_call: float | None


class RemediationReport(Struct, frozen=True):
    """One run. `spoiled`: why its figures cannot be trusted, regardless of the outcome."""

    run: str
    kind: PlaybookChoice
    scenario: str
    seed: int
    rate: float
    slo: float  # seconds
    causes: tuple[str, ...]  # injected
    named: tuple[str, ...]  # by the diagnosis
    cause: str  # the one that was acted on
    playbook: str
    outcome: RemediationOutcome
    reason: str
    before: PhaseReport
    incident: PhaseReport  # until the playbook started
    after: PhaseReport | None  # once it was verified
    moments: IncidentTimes
    restored: bool | None = None  # whether the configuration equals the one before; None: unknown
    saturated: tuple[SaturatedRates, SaturatedRates] | None = None  # in the incident, and remediated
    last: tuple[ConditionResult, ...] = ()  # the conditions at the last observation
    spoiled: tuple[str, ...] = ()
    machine: MachineLoad = MachineLoad(0)
    tries: int = 1
    tool_version: str = ""

    @property
    def right(self) -> bool:
        """Whether the cause that was acted on was injected."""
        return self.cause in self.causes


def within(result: LoadResult, span: TimeRange) -> Summary | None:
    """The clients' summary of the complete phases within `span` (seconds from the start of the load)."""
    lengths = {phase.name: phase.seconds for phase in result.plan.phases}
    inside = [
        phase.whole
        for phase in result.phases
        if span.start <= phase.start + 0.01 and phase.start + lengths[phase.name] <= span.end + 0.01
    ]
    return merge(inside) if inside else None


def spoiled(
    result: LoadResult,
    spans: Sequence[TimeRange],
    before: PhaseReport,
    incident: PhaseReport,
    others: float | None,
    *,
    slows: bool = True,
) -> Iterator[str]:
    """Why a run does not count, by the rules for recordings and regardless of its outcome.

    Problems of the generator outside `spans` (seconds from the start of the load) are ignored: a late generator after
    the remediation only adds latency, which counts against the playbook. `slows`: whether an injected fault slows
    anything; wrong answers do not.
    """
    observed = {"", *_overlapping(result, spans)}
    for problem in result.problems:
        if problem.code is not LoadProblemCode.STOPPED and problem.phase in observed:
            yield problem.text
    yield from (problem.text for problem in unsteady(before))
    if others is not None and others > machine_state.OTHERS:
        yield machine_state.other_load(others)
    if slows and not is_incident(before, incident):
        yield f"the fault had no effect: P99 is as in the phase {BEFORE}"


def is_incident(before: PhaseReport, incident: PhaseReport) -> bool:
    """Whether P99 rose by more than the variation between two runs, or more than 5 % of requests failed."""
    if before.p99 is None or incident.p99 is None:
        return False
    lost = 1 - incident.answered / incident.requests if incident.requests else 0.0
    return before.p99 <= MOVES * incident.p99 or lost > 0.05


def _overlapping(result: LoadResult, spans: Sequence[TimeRange]) -> Iterator[str]:
    lengths = {phase.name: phase.seconds for phase in result.plan.phases}
    for phase in result.phases:
        end = phase.start + lengths[phase.name]
        if any(phase.start < span.end and span.start < end for span in spans):
            yield phase.name


@dataclass
class SloAlarm:
    """Fires at the first window of the incident in which P99 exceeds the SLO.

    `begins`: the incident's beginning, seconds from the start of the load.
    """

    slo: float
    begins: float
    over: float | None = None
    fired: threading.Event = field(default_factory=threading.Event)

    def on_progress(self, progress: Progress) -> None:
        if self.over is None and progress.elapsed > self.begins and (progress.p99 or 0.0) > self.slo:
            self.over = max(0.0, progress.elapsed - WINDOW - self.begins)
            self.fired.set()


@dataclass
class RunProgress:
    """The events of a run so far. Times in unix seconds."""

    pages: dict[str, MetricsSnapshot] = field(default_factory=dict)  # the servers' metrics pages at named moments
    usage: tuple[machine_state.Usage | None, machine_state.Usage | None] = (None, None)
    begun: float = 0.0
    noticed: float = 0.0
    diagnosed: float | None = None
    acting: float = 0.0  # the playbook starts, or no playbook was found
    ended: float = 0.0
    measured: float = 0.0
    observation: Bundle | None = None  # the diagnosed evidence
    named: tuple[str, ...] = ()
    selected: SelectedPlaybook | None = None
    outcome: RemediationOutcome = RemediationOutcome.NOTHING_NAMED
    reason: str = ""
    result: Result | None = None
    restored: bool | None = None


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The inputs of a report beside the progress of the run."""

    spec: RemediationRunSpec
    scenario: Scenario
    plan: LoadPlan
    rate: float
    entries: tuple[JournalEntry, ...]


def report_of(inputs: RunInputs, progress: RunProgress, alarm: SloAlarm, result: LoadResult) -> RemediationReport:
    """The report of a run. Raises OperationError where the load ended before the incident."""
    names = [phase.name for phase in inputs.plan.phases]
    edges = dict(zip(names, inputs.plan.starts(), strict=True))
    healthy = TimeRange(edges[BEFORE], edges[names[names.index(BEFORE) + 1]])
    first = next(phase for phase in inputs.plan.phases if phase.name == inputs.scenario.incident.name)
    faulty = TimeRange(alarm.begins, max(alarm.begins + first.seconds, progress.acting - result.started))
    pages = progress.pages
    before = _figures("before", result, healthy, pages["before"], pages["before ended"])
    incident = _figures("incident", result, faulty, pages["incident"], pages["acting"])
    if before is None or incident is None:
        raise OperationError("the load ended before the incident")
    verified, after = TimeRange(progress.ended - result.started, progress.measured - result.started), None
    if progress.outcome is RemediationOutcome.VERIFIED:
        after = _figures("after", result, verified, pages["verified"], pages["measured"])
    processors = os.cpu_count() or 1
    others = machine_state.others(*progress.usage, processors)
    selected, slows = progress.selected, all(one.slows for one in inputs.scenario.causes)
    return RemediationReport(
        run=inputs.spec.run,
        kind=inputs.spec.kind,
        scenario=inputs.scenario.id,
        seed=inputs.spec.seed,
        rate=inputs.rate,
        slo=inputs.scenario.load.slo,
        causes=tuple(one.cause for one in inputs.scenario.causes),
        named=progress.named,
        cause=selected.because.cause if selected and selected.because else "",
        playbook=selected.playbook.id if selected else "",
        outcome=progress.outcome,
        reason=progress.reason,
        before=before,
        incident=incident,
        after=after,
        moments=_times(progress, alarm, inputs.entries),
        restored=progress.restored,
        last=progress.result.last if progress.result else (),
        spoiled=tuple(spoiled(result, (healthy, faulty), before, incident, others, slows=slows)),
        machine=MachineLoad(processors, None, others),
        tool_version=__version__,
    )


def _figures(
    name: str, result: LoadResult, span: TimeRange, first: MetricsSnapshot, last: MetricsSnapshot
) -> PhaseReport | None:
    whole = within(result, span)
    return None if whole is None else phase_report(name, whole, MetricsDelta(first, last))


def _times(progress: RunProgress, alarm: SloAlarm, entries: Sequence[JournalEntry]) -> IncidentTimes:
    def times(kind: str) -> list[float]:
        return [unix_seconds(entry.at) - progress.begun for entry in entries if entry.kind == kind]

    def last(kind: str) -> float | None:
        return next(iter(times(kind)[-1:]), None)

    return IncidentTimes(
        over=alarm.over,
        noticed=progress.noticed - progress.begun,
        diagnosed=None if progress.diagnosed is None else progress.diagnosed - progress.begun,
        changed=next(iter(times("change.made")), None),
        settled=last("settled"),
        verified=last("verify.passed"),
        closed=last("run.closed"),
    )
