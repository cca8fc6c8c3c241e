"""What happened in one run, while it happens, and the report that this comes to."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from latdoctor import __version__
from latdoctor.errors import OperationError
from latdoctor.evidence.bundle import Bundle
from latdoctor.journal.entry import Entry, unix_seconds
from latdoctor.lab.load.openloop import Progress
from latdoctor.lab.load.plan import LoadPlan
from latdoctor.lab.load.result import LoadResult
from latdoctor.lab.outcome import BEFORE, PhaseReport, phase_report
from latdoctor.lab.pages import Between, Look
from latdoctor.lab.scenario import Scenario
from latdoctor.remedy.proving import WINDOW
from latdoctor.remedy.result import Result
from latdoctor.trials import machine
from latdoctor.trials.mending.cells import MendingCell
from latdoctor.trials.mending.report import VERIFIED, MendingReport, Moments, spoiled, within
from latdoctor.trials.mending.user import Remedy
from latdoctor.trials.truth import Machine, Span


@dataclass
class Alarm:
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
class Story:
    """What has happened so far. Times in unix seconds."""

    looks: dict[str, Look] = field(default_factory=dict)  # the servers' pages at some moments
    usage: tuple[machine.Usage | None, machine.Usage | None] = (None, None)
    begun: float = 0.0
    noticed: float = 0.0
    diagnosed: float | None = None
    at_work: float = 0.0  # the playbook, or somebody who found none
    ended: float = 0.0
    measured: float = 0.0
    look: Bundle | None = None  # what was diagnosed
    named: tuple[str, ...] = ()
    remedy: Remedy | None = None
    outcome: str = ""
    reason: str = ""
    result: Result | None = None
    restored: bool | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a report starts from beside the story."""

    cell: MendingCell
    scenario: Scenario
    plan: LoadPlan
    rate: float
    entries: tuple[Entry, ...]


def report_of(told: Told, story: Story, alarm: Alarm, result: LoadResult) -> MendingReport:
    names = [phase.name for phase in told.plan.phases]
    edges = dict(zip(names, told.plan.starts(), strict=True))
    well = Span(edges[BEFORE], edges[names[names.index(BEFORE) + 1]])
    first = next(phase for phase in told.plan.phases if phase.name == told.scenario.incident.name)
    ill = Span(alarm.begins, max(alarm.begins + first.seconds, story.at_work - result.started))
    before = _figures("before", result, well, story.looks["well"], story.looks["well ended"])
    incident = _figures("incident", result, ill, story.looks["ill"], story.looks["at work"])
    if before is None or incident is None:
        raise OperationError("the load was over before the incident was")
    mended, after = Span(story.ended - result.started, story.measured - result.started), None
    if story.outcome == VERIFIED:
        after = _figures("after", result, mended, story.looks["mended"], story.looks["measured"])
    processors = os.cpu_count() or 1
    others = machine.others(*story.usage, processors)
    remedy = story.remedy
    return MendingReport(
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
        machine=Machine(processors, None, others),
        tool_version=__version__,
    )


def _figures(name: str, result: LoadResult, span: Span, first: Look, last: Look) -> PhaseReport | None:
    whole = within(result, span)
    return None if whole is None else phase_report(name, whole, Between(first, last))


def _moments(story: Story, alarm: Alarm, entries: Sequence[Entry]) -> Moments:
    def said(kind: str) -> float | None:
        times = [unix_seconds(entry.at) for entry in entries if entry.kind == kind]
        return times[-1] - story.begun if times else None

    changes = [unix_seconds(entry.at) for entry in entries if entry.kind == "change.made"]
    return Moments(
        over=alarm.over,
        noticed=story.noticed - story.begun,
        diagnosed=None if story.diagnosed is None else story.diagnosed - story.begun,
        changed=changes[0] - story.begun if changes else None,
        settled=said("settled"),
        verified=said("verify.passed"),
        closed=said("run.closed"),
    )
