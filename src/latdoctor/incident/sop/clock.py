"""Stage states of an SOP. A function of the procedure, the journal's entries, and the time.

* **met**: evidence for the stage, or a human mark (`stage.marked`), was journaled no later than its due time.
* **late**: the due time passed before that; `met_at` shows whether it was met since.
* **unmet**: not met, and not due yet; or the clock stopped before it was due (incident closed, or a false alarm).
* **unknown**: undecidable. The latest evidence is itself unknown and the stage is due; or the time of the evidence or
  of now is unknown.

A met stage becomes unmet when its evidence is void (a run was rolled back, an alert fires again).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from latdoctor.conditions.evaluator import HOLDS, UNKNOWN
from latdoctor.incident import events
from latdoctor.incident.elapsed import ClockType, Elapsed, elapsed_by_entry, elapsed_until, start_of
from latdoctor.incident.events import Confirmation
from latdoctor.incident.sop.model import Sign, Sop, SopStage, allows
from latdoctor.incident.sop.stage_evidence import SignContext, SignEvidence, evidence_of
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry, Moment
from latdoctor.sanitize import clean


class StageStatus(StrEnum):
    """Status of a stage."""

    MET = "met"
    LATE = "late"
    UNMET = "unmet"
    UNKNOWN = "unknown"


class StageState(Struct, frozen=True):
    """State of one stage. Times in seconds from the incident's start; `margin` is what remained when it was met.

    While unmet, `margin` is what remains now: negative when overdue, None when unknown. `met_at` is the journal time
    (RFC 3339, UTC), `by` the digest of the entry that met it, `how` the message of that entry.
    """

    id: str
    title: str
    due: float
    status: StageStatus
    met_at: str | None = None
    seconds: float | None = None  # from the start until it was met
    margin: float | None = None
    by: str = ""
    how: str = ""
    by_hand: bool = False
    wall: bool = False  # measured by the wall clock, because the machine was rebooted
    why: str = ""  # reason of an unknown status, or what is known of an unmet stage
    permits: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether it is met, on time or late."""
        return self.met_at is not None


def stage_states(sop: Sop, incident: Incident, now: Moment | None = None) -> tuple[StageState, ...]:
    """State of every stage at `now`; without it, at the last entry.

    Raises msgspec.ValidationError for an entry in the format of another version.
    """
    times = elapsed_by_entry(incident)
    end, ended = _end(incident, times, now)
    states: list[StageState] = []
    by: dict[str, JournalEntry] = {}  # entry that met each stage so far
    for stage in sop.stages:
        entry, how, unknown = _first_evidence(stage, incident, times, by)
        if entry is not None:
            by[stage.id] = entry
            states.append(_met(stage, entry, how, times[entry.digest]))
        else:
            states.append(_not_met(stage, how, unknown, end, ended))
    return tuple(states)


def permitted(sop: Sop, states: Sequence[StageState], action: str) -> bool:
    """Whether `action` is permitted now: from the start on, or by a stage that is met."""
    return allows(sop.permits, action) or any(state.done and allows(state.permits, action) for state in states)


def _first_evidence(
    stage: SopStage, incident: Incident, times: dict[str, Elapsed], by: dict[str, JournalEntry]
) -> tuple[JournalEntry | None, str, bool]:
    """First entry that meets the stage, and its message; else the message of the latest, and whether it is unknown."""
    mark = _mark(stage, incident)
    found = [mark] if mark else []
    last: list[SignEvidence] = []
    for sign in stage.met:
        if sign.after and sign.after not in by:
            continue
        for one in evidence_of(sign, SignContext(incident, times, start_of(incident), by.get(sign.after))):
            (found if one.status == HOLDS else last).append(_named(one, sign))
    first = min(found, key=lambda one: one.entry.seq, default=None)
    if first:
        return first.entry, first.message, False
    latest = max(last, key=lambda one: one.entry.seq, default=None)
    if latest is None:
        return None, "", False
    return None, latest.message, latest.status == UNKNOWN


def _named(one: SignEvidence, sign: Sign) -> SignEvidence:
    return SignEvidence(one.status, one.entry, f"{sign.event}: {one.message}" if one.message else sign.event)


def _mark(stage: SopStage, incident: Incident) -> SignEvidence | None:
    """First human mark of the stage."""
    for entry in incident.of(events.MARKED):
        mark = decode_body(entry, events.StageMarked)
        if mark.stage == stage.id:
            return SignEvidence(HOLDS, entry, f"marked by {clean(mark.by, 80) or 'hand'}")
    return None


def _met(stage: SopStage, entry: JournalEntry, how: str, at: Elapsed) -> StageState:
    late = at.seconds is not None and at.seconds > stage.due
    return StageState(
        id=stage.id,
        title=stage.title,
        due=stage.due,
        status=StageStatus.UNKNOWN if at.seconds is None else StageStatus.LATE if late else StageStatus.MET,
        met_at=entry.at,
        seconds=at.seconds,
        margin=None if at.seconds is None else stage.due - at.seconds,
        by=entry.digest,
        how=how,
        by_hand=entry.kind == events.MARKED,
        wall=at.by == ClockType.WALL,
        why=at.why,
        permits=stage.permits,
        notify=stage.notify,
    )


def _not_met(stage: SopStage, how: str, unknown: bool, end: Elapsed, ended: str) -> StageState:
    margin = None if end.seconds is None else stage.due - end.seconds
    if margin is None:
        status, why = StageStatus.UNKNOWN, end.why
    elif margin >= 0:
        status, why = StageStatus.UNMET, ended or how
    else:
        status, why = (StageStatus.UNKNOWN if unknown else StageStatus.LATE), how
    return StageState(
        id=stage.id,
        title=stage.title,
        due=stage.due,
        status=status,
        margin=margin,
        wall=end.by == ClockType.WALL,
        why=why,
        permits=stage.permits,
        notify=stage.notify,
    )


def _end(incident: Incident, times: dict[str, Elapsed], now: Moment | None) -> tuple[Elapsed, str]:
    """Time at which the clock stopped or is now, and why it stopped."""
    stopped = clock_stopped_by(incident)
    if stopped is not None:
        why = "the incident was closed" if stopped.kind == events.CLOSED else "it was a false alarm"
        return times[stopped.digest], why
    if now is None:
        return times[incident.entries[-1].digest], ""
    return elapsed_until(incident, now), ""


def clock_stopped_by(incident: Incident) -> JournalEntry | None:
    """Entry that stopped the clock: the closing, or a false alarm without a confirmation."""
    closed = incident.of(events.CLOSED)
    confirmed = incident.of(events.CONFIRMED)
    statuses = [decode_body(entry, events.AlertConfirmed).status for entry in confirmed]
    false = [entry for entry, status in zip(confirmed, statuses, strict=True) if status == Confirmation.FALSE_ALARM]
    stopped = [*closed[:1], *(false[:1] if Confirmation.CONFIRMED not in statuses else ())]
    return min(stopped, key=lambda entry: entry.seq, default=None)
