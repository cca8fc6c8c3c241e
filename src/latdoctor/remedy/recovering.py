"""Brings runs to an end that were killed on their way, and takes a finished one back.

A run whose verification was journaled has succeeded. Of every other one each change that may have been made is taken
back: whether it was made is read at the target. Doing it twice does nothing more.
"""

from __future__ import annotations

from collections.abc import Callable

from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.journal.locks import Busy, held
from latdoctor.journal.state import LOCKS
from latdoctor.remedy import history
from latdoctor.remedy.change import Standing, standing
from latdoctor.remedy.deadline import Deadline
from latdoctor.remedy.history import Closed, RunState
from latdoctor.remedy.plan import known
from latdoctor.remedy.record import Recorder
from latdoctor.remedy.result import Outcome, Result
from latdoctor.remedy.taking_back import take_back
from latdoctor.remedy.target import Target
from latdoctor.remedy.world import World

READING = 10.0  # seconds for a look at how all of it stands
# A way into the target of a run, as things stand now. Raises UsageError where none is known.
Enter = Callable[[Target], World]


def recover(unfinished: RunState, enter: Enter) -> Result:
    """Ends one run that is open. One that is still at work is left alone."""
    try:
        world = enter(unfinished.plan.target)
        with held(world.state / LOCKS, unfinished.plan.target.key, unfinished.id):
            run = _now(unfinished.id, world)  # another one may have ended it meanwhile
            if not run.open:
                return Result(run.id, run.outcome or Outcome.INCOMPLETE, f"{run.reason} (it had ended)")
            return _ended(run, world)
    except Busy as busy:
        return Result(unfinished.id, Outcome.HELD, f"it is at work: {busy.what}", busy.next_step)
    except LatdoctorError as error:
        return Result(unfinished.id, Outcome.INCOMPLETE, str(error))


def roll_back(run_id: str, enter: Enter, runs: Callable[[], tuple[RunState, ...]]) -> Result:
    """Takes back what a run has changed and still stands. Raises UsageError for a run that is not known."""
    found = next((run for run in runs() if run.id == run_id), None)
    if found is None:
        raise UsageError(f"there is no run {run_id!r}", next_step="latdoctor runs list")
    world = enter(found.plan.target)
    try:
        with held(world.state / LOCKS, found.plan.target.key, run_id):
            run = _now(run_id, world)
            if not run.standing:
                return Result(run_id, Outcome.REFUSED, "nothing of it stands", f"latdoctor runs show {run_id}")
            return _taken_back(run, "asked for", world)
    except Busy as busy:
        return Result(run_id, Outcome.REFUSED, busy.what, busy.next_step)


def _now(run_id: str, world: World) -> RunState:
    return next(run for run in history.runs(world.journal.entries(run_id)))


def _ended(run: RunState, world: World) -> Result:
    recorder = Recorder(world.journal, run.id, world.tell)
    if run.verified and not run.rolling_back and not _was_taken_back(run, world):
        recorder.note("run.closed", Closed(Outcome.VERIFIED, "verified; it ended before it could say so"))
        return Result(run.id, Outcome.VERIFIED, "it had verified itself")
    if not run.standing:
        outcome = Outcome.ROLLED_BACK if run.intended else Outcome.FAILED
        reason = "all was taken back" if run.intended else "nothing had been changed"
        recorder.note("run.closed", Closed(outcome, reason))
        return Result(run.id, outcome, reason)
    return _taken_back(run, run.reason or "it ended on its way", world)


def _was_taken_back(run: RunState, world: World) -> bool:
    """Whether a run that the journal calls verified has gone back all the same.

    So it does where the disk fails just after that entry: the run hears that nothing was journaled, and cannot journal
    that it takes back. Raises OperationError where the target does not tell.
    """
    deadline = Deadline.after(READING, world.clock, world.sleep)
    for touched in run.standing:
        change = run.change(touched)
        if change.undo == "restore":
            state = known(change.action).resource(world.access, change.resource).read(deadline)
            if standing(change, state) is Standing.BEFORE:
                return True
    return False


def _taken_back(run: RunState, reason: str, world: World) -> Result:
    recorder = Recorder(world.journal, run.id, world.tell)
    began = world.clock()
    back = take_back([(touched, run.change(touched)) for touched in run.standing], reason, world, recorder)
    note = recorder.note_if_possible("run.closed", Closed(back.outcome, back.reason))
    seconds = world.clock() - began
    return Result(run.id, back.outcome, back.reason, manual=back.manual, seconds=seconds, note=note)
