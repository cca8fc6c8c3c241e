"""Takes changes back, the latest first, within half a minute, or says loudly what a person has to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.errors import LatdoctorError
from latdoctor.remedy.change import Change, Standing, brought
from latdoctor.remedy.deadline import Deadline
from latdoctor.remedy.history import Touched
from latdoctor.remedy.plan import known
from latdoctor.remedy.record import Recorder
from latdoctor.remedy.result import Outcome
from latdoctor.remedy.world import World

WITHIN = 30.0  # seconds for all of it: what is promised


@dataclass(frozen=True, slots=True)
class Back:
    """How it went. `manual` are the commands for what could not be taken back."""

    outcome: Outcome
    reason: str
    manual: tuple[str, ...] = ()


def take_back(changes: Sequence[tuple[Touched, Change]], reason: str, world: World, recorder: Recorder) -> Back:
    """Brings each change to where it was. It goes on where the journal cannot be written, and where one step fails.

    Nothing stops it but its end: neither Ctrl-C nor the kill switch.
    """
    deadline = Deadline.after(WITHIN, world.clock, world.sleep)
    unsaid = recorder.note_if_possible("rollback.begun", {"reason": reason})
    failures: list[str] = []
    manual: list[str] = []
    for touched, change in changes:
        unsaid = recorder.note_if_possible("undo.intended", touched) or unsaid
        try:
            _take_back(change, world, deadline)
        except LatdoctorError as error:
            failures.append(f"{change.step}: {error}")
            manual.append(_by_hand(change, world))
            unsaid = recorder.note_if_possible("undo.failed", {"step": change.step, "why": str(error)}) or unsaid
        else:
            unsaid = recorder.note_if_possible("undo.made", touched) or unsaid
    if failures:
        return Back(Outcome.INCOMPLETE, f"{reason}; NOT taken back: {'; '.join(failures)}", tuple(manual))
    return Back(Outcome.ROLLED_BACK, f"{reason}; {unsaid}" if unsaid else reason)


def _take_back(change: Change, world: World, deadline: Deadline) -> None:
    if change.undo == "none-needed":
        return
    if change.undo == "irreversible":
        raise LatdoctorError("it cannot be taken back", where=change.resource)
    resource = known(change.action).resource(world.access, change.resource)
    brought(change, Standing.BEFORE, resource, deadline, fenced=True)


def _by_hand(change: Change, world: World) -> str:
    if change.undo == "irreversible":
        return f"# {change.step} of {change.resource} has no way back: look at it"
    return known(change.action).resource(world.access, change.resource).by_hand(change.before)
