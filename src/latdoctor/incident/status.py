"""Where an incident stands: its stages, what was looked at and what not, what stands changed, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.incident import events
from latdoctor.incident.elapsed import clock_of, elapsed_by_entry, elapsed_until, start_of
from latdoctor.incident.evidence_store import load_diagnosis
from latdoctor.incident.next_step import NextStep, next_step
from latdoctor.incident.sop.clock import LATE, UNKNOWN_STAGE, StageState, permitted, stage_states
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
    return (*_unverified(own, ""), *_unverified(others, ", not of this incident"), *_last_look(incident))


def _unverified(runs: Sequence[RunState], whose: str) -> Iterator[str]:
    for run in runs:
        told = f"run {run.id} ({clean(run.plan.playbook, 100)} on {clean(run.plan.target.name, 100)}{whose})"
        if run.open and run.standing:
            yield f"a change stands that nobody has verified: {told} has not come to its end; latdoctor recover"
        elif run.open:
            yield f"{told} has not come to its end, and has changed nothing so far; latdoctor recover"
        elif run.outcome is Outcome.HELD and run.standing:
            yield f"a change stands that nobody has verified: {told} was held; latdoctor rollback {run.id}"


def _last_look(incident: Incident) -> Iterator[str]:
    """Unless a change was verified since: that is a later look, and P99 was within the SLO."""
    last = next(iter(reversed(incident.of(events.DIAGNOSED))), None)
    if last is None:
        return
    verified = {run.id for run in run_history.runs(incident.entries) if run.outcome is Outcome.VERIFIED}
    since = any(one.kind == "verify.passed" and one.run in verified and one.seq > last.seq for one in incident.entries)
    said = decode_body(last, events.DiagnosisRecord)
    if said.level == _CRITICAL and not since:
        named = ", ".join(clean(cause.id, 100) for cause in said.causes if cause.named)
        yield f"the last look, of {clock_of(last.at)} UTC, was critical: {named or clean(said.message, 400)}"


SCHEMA_VERSION = "1"
OK, NOT_READ, IS_LATE, NOT_KNOWN = 0, 1, 3, 4
BEFORE, ELSEWHERE = "from before this incident", "from outside this incident"
_NOTES = 20  # of the last are told


class DiagnosisSummary(Struct, frozen=True):
    """A diagnosis. `looked` are the tiers of which something was seen, told of the last one only; None where that is
    not kept any more.
    """

    at: str
    level: str
    message: str
    answer: str
    causes: tuple[events.CauseRecord, ...]
    unseen: tuple[str, ...]
    looked: tuple[str, ...] | None
    next_looks: tuple[str, ...]  # sources that would tell more
    document: str
    bundle: str


class ChangedField(Struct, frozen=True):
    """A field that a run has changed and that is not known to be as before."""

    resource: str
    name: str
    before: Value
    after: Value


class AttemptedRun(Struct, frozen=True):
    """A run. `incident_status` is what of it stands, and `undo` the command that takes it back.

    `whose` is empty for a run of the incident itself; else it says that it is not.
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
    """All of it, as of `at`. Times in seconds; `began` is unix seconds by `stage_states` (empty: this machine's).

    `inherited` are runs on its target that are not its own: what they changed stands there, or they have not come to
    their end. `unread`: why its SOP cannot be read. Then it has no stages here, and what is permitted is not known.
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
        """For bots, what is due now: overdue, else not known, else neither. A stage that was met late is met, and where
        it is closed nothing is due any more.
        """
        if self.unread:
            return NOT_READ
        if not self.open:
            return OK
        due = {stage.status for stage in self.stages if not stage.done}
        return IS_LATE if LATE in due else NOT_KNOWN if UNKNOWN_STAGE in due else OK

    @property
    def current(self) -> StageState | None:
        """The first stage that is not met."""
        return next((stage for stage in self.stages if not stage.done), None)


def incident_status(
    sop: Sop | None,
    incident: Incident,
    now: Moment,
    place: Path,
    unread: str = "",
    others: Sequence[RunState] = (),
) -> IncidentStatus:
    """How `incident` stands at `now`; once it is closed, at its closing. `place` is the state folder; `unread` says why
    there is no `sop`; `others` are the runs on its target that are not its own (`inherited`).

    Raises msgspec.ValidationError for an entry that another version wrote otherwise.
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
        seen=_all_seen(incident, place),
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


def _all_seen(incident: Incident, place: Path) -> tuple[DiagnosisSummary, ...]:
    *earlier, last = incident.of(events.DIAGNOSED) or (None,)
    if last is None:
        return ()
    whole = load_diagnosis(place, decode_body(last, events.DiagnosisRecord))
    return (*(_seen(entry, None) for entry in earlier if entry), _seen(last, whole))


def _seen(entry: JournalEntry, whole: Diagnosis | None) -> DiagnosisSummary:
    said = decode_body(entry, events.DiagnosisRecord)
    return DiagnosisSummary(
        at=entry.at,
        level=said.level,
        message=said.message,
        answer=said.answer,
        causes=said.causes,
        unseen=said.unseen,
        looked=tuple(tier.name for tier in whole.tiers if tier.seen in ("seen", "partly")) if whole else None,
        next_looks=tuple(one.ask for one in whole.next_looks) if whole else (),
        document=said.document,
        bundle=said.bundle,
    )


def _tried(run: RunState) -> AttemptedRun:
    stands = tuple(_changed(run))
    return AttemptedRun(
        run=run.id,
        playbook=run.plan.playbook,
        title=run.plan.title,
        target=run.plan.target.name,
        at=run.opened_at,
        outcome=run.outcome.value if run.outcome else "unfinished",
        reason=run.reason,
        standing=stands,
        undo=_undo(run) if stands else "",
    )


def _inherited(incident: Incident, others: Sequence[RunState]) -> tuple[AttemptedRun, ...]:
    """Without the fields that a later run has set too: of these, that one tells how they stand."""
    runs = sorted((*others, *run_history.runs(incident.entries)), key=lambda run: run.opened_at)
    gone, began = run_history.overset(runs), unix_seconds(incident.entries[0].at)
    found = []
    for run in others:
        told = _tried(run)
        stands = tuple(one for one in told.standing if run_history.field_at(one.resource, one.name) not in gone[run.id])
        if stands or run.open:
            whose = BEFORE if run.opened_at <= began else ELSEWHERE
            found.append(replace(told, standing=stands, undo=_undo(run), whose=whose))
    return tuple(found)


def _changed(run: RunState) -> Sequence[ChangedField]:
    return [
        ChangedField(run.change(touched).resource, field.name, field.before, field.after)
        for touched in reversed(run.standing)
        if run.change(touched).undo != "none-needed"
        for field in run.change(touched).fields
    ]


def _undo(run: RunState) -> str:
    return "latdoctor recover" if run.outcome in (None, Outcome.INCOMPLETE) else f"latdoctor rollback {run.id}"


def _remark(entry: JournalEntry) -> Note:
    note = decode_body(entry, events.NoteAdded)
    return Note(entry.at, note.by, note.text)
