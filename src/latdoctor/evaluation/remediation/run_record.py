"""What happened in one run, while it happens, and the report that this comes to."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from latdoctor import __version__
from latdoctor.errors import OperationError
from latdoctor.evaluation import machine_state
from latdoctor.evaluation.ground_truth import MachineLoad, TimeRange
from latdoctor.evaluation.machine_state import OTHERS
from latdoctor.evaluation.remediation.run_specs import RemediationRunSpec
from latdoctor.evaluation.remediation.simulated_operator import SelectedPlaybook
from latdoctor.evidence.bundle import Bundle
from latdoctor.journal.entry import JournalEntry, unix_seconds
from latdoctor.lab.clients import MetricsDelta, MetricsSnapshot
from latdoctor.lab.run_report import BEFORE, MOVES, PhaseReport, phase_report, unsteady
from latdoctor.lab.scenario import Scenario
from latdoctor.load.openloop import Progress
from latdoctor.load.plan import LoadPlan
from latdoctor.load.summary import LoadResult, Summary, merge
from latdoctor.remediation.observation import Judged
from latdoctor.remediation.run_result import Result
from latdoctor.remediation.verification import WINDOW

VERIFIED, ROLLED_BACK, REFUSED, FAILED, INCOMPLETE = "verified", "rolled-back", "refused", "failed", "incomplete"
NOTHING_NAMED, NO_PLAYBOOK = "nothing-named", "no-playbook"


class IncidentTimes(Struct, frozen=True):
    """When what happened, seconds after the incident began; None: it did not.

    `over`: the beginning of the first window of five seconds in which the clients' P99 was over the SLO.
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
        """The time to mitigate; from the beginning of the incident where the SLO was never broken."""
        return None if self.verified is None else self.verified - (self.over or 0.0)


class SaturatedRates(Struct, frozen=True):
    """The server while it is never idle: requests per second, and what one answer and one call take."""

    rate: float
    calls_per_answer: float | None
    page_faults_per_call: float | None
    allocations_per_call: float | None


class RemediationReport(Struct, frozen=True):
    """One run. `spoiled` says why its figures cannot be trusted, and knows nothing of how it ended."""

    run: str
    kind: str
    scenario: str
    seed: int
    rate: float
    slo: float  # seconds
    causes: tuple[str, ...]  # what was put in
    named: tuple[str, ...]  # what the diagnosis named
    cause: str  # the one that was acted on
    playbook: str
    outcome: str
    reason: str
    before: PhaseReport
    incident: PhaseReport  # until the playbook was at work
    after: PhaseReport | None  # once it was verified
    moments: IncidentTimes
    restored: bool | None = None  # whether the configuration was the one from before; None: not to be told
    saturated: tuple[SaturatedRates, SaturatedRates] | None = None  # in the incident, and mended
    last: tuple[Judged, ...] = ()  # how the conditions stood in the last look
    spoiled: tuple[str, ...] = ()
    machine: MachineLoad = MachineLoad(0)
    tries: int = 1
    tool_version: str = ""

    @property
    def right(self) -> bool:
        """Whether the cause that was acted on is one that was put in."""
        return self.cause in self.causes


def within(result: LoadResult, span: TimeRange) -> Summary | None:
    """What clients saw of the whole phases within `span`, in seconds from the start of the load; None for no phase."""
    lengths = {phase.name: phase.seconds for phase in result.plan.phases}
    inside = [
        phase.whole
        for phase in result.phases
        if span.start <= phase.start + 0.01 and phase.start + lengths[phase.name] <= span.end + 0.01
    ]
    return merge(inside) if inside else None


def spoiled(
    result: LoadResult, spans: Sequence[TimeRange], before: PhaseReport, incident: PhaseReport, others: float | None
) -> Iterator[str]:
    """Why a run does not count, as for a recording of the incident bench; how it ended does not matter.

    What the generator did in a phase that none of `spans` (seconds from the start of the load) touches is of no
    account. What comes after the mending is none of them: a generator that is late then adds to the latencies, and so
    speaks against the playbook only.
    """
    looked = tuple(f"{name}: " for name in _touched(result, spans))
    named = tuple(f"{phase.name}: " for phase in result.plan.phases)
    for reason in result.spoiled:
        if reason.startswith("stopped after") or (reason.startswith(named) and not reason.startswith(looked)):
            continue
        yield reason
    yield from unsteady(before)
    if others is not None and others > OTHERS:
        yield f"others took {others:.0%} of the processors"
    if not moved(before, incident):
        yield f"what was put in moved nothing: the tail is the same as in the phase {BEFORE}"


def moved(before: PhaseReport, incident: PhaseReport) -> bool:
    """Whether the incident is one: the tail is higher than two runs of one scenario differ by, or requests fail."""
    if before.p99 is None or incident.p99 is None:
        return False
    lost = 1 - incident.answered / incident.requests if incident.requests else 0.0
    return before.p99 <= MOVES * incident.p99 or lost > 0.05


