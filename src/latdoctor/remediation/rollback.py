"""The end of a run that was killed, and the rollback of a run on request; `undo.py` undoes the single changes.

A run whose verification was journaled has succeeded. Of every other killed run, each change that may have been made is
undone; whether it was made is read at the target. All of this is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.http.client import Secret
from latdoctor.journal.locks import LockHeldError, lock
from latdoctor.journal.state_dir import LOCKS
from latdoctor.remediation import run_history
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import (
    Change,
    ChangeState,
    Deadline,
    ProcessEnded,
    State,
    Undo,
    read_with_retry,
    state_of_change,
)
from latdoctor.remediation.pending_proof import stop_prover
from latdoctor.remediation.run_context import RunContext, RunJournal
from latdoctor.remediation.run_history import RollbackStarted, RunClosed, RunState
from latdoctor.remediation.run_result import Outcome, Reason, Result
from latdoctor.remediation.target import Access, Target
from latdoctor.remediation.undo import manual_undo, undo_changes

_PROOF_STOPS = 60.0  # seconds in which a process that proves a change has rolled it back
_POLL = 0.2  # seconds
_READ_TIMEOUT = 10.0  # seconds for reading all changed resources
# Opens the target of an earlier run. Raises UsageError if its access is unknown.
OpenTarget = Callable[[Target], RunContext]
# Goes on with the pending proof of a run whose target is locked.
Resume = Callable[[RunState, RunContext], Result]


def recover_run(unfinished: RunState, open_target: OpenTarget, resume: Resume | None = None) -> Result:
    """End one run that is open. A run that still executes is left alone.

    `resume` goes on with a proof that was pending; without it, and after its deadline, the changes are undone.
    """
    try:
        context = open_target(unfinished.plan.target)
        with lock(context.state / LOCKS, unfinished.plan.target.key, unfinished.id):
            run = _reread(unfinished.id, context)  # another process may have ended it meanwhile
            if not run.open:
                reason = f"{run.reason} (it had ended already)"
                return Result(run.id, run.outcome or Outcome.INCOMPLETE, reason, code=run.code)
            if prover := run.live_prover:  # it has the lock of a file that was removed
                reason = f"the run still executes: process {prover.pid} goes on with its proof"
                stop = f"wait for it to end, or: latdoctor rollback {run.id}"
                return Result(run.id, Outcome.HELD, reason, stop, code=Reason.STILL_RUNNING)
            if resume and run.proof_open and run.pending and context.now() < run.pending.deadline:
                return _resumed(run, context, resume)
            return _end(run, context)
    except LockHeldError as busy:
        reason = f"the run still executes: {busy.what}"
        return Result(unfinished.id, Outcome.HELD, reason, busy.next_step, code=Reason.STILL_RUNNING)
    except LatdoctorError as error:
        manual = manual_commands(unfinished)
        return Result(unfinished.id, Outcome.INCOMPLETE, str(error), manual=manual, code=Reason.ERROR)


def _resumed(run: RunState, context: RunContext, resume: Resume) -> Result:
    try:
        return resume(run, context)
    except LatdoctorError as error:
        return abandon_proof(run, error, context)


def abandon_proof(run: RunState, why: LatdoctorError, context: RunContext) -> Result:
    """Undo the changes of a run whose proof cannot go on, such as without its rules; its target is locked."""
    return _undo_run(run, RollbackStarted(f"the proof cannot go on: {why}", code=Reason.ERROR), context)


def manual_commands(run: RunState) -> tuple[str, ...]:
    """The commands that undo a run; none for a verified run, which stays in effect."""
    if run.verified:
        return ()
    access = Access(run.plan.target, Secret())
    return tuple(manual_undo(run.change(ref), access) for ref in run.in_effect)


def roll_back_run(run_id: str, open_target: OpenTarget, runs: Callable[[], tuple[RunState, ...]]) -> Result:
    """Undo the changes of a run that are in effect. Raises UsageError for an unknown run."""
    found = next((run for run in runs() if run.id == run_id), None)
    if found is None:
        raise UsageError(f"unknown run {run_id!r}", next_step="latdoctor runs list")
    context = open_target(found.plan.target)
    try:
        with lock(context.state / LOCKS, found.plan.target.key, run_id):
            all_runs = run_history.runs(context.journal.entries())
            run = next(run for run in all_runs if run.id == run_id)
            prover = run.live_prover
            if prover is None:
                return _objection(run, all_runs, context) or _undo_run(
                    run, RollbackStarted("requested", True, Reason.REQUESTED), context
                )
    except LockHeldError as busy:
        if found.proof_open and busy.pid and busy.run == run_id:
            return _stop_proof(found, busy.pid, context)
        return Result(run_id, Outcome.REFUSED, busy.what, busy.next_step, code=Reason.LOCKED)
    return _stop_proof(found, prover.pid, context)


def _stop_proof(run: RunState, pid: int, context: RunContext) -> Result:
    """Have the process that proves a change roll it back, and wait for it; roll back here if it ended without."""
    if not stop_prover(pid):
        reason = f"process {pid} of another user goes on with the proof"
        return Result(run.id, Outcome.REFUSED, reason, f"as that user: kill {pid}", code=Reason.LOCKED)
    deadline = Deadline.after(_PROOF_STOPS, context.clock, context.sleep)
    while deadline.left > 0:
        with suppress(LockHeldError), lock(context.state / LOCKS, run.plan.target.key, run.id):
            ended = _reread(run.id, context)
            if ended.open and ended.live_prover is None:
                return _end(ended, context)
            if not ended.open:
                return Result(run.id, ended.outcome or Outcome.INCOMPLETE, ended.reason, code=ended.code)
        context.sleep(_POLL)
    reason = f"process {pid} has been asked to roll back and has not ended yet"
    return Result(run.id, Outcome.HELD, reason, f"latdoctor runs show {run.id}", code=Reason.STILL_RUNNING)


def _objection(run: RunState, runs: Sequence[RunState], context: RunContext) -> Result | None:
    """Why the rollback does not start; the run then stays what it is."""
    if not run.in_effect:
        next_step = f"latdoctor runs show {run.id}"
        return Result(run.id, Outcome.REFUSED, "nothing to undo", next_step, code=Reason.NOTHING_TO_UNDO)
    if later := run_history.superseding_run(run, runs):
        command = "latdoctor recover" if later.open else f"latdoctor rollback {later.id}"
        reason = f"run {later.id} has changed the same fields later"
        return Result(run.id, Outcome.REFUSED, reason, f"first {command}", code=Reason.NEWER_RUN)
    try:
        _read_states(run, context)
    except LatdoctorError as error:
        reason = f"the target cannot be read: {error}"
        return Result(run.id, Outcome.FAILED, reason, code=Reason.TARGET_UNREADABLE)
    return None


def _reread(run_id: str, context: RunContext) -> RunState:
    return next(iter(run_history.runs(context.journal.entries(run_id))))


def _end(run: RunState, context: RunContext) -> Result:
    journal = RunJournal(context.journal, run.id, context.on_entry)
    if run.verified and run.rollback is None and not _was_undone(run, context):
        reason = "verified before it was interrupted"
        journal.append("run.closed", RunClosed(Outcome.VERIFIED, reason, Reason.VERIFIED))
        return Result(run.id, Outcome.VERIFIED, reason, code=Reason.VERIFIED)
    started = run.rollback or RollbackStarted("the run was interrupted", code=Reason.INTERRUPTED)
    if not run.in_effect:
        outcome = Outcome.ROLLED_BACK if run.intended else Outcome.FAILED
        reason = "nothing is left to undo" if run.intended else "nothing had been changed"
        journal.append("run.closed", RunClosed(outcome, reason, started.code))
        return Result(run.id, outcome, reason, code=started.code)
    return _undo_run(run, RollbackStarted(started.reason, code=started.code), context)


def _was_undone(run: RunState, context: RunContext) -> bool:
    """Whether a run that is verified in the journal was undone nevertheless.

    That happens if the disk fails just after that entry: the run is informed that nothing was journaled, and cannot
    journal its rollback. Raises OperationError if the target cannot be read.
    """
    states = _read_states(run, context)
    return any(state_of_change(change, state) is ChangeState.BEFORE for change, state in states)


def _read_states(run: RunState, context: RunContext) -> list[tuple[Change, State]]:
    """The resource state of each change that may be in effect; of an ended process there is none.

    Raises OperationError if the target cannot be read.
    """
    deadline = Deadline.after(_READ_TIMEOUT, context.clock, context.sleep)
    changes = [change for change in map(run.change, run.in_effect) if change.undo == Undo.RESTORE]
    states: dict[tuple[str, str], State] = {}
    for action, resource in {(change.action, change.resource) for change in changes}:
        with suppress(ProcessEnded):
            states[action, resource] = read_with_retry(
                require_action(action).resource(context.access, resource), deadline
            )
    found = ((change, states.get((change.action, change.resource))) for change in changes)
    return [(change, state) for change, state in found if state is not None]


def _undo_run(run: RunState, started: RollbackStarted, context: RunContext) -> Result:
    journal = RunJournal(context.journal, run.id, context.on_entry)
    began = context.clock()
    undone = undo_changes([(ref, run.change(ref)) for ref in run.in_effect], started, context, journal)
    note = journal.try_append("run.closed", RunClosed(undone.outcome, undone.reason, started.code))
    return Result(
        run.id,
        undone.outcome,
        undone.reason,
        next_step=undone.next_step(run.id),
        manual=undone.manual,
        overwrite=undone.overwrite,
        seconds=context.clock() - began,
        note=note,
        code=started.code,
    )
