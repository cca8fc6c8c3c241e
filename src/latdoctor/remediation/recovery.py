"""Brings runs to an end that were killed on their way, and takes a finished one back.

A run whose verification was journaled has succeeded. Of every other one each change that may have been made is taken
back: whether it was made is read at the target. Doing it twice does nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.http.client import Secret
from latdoctor.journal.locks import LockHeldError, lock
from latdoctor.journal.state_dir import LOCKS
from latdoctor.remediation import run_history
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import Change, ChangeState, Deadline, State, read_with_retry, state_of_change
from latdoctor.remediation.rollback import by_hand, take_back
from latdoctor.remediation.run_context import Recorder, World
from latdoctor.remediation.run_history import Closed, RunState
from latdoctor.remediation.run_result import Outcome, Result
from latdoctor.remediation.target import Access, Target

READING = 10.0  # seconds for a look at how all of it stands
# A way into the target of a run, as things stand now. Raises UsageError where none is known.
Enter = Callable[[Target], World]


def recover(unfinished: RunState, enter: Enter) -> Result:
    """Ends one run that is open. One that is still at work is left alone."""
    try:
        world = enter(unfinished.plan.target)
        with lock(world.state / LOCKS, unfinished.plan.target.key, unfinished.id):
            run = _now(unfinished.id, world)  # another one may have ended it meanwhile
            if not run.open:
                return Result(run.id, run.outcome or Outcome.INCOMPLETE, f"{run.reason} (it had ended)")
            return _ended(run, world)
    except LockHeldError as busy:
        return Result(unfinished.id, Outcome.HELD, f"it is at work: {busy.what}", busy.next_step)
    except LatdoctorError as error:
        return Result(unfinished.id, Outcome.INCOMPLETE, str(error), manual=_by_hand(unfinished))


def _by_hand(run: RunState) -> tuple[str, ...]:
    """What a person types where nothing could be begun. What has verified itself need not go back."""
    if run.verified:
        return ()
    access = Access(run.plan.target, Secret())
    return tuple(by_hand(run.change(touched), access) for touched in run.standing)


def roll_back(run_id: str, enter: Enter, runs: Callable[[], tuple[RunState, ...]]) -> Result:
    """Takes back what a run has changed and still stands. Raises UsageError for a run that is not known."""
    found = next((run for run in runs() if run.id == run_id), None)
    if found is None:
        raise UsageError(f"there is no run {run_id!r}", next_step="latdoctor runs list")
    world = enter(found.plan.target)
    try:
        with lock(world.state / LOCKS, found.plan.target.key, run_id):
            all_runs = run_history.runs(world.journal.entries())
            run = next(run for run in all_runs if run.id == run_id)
            return _not_yet(run, all_runs, world) or _taken_back(run, "asked for", world, asked=True)
    except LockHeldError as busy:
        return Result(run_id, Outcome.REFUSED, busy.what, busy.next_step)


def _not_yet(run: RunState, runs: Sequence[RunState], world: World) -> Result | None:
    """Why it is not begun; a run that cannot be taken back now stays what it is."""
    if not run.standing:
        return Result(run.id, Outcome.REFUSED, "there is nothing to put back", f"latdoctor runs show {run.id}")
    if later := run_history.changed_after(run, runs):
        first = "latdoctor recover" if later.open else f"latdoctor rollback {later.id}"
        return Result(run.id, Outcome.REFUSED, f"run {later.id} has changed the same after it", f"first {first}")
    try:
        _read(run, world)
    except LatdoctorError as error:
        return Result(run.id, Outcome.FAILED, f"how the target stands cannot be read: {error}")
    return None


def _now(run_id: str, world: World) -> RunState:
    return next(run for run in run_history.runs(world.journal.entries(run_id)))


def _ended(run: RunState, world: World) -> Result:
    recorder = Recorder(world.journal, run.id, world.tell)
    if run.verified and run.begun is None and not _was_taken_back(run, world):
        recorder.note("run.closed", Closed(Outcome.VERIFIED, "verified; it ended before it could say so"))
        return Result(run.id, Outcome.VERIFIED, "it had verified itself")
    if not run.standing:
        outcome = Outcome.ROLLED_BACK if run.intended else Outcome.FAILED
        reason = "nothing is left to put back" if run.intended else "nothing had been changed"
        recorder.note("run.closed", Closed(outcome, reason))
        return Result(run.id, outcome, reason)
    return _taken_back(run, run.begun.reason if run.begun else "it ended on its way", world)


def _was_taken_back(run: RunState, world: World) -> bool:
    """Whether a run that the journal calls verified has gone back all the same.

    So it does where the disk fails just after that entry: the run hears that nothing was journaled, and cannot journal
    that it takes back. Raises OperationError where the target does not tell.
    """
    return any(state_of_change(change, state) is ChangeState.BEFORE for change, state in _read(run, world))


def _read(run: RunState, world: World) -> list[tuple[Change, State]]:
    """How each change that may stand does. Raises OperationError where the target does not tell."""
    deadline = Deadline.after(READING, world.clock, world.sleep)
    changes = [change for change in map(run.change, run.standing) if change.undo == "restore"]
    places = {(change.action, change.resource) for change in changes}
    states = {
        place: read_with_retry(require_action(place[0]).resource(world.access, place[1]), deadline) for place in places
    }
    return [(change, states[change.action, change.resource]) for change in changes]


def _taken_back(run: RunState, reason: str, world: World, *, asked: bool = False) -> Result:
    recorder = Recorder(world.journal, run.id, world.tell)
    began = world.clock()
    changes = [(touched, run.change(touched)) for touched in run.standing]
    back = take_back(changes, reason, world, recorder, asked=asked)
    note = recorder.note_if_possible("run.closed", Closed(back.outcome, back.reason))
    return Result(
        run.id,
        back.outcome,
        back.reason,
        next_step=back.next_step(run.id),
        manual=back.manual,
        theirs=back.theirs,
        seconds=world.clock() - began,
        note=note,
    )