def _touched(result: LoadResult, spans: Sequence[TimeRange]) -> Iterator[str]:
    lengths = {phase.name: phase.seconds for phase in result.plan.phases}
    for phase in result.phases:
        end = phase.start + lengths[phase.name]
        if any(phase.start < span.end and span.start < end for span in spans):
            yield phase.name


@dataclass
class SloAlarm:
    """Hears the generator: when a window of the incident was over the SLO for the first time.

    `begins`: the incident's beginning, seconds from the start of the load.
    """

    slo: float
    begins: float
    over: float | None = None
    rung: threading.Event = field(default_factory=threading.Event)

    def heard(self, progress: Progress) -> None:
        if self.over is None and progress.elapsed > self.begins and (progress.p99 or 0.0) > self.slo:
            self.over = max(0.0, progress.elapsed - WINDOW - self.begins)
            self.rung.set()


@dataclass
class RunProgress:
    """What has happened so far. Times in unix seconds."""

    looks: dict[str, MetricsSnapshot] = field(default_factory=dict)  # the servers' pages at some moments
    usage: tuple[machine_state.Usage | None, machine_state.Usage | None] = (None, None)
    begun: float = 0.0
    noticed: float = 0.0
    diagnosed: float | None = None
    at_work: float = 0.0  # the playbook, or somebody who found none
    ended: float = 0.0
    measured: float = 0.0
    look: Bundle | None = None  # what was diagnosed
    named: tuple[str, ...] = ()
    remedy: SelectedPlaybook | None = None
    outcome: str = ""
    reason: str = ""
    result: Result | None = None
    restored: bool | None = None


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What a report starts from beside the story."""

    cell: RemediationRunSpec
    scenario: Scenario
    plan: LoadPlan
    rate: float
    entries: tuple[JournalEntry, ...]


def report_of(told: RunInputs, story: RunProgress, alarm: SloAlarm, result: LoadResult) -> RemediationReport:
    names = [phase.name for phase in told.plan.phases]
    edges = dict(zip(names, told.plan.starts(), strict=True))
    well = TimeRange(edges[BEFORE], edges[names[names.index(BEFORE) + 1]])
    first = next(phase for phase in told.plan.phases if phase.name == told.scenario.incident.name)
    ill = TimeRange(alarm.begins, max(alarm.begins + first.seconds, story.at_work - result.started))
    before = _figures("before", result, well, story.looks["well"], story.looks["well ended"])
    incident = _figures("incident", result, ill, story.looks["ill"], story.looks["at work"])
    if before is None or incident is None:
        raise OperationError("the load was over before the incident was")
    mended, after = TimeRange(story.ended - result.started, story.measured - result.started), None
    if story.outcome == VERIFIED:
        after = _figures("after", result, mended, story.looks["mended"], story.looks["measured"])
    processors = os.cpu_count() or 1
    others = machine_state.others(*story.usage, processors)
    remedy = story.remedy
    return RemediationReport(
        run=told.cell.run,
        kind=told.cell.kind,
        scenario=told.scenario.id,
        seed=told.cell.seed,
        rate=told.rate,
        slo=told.scenario.load.slo,
        causes=tuple(truth.cause for truth in told.scenario.causes),
        named=story.named,
        cause=remedy.because.cause if remedy and remedy.because else "",
        playbook=remedy.playbook.id if remedy else "",
        outcome=story.outcome,
        reason=story.reason,
        before=before,
        incident=incident,
        after=after,
        moments=_moments(story, alarm, told.entries),
        restored=story.restored,
        last=story.result.last if story.result else (),
        spoiled=tuple(spoiled(result, (well, ill), before, incident, others)),
        machine=MachineLoad(processors, None, others),
        tool_version=__version__,
    )


def _figures(
    name: str, result: LoadResult, span: TimeRange, first: MetricsSnapshot, last: MetricsSnapshot
) -> PhaseReport | None:
    whole = within(result, span)
    return None if whole is None else phase_report(name, whole, MetricsDelta(first, last))


def _moments(story: RunProgress, alarm: SloAlarm, entries: Sequence[JournalEntry]) -> IncidentTimes:
    def said(kind: str) -> float | None:
        times = [unix_seconds(entry.at) for entry in entries if entry.kind == kind]
        return times[-1] - story.begun if times else None

    changes = [unix_seconds(entry.at) for entry in entries if entry.kind == "change.made"]
    return IncidentTimes(
        over=alarm.over,
        noticed=story.noticed - story.begun,
        diagnosed=None if story.diagnosed is None else story.diagnosed - story.begun,
        changed=changes[0] - story.begun if changes else None,
        settled=said("settled"),
        verified=said("verify.passed"),
        closed=said("run.closed"),
    )
