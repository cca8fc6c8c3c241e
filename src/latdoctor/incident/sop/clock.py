"""The clock of an SOP: how each stage stands. A function of the procedure, the journal's entries, and the time.

* **met**: a sign of the stage, or a human (`stage.marked`), is journaled no later than its due time.
* **late**: its due time passed before that; whether it was met since tells `met_at`.
* **unmet**: not met, and not due yet; or the clock stood still before it was due, as the incident was closed or was a
  false alarm.
* **unknown**: it cannot be told. The latest evidence for it is itself unknown and it is due; or it was met, and the
  time of that or of now is not known.

A stage that was met is not any more once its sign is void (a run that was taken back, an alert that fires again).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from latdoctor.conditions.evaluator import HOLDS, UNKNOWN
from latdoctor.incident import events
from latdoctor.incident.elapsed import WALL, Elapsed, elapsed_by_entry, elapsed_until, start_of
from latdoctor.incident.sop.model import Sign, Sop, SopStage, allows
from latdoctor.incident.sop.stage_evidence import SignContext, SignEvidence, evidence_of
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry, Moment
from latdoctor.sanitize import clean

MET, LATE, UNMET, UNKNOWN_STAGE = "met", "late", "unmet", "unknown"


class StageState(Struct, frozen=True):
    """How one stage stands. Times in seconds from the incident's start, and `margin` is how much of them was left.

    While it is not met `margin` is what is left now: negative for what is overdue, None where it is not known.
    `met_at` is what the journal says (RFC 3339, UTC), `by` the digest of the entry that met it, `how` what that says.
    """

    id: str
    title: str
    due: float
    status: str  # MET | LATE | UNMET | NOT_TOLD
    met_at: str | None = None
    seconds: float | None = None  # from the start until it was met
    margin: float | None = None
    by: str = ""
    how: str = ""
    by_hand: bool = False
    wall: bool = False  # by the wall clock, as the machine was started anew meanwhile
    why: str = ""  # why it is unknown, or what is known of one that is not met
    permits: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether it is met, be it late."""
        return self.met_at is not None

    @property
    def overdue(self) -> bool:
        return self.status == LATE and not self.done


def stage_states(sop: Sop, incident: Incident, now: Moment | None = None) -> tuple[StageState, ...]:
    """How every stage stands at `now`; without one, when the last entry was journaled.

    Raises msgspec.ValidationError for an entry that another version wrote otherwise.
    """
    times = elapsed_by_entry(incident)
    end, ended = _end(incident, times, now)
    states: list[StageState] = []
    by: dict[str, JournalEntry] = {}  # what met each stage so far
    for stage in sop.stages:
        entry, how, unknown = _seen(stage, incident, times, by)
        if entry is not None:
            by[stage.id] = entry
            states.append(_met(stage, entry, how, times[entry.digest]))
        else:
            states.append(_not_met(stage, how, unknown, end, ended))
    return tuple(states)


def permitted(sop: Sop, states: Sequence[StageState], action: str) -> bool:
    """Whether `action` is permitted now: from the start on, or by a stage that is met."""
    return allows(sop.permits, action) or any(state.done and allows(state.permits, action) for state in states)


def _seen(
    stage: SopStage, incident: Incident, times: dict[str, Elapsed], by: dict[str, JournalEntry]
) -> tuple[JournalEntry | None, str, bool]:
    """The first entry that meets the stage, and what it says; else what the latest says, and whether it is unknown."""
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
    """What a human said, the first time."""
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
        status=UNKNOWN_STAGE if at.seconds is None else LATE if late else MET,
        met_at=entry.at,
        seconds=at.seconds,
        margin=None if at.seconds is None else stage.due - at.seconds,
        by=entry.digest,
        how=how,
        by_hand=entry.kind == events.MARKED,
        wall=at.by == WALL,
        why=at.why,
        permits=stage.permits,
        notify=stage.notify,
    )


def _not_met(stage: SopStage, how: str, unknown: bool, end: Elapsed, ended: str) -> StageState:
    margin = None if end.seconds is None else stage.due - end.seconds
    if margin is None:
        status, why = UNKNOWN_STAGE, end.why
    elif margin >= 0:
        status, why = UNMET, ended or how
    else:
        status, why = (UNKNOWN_STAGE if unknown else LATE), how
    return StageState(
        id=stage.id,
        title=stage.title,
        due=stage.due,
        status=status,
        margin=margin,
        wall=end.by == WALL,
        why=why,
        permits=stage.permits,
        notify=stage.notify,
    )


def _end(incident: Incident, times: dict[str, Elapsed], now: Moment | None) -> tuple[Elapsed, str]:
    """Until when the clock runs, and why it stands."""
    stood = clock_stopped_by(incident)
    if stood is not None:
        why = "the incident was closed" if stood.kind == events.CLOSED else "it was a false alarm"
        return times[stood.digest], why
    if now is None:
        return times[incident.entries[-1].digest], ""
    return elapsed_until(incident, now), ""


def clock_stopped_by(incident: Incident) -> JournalEntry | None:
    """The entry with which the clock stood still: its closing, or that it is a false alarm, and was never said real."""
    closed = incident.of(events.CLOSED)
    confirmed = incident.of(events.CONFIRMED)
    said = [decode_body(entry, events.AlertConfirmed).status for entry in confirmed]
    false = [entry for entry, status in zip(confirmed, said, strict=True) if status == events.FALSE_ALARM]
    stood = [*closed[:1], *(false[:1] if events.REAL not in said else ())]
    return min(stood, key=lambda entry: entry.seq, default=None)
