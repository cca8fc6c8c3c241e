"""Status of an incident: its stages, diagnoses, runs, remaining changes, and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.incident import events
from latdoctor.incident.elapsed import clock_of, elapsed_by_entry, elapsed_until, start_of
from latdoctor.incident.evidence_store import load_diagnosis
from latdoctor.incident.next_step import NextStep, next_step
from latdoctor.incident.sop.clock import StageState, StageStatus, permitted, stage_states
from latdoctor.incident.sop.model import ACTIONS, Sop
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry, Moment, unix_seconds
from latdoctor.remediation import run_history
from latdoctor.remediation.change import Value
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Outcome
from latdoctor.sanitize import clean

_CRITICAL = "critical"


def unsettled(incident: Incident, others: Sequence[RunState] = ()) -> tuple[str, ...]:
    """A line of each; `others` are the runs on its target that are not its own (`inherited`).

    Raises msgspec.ValidationError for an entry that another version wrote otherwise.
    """
    own = run_history.runs(incident.entries)
    return (*_unverified(own, ""), *_unverified(others, ", not of this incident"), *_last_diagnosis(incident))


def _unverified(runs: Sequence[RunState], suffix: str) -> Iterator[str]:
    for run in runs:
        run_text = f"run {run.id} ({clean(run.plan.playbook, 100)} on {clean(run.plan.target.name, 100)}{suffix})"
        if run.proof_open:
            yield f"a change is in effect whose proof is pending: {run_text}; latdoctor runs show {run.id}"
        elif run.open and run.in_effect:
            yield f"an unverified change is in place: {run_text} has not ended; latdoctor recover"
        elif run.open:
            yield f"{run_text} has not ended and has changed nothing so far; latdoctor recover"
        elif run.outcome is Outcome.HELD and run.in_effect:
            yield f"an unverified change is in place: {run_text} was held; latdoctor rollback {run.id}"


def _last_diagnosis(incident: Incident) -> Iterator[str]:
    """Critical last diagnosis, unless a change was verified after it (then P99 was within the SLO)."""
    last = next(iter(reversed(incident.of(events.DIAGNOSED))), None)
    if last is None:
        return
    verified = {run.id for run in run_history.runs(incident.entries) if run.outcome is Outcome.VERIFIED}
    since = any(one.kind == "verify.passed" and one.run in verified and one.seq > last.seq for one in incident.entries)
    diagnosed = decode_body(last, events.DiagnosisRecord)
    if diagnosed.level == _CRITICAL and not since:
        named = ", ".join(clean(cause.id, 100) for cause in diagnosed.causes if cause.named)
        yield f"the last diagnosis, {clock_of(last.at)} UTC, was critical: {named or clean(diagnosed.message, 400)}"


SCHEMA_VERSION = "1"
BEFORE, ELSEWHERE = "from before this incident", "from outside this incident"
_NOTES = 20  # latest notes that are reported


class StatusExitCode(IntEnum):
    """Exit codes of `sop status`."""

    OK = 0
    UNREADABLE = 1
    LATE = 3
    UNKNOWN = 4


class DiagnosisSummary(Struct, frozen=True):
    """A diagnosis. `looked`: tiers with evidence, for the last diagnosis only; None where the document is gone."""

    at: str
    level: str
    message: str
    answer: str
    causes: tuple[events.CauseRecord, ...]
    unseen: tuple[str, ...]
    looked: tuple[str, ...] | None
    next_looks: tuple[str, ...]  # sources that would add evidence
    document: str
    bundle: str


class ChangedField(Struct, frozen=True):
    """A field that a run has changed and that is not known to be as before."""

    resource: str
    name: str
    before: Value
    after: Value


class AttemptedRun(Struct, frozen=True):
    """A playbook run. `standing`: its changes still in place; `undo`: the command that rolls them back.

    `whose` is empty for a run of this incident; else it states where the run came from.
    """

    run: str
    playbook: str
    title: str
    target: str
    at: float  # unix seconds
    outcome: str  # of remedy.result.Outcome; "unfinished"
    reason: str
    standing: tuple[ChangedField, ...]
    undo: str
    whose: str = ""


class Note(Struct, frozen=True):
    at: str
    by: str
    text: str


class IncidentStatus(Struct, frozen=True):
    """Status of an incident at `at`. Times in seconds; `began` is unix seconds by `clock` (empty: this machine's).

    `inherited`: other runs on its target that left changes or have not ended. `unread`: why the SOP cannot be read;
    then the stages are empty and the permitted actions unknown.
    """

    schema_version: str
    incident: str
    title: str
    targets: tuple[str, ...]
    open: bool
    outcome: str  # of its closing
    sop: str
    sop_title: str
    opened_at: str
    began: float
    clock: str
    clock_note: str
    at: str
    lasted: float | None
    stages: tuple[StageState, ...]
    alerts: Mapping[str, int]  # by status
    seen: tuple[DiagnosisSummary, ...]
    refused: int  # runs that a guard refused
    tried: tuple[AttemptedRun, ...]
    notes: tuple[Note, ...]
    permitted: tuple[str, ...]
    next: NextStep
    unread: str = ""
    inherited: tuple[AttemptedRun, ...] = ()

    @property
    def exit_code(self) -> int:
        """For scripts: overdue, else unknown, else OK. A stage met late counts as met; a closed incident is OK."""
        if self.unread:
            return StatusExitCode.UNREADABLE
        if not self.open:
            return StatusExitCode.OK
        due = {stage.status for stage in self.stages if not stage.done}
        return (
            StatusExitCode.LATE
            if StageStatus.LATE in due
            else StatusExitCode.UNKNOWN
            if StageStatus.UNKNOWN in due
            else StatusExitCode.OK
        )

    @property
    def current(self) -> StageState | None:
        """The first stage that is not met."""
        return next((stage for stage in self.stages if not stage.done), None)


def incident_status(
    sop: Sop | None, incident: Incident, now: Moment, place: Path, unread: str = "", others: Sequence[RunState] = ()
) -> IncidentStatus:
    """Status of `incident` at `now`, or at its closing. `place` is the state folder; `unread` is why there is no `sop`;
    `others` are other runs on its target (`other_runs`).

    Raises msgspec.ValidationError for an entry in the format of another version.
    """
    opened, start = incident.opened, start_of(incident)
    states = stage_states(sop, incident, now) if sop else ()
    closing = next(iter(incident.of(events.CLOSED)), None)
    lasted = elapsed_by_entry(incident)[closing.digest] if closing else elapsed_until(incident, now)
    counted = [alert.status for alert in incident.alerts.values()]
    return IncidentStatus(
        schema_version=SCHEMA_VERSION,
        incident=incident.id,
        title=opened.title,
        targets=opened.targets,
        open=incident.open,
        outcome=incident.closed.outcome if incident.closed else "",
        sop=opened.sop,
        sop_title=sop.title if sop else "",
        opened_at=incident.entries[0].at,
        began=start.at,
        clock=start.clock,
        clock_note=start.note,
        at=closing.at if closing else now.at,
        lasted=lasted.seconds,
        stages=states,
        alerts={status: counted.count(status) for status in dict.fromkeys(counted)},
        seen=_summaries(incident, place),
        refused=len(incident.of("run.refused")),
        tried=tuple(_tried(run) for run in run_history.runs(incident.entries)),
        notes=tuple(_remark(entry) for entry in incident.of(events.NOTED))[-_NOTES:],
        permitted=tuple(action for action in ACTIONS if sop and permitted(sop, states, action)),
        next=next_step(incident, sop, states, others),
        unread=unread,
        inherited=_inherited(incident, others),
    )


def opened_at(found: IncidentStatus) -> float:
    """Unix seconds."""
    return unix_seconds(found.opened_at)


def _summaries(incident: Incident, place: Path) -> tuple[DiagnosisSummary, ...]:
    *earlier, last = incident.of(events.DIAGNOSED) or (None,)
    if last is None:
        return ()
    whole = load_diagnosis(place, decode_body(last, events.DiagnosisRecord))
    return (*(_summary(entry, None) for entry in earlier if entry), _summary(last, whole))


def _summary(entry: JournalEntry, whole: Diagnosis | None) -> DiagnosisSummary:
    diagnosed = decode_body(entry, events.DiagnosisRecord)
    return DiagnosisSummary(
        at=entry.at,
        level=diagnosed.level,
        message=diagnosed.message,
        answer=diagnosed.answer,
        causes=diagnosed.causes,
        unseen=diagnosed.unseen,
        looked=tuple(tier.name for tier in whole.tiers if tier.seen in ("seen", "partly")) if whole else None,
        next_looks=tuple(one.ask for one in whole.next_looks) if whole else (),
        document=diagnosed.document,
        bundle=diagnosed.bundle,
    )


def _tried(run: RunState) -> AttemptedRun:
    fields = tuple(_changed(run))
    return AttemptedRun(
        run=run.id,
        playbook=run.plan.playbook,
        title=run.plan.title,
        target=run.plan.target.name,
        at=run.opened_at,
        outcome=run.outcome.value if run.outcome else "unfinished",
        reason=run.reason,
        standing=fields,
        undo=_undo(run) if fields else "",
    )


def _inherited(incident: Incident, others: Sequence[RunState]) -> tuple[AttemptedRun, ...]:
    """Other runs, without fields that a later run overwrote: the later run reports their state."""
    runs = sorted((*others, *run_history.runs(incident.entries)), key=lambda run: run.opened_at)
    gone, began = run_history.superseded_fields(runs), unix_seconds(incident.entries[0].at)
    found = []
    for run in others:
        run_text = _tried(run)
        fields = tuple(
            one for one in run_text.standing if run_history.field_key(one.resource, one.name) not in gone[run.id]
        )
        if fields or run.open:
            suffix = BEFORE if run.opened_at <= began else ELSEWHERE
            found.append(replace(run_text, standing=fields, undo=_undo(run), whose=suffix))
    return tuple(found)


def _changed(run: RunState) -> Sequence[ChangedField]:
    return [
        ChangedField(run.change(touched).resource, field.name, field.before, field.after)
        for touched in reversed(run.in_effect)
        if run.change(touched).undo != "none-needed"
        for field in run.change(touched).fields
    ]


def _undo(run: RunState) -> str:
    return "latdoctor recover" if run.outcome in (None, Outcome.INCOMPLETE) else f"latdoctor rollback {run.id}"


def _remark(entry: JournalEntry) -> Note:
    note = decode_body(entry, events.NoteAdded)
    return Note(entry.at, note.by, note.text)
