"""Undo of changes, the latest first: within a failed run, for a run that was killed, and on request.

A run whose verification was journaled has succeeded. Of every other killed run, each change that may have been made is
undone; whether it was made is read at the target. All of this is idempotent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
from msgspec import Struct

from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.http.client import Secret
from latdoctor.journal.entry import JournalError
from latdoctor.journal.locks import LockHeldError, lock
from latdoctor.journal.state_dir import LOCKS
from latdoctor.remediation import run_history
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import (
    RETRY_PAUSE,
    Change,
    ChangeState,
    Conflict,
    Contended,
    Deadline,
    ProcessEnded,
    Refused,
    Resource,
    SetByOther,
    State,
    Undo,
    Unreachable,
    WriteOptions,
    ensure,
    has_values,
    read_with_retry,
    state_of_change,
)
from latdoctor.remediation.own_writes import OwnWrites
from latdoctor.remediation.ownership import NotOurs, Write
from latdoctor.remediation.pending_proof import stop_prover
from latdoctor.remediation.run_context import RunContext, RunJournal
from latdoctor.remediation.run_history import (
    ChangeLeft,
    ChangeRef,
    RollbackStarted,
    RunClosed,
    RunState,
    WriteEnded,
    WriteStarted,
    operation_id,
)
from latdoctor.remediation.run_result import Outcome, Reason, Result
from latdoctor.remediation.target import Access, Target

ROLLBACK_TIMEOUT = 30.0  # seconds for all changes of a run
_PROOF_STOPS = 60.0  # seconds in which a process that proves a change has rolled it back
_POLL = 0.2  # seconds
_READ_TIMEOUT = 10.0  # seconds for reading all changed resources
ReferencedChange = tuple[ChangeRef, Change]
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
            if resume and run.proof_open and run.pending and context.now() < run.pending.deadline:
                return resume(run, context)
            return _end(run, context)
    except LockHeldError as busy:
        reason = f"the run still executes: {busy.what}"
        return Result(unfinished.id, Outcome.HELD, reason, busy.next_step, code=Reason.STILL_RUNNING)
    except LatdoctorError as error:
        manual = manual_commands(unfinished)
        return Result(unfinished.id, Outcome.INCOMPLETE, str(error), manual=manual, code=Reason.ERROR)


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
            return _objection(run, all_runs, context) or _undo_run(
                run, RollbackStarted("requested", True, Reason.REQUESTED), context
            )
    except LockHeldError as busy:
        if found.proof_open and busy.pid and busy.run == run_id:
            return _stop_proof(found, busy.pid, context)
        return Result(run_id, Outcome.REFUSED, busy.what, busy.next_step, code=Reason.LOCKED)


def _stop_proof(run: RunState, pid: int, context: RunContext) -> Result:
    """Have the process that proves a change roll it back, and wait for it; roll back here if it ended without."""
    if not stop_prover(pid):
        reason = f"process {pid} of another user goes on with the proof"
        return Result(run.id, Outcome.REFUSED, reason, f"as that user: kill {pid}", code=Reason.LOCKED)
    deadline = Deadline.after(_PROOF_STOPS, context.clock, context.sleep)
    while deadline.left > 0:
        with suppress(LockHeldError), lock(context.state / LOCKS, run.plan.target.key, run.id):
            ended = _reread(run.id, context)
            if ended.open:
                return _end(ended, context)
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


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The result of a rollback. `manual` are the commands for changes that could not be undone, `overwrite` those that
    would overwrite what other clients have set meanwhile."""

    outcome: Outcome
    reason: str
    manual: tuple[str, ...] = ()
    overwrite: tuple[str, ...] = ()

    def next_step(self, run: str) -> str:
        """Nothing is left to recover if all that remains was set by other clients."""
        return f"latdoctor runs show {run}" if self.overwrite and not self.manual else ""


def undo_changes(
    changes: Sequence[ReferencedChange], started: RollbackStarted, context: RunContext, journal: RunJournal
) -> UndoResult:
    """Undo each change. Continue if the journal cannot be written, if one step fails, and after a signal or the kill
    switch."""
    reason = started.reason
    required = [(ref, change) for ref, change in changes if change.undo != Undo.NONE_NEEDED]
    if not required:
        return UndoResult(Outcome.ROLLED_BACK, f"{reason}; nothing to undo" if changes else reason)
    rollback = _Rollback(context, journal)
    rollback.append("rollback.begun", started)
    rollback.undo(required)
    return rollback.result(reason)


def manual_undo(change: Change, access: Access) -> str:
    """The command by which the operator undoes `change`."""
    if change.undo == Undo.IRREVERSIBLE:
        return f"# {change.step} of {change.resource} is irreversible: check the target"
    return require_action(change.action).resource(access, change.resource).manual_command(change.before)


@dataclass(slots=True)
class _Rollback:
    """One rollback under one deadline."""

    context: RunContext
    journal: RunJournal
    deadline: Deadline = field(init=False)
    own_writes: OwnWrites = field(init=False)
    id: str = field(default_factory=lambda: secrets.token_hex(4))  # a later rollback of the same run has another one
    journal_error: str = ""
    settled: set[ChangeRef] = field(default_factory=set)
    failed: list[tuple[Change, LatdoctorError]] = field(default_factory=list)
    conflicts: list[tuple[Change, Conflict]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = Deadline.after(ROLLBACK_TIMEOUT, self.context.clock, self.context.sleep)
        try:
            self.own_writes = OwnWrites.of(self.context.journal.entries())
        except (JournalError, msgspec.ValidationError) as error:  # the values alone have to do then
            self.own_writes = OwnWrites()
            self.journal_error = f"the journal could not be read: {error}"

    def append(self, kind: str, body: Struct | Mapping[str, object]) -> None:
        self.journal_error = self.journal.try_append(kind, body) or self.journal_error

    def undo(self, changes: Sequence[ReferencedChange]) -> None:
        """Retry the changes without a response once all others have been tried, until the deadline."""
        pending, errors = tuple(changes), self._try_all(changes)
        while True:
            pending = tuple((ref, change) for ref, change in pending if ref not in self.settled)
            if not pending or self.deadline.left <= RETRY_PAUSE:
                break
            errors = self._try_all(pending)
        for _, change in pending:
            self._record_failure(change, errors[change.resource])

    def result(self, reason: str) -> UndoResult:
        if not self.failed and not self.conflicts:
            text = f"{reason}; {self.journal_error}" if self.journal_error else reason
            return UndoResult(Outcome.ROLLED_BACK, text)
        failed = "; ".join(f"{change.step}: {error}" for change, error in self.failed)
        left = "; ".join(f"{change.step}: {conflict}" for change, conflict in self.conflicts)
        parts = [reason, f"NOT rolled back: {failed}" if failed else "", f"left as it is: {left}" if left else ""]
        access = self.context.access
        return UndoResult(
            Outcome.INCOMPLETE,
            "; ".join(filter(None, parts)),
            tuple(manual_undo(change, access) for change, _ in self.failed),
            tuple(manual_undo(change, access) for change, _ in self.conflicts),
        )

    def _try_all(self, changes: Sequence[ReferencedChange]) -> dict[str, LatdoctorError]:
        """The errors of the resources without a response. Each has its share of the time, so none uses up all of it."""
        errors: dict[str, LatdoctorError] = {}
        for number, (ref, change) in enumerate(changes):
            if change.resource in errors:
                continue
            rest = {one.resource for _, one in changes[number:]} - errors.keys()
            share = Deadline.after(self.deadline.left / len(rest), self.context.clock, self.context.sleep)
            try:
                self._try(ref, change, share)
            except (Unreachable, Contended) as error:
                errors[change.resource] = error
            else:
                self.settled.add(ref)
        return errors

    def _try(self, ref: ChangeRef, change: Change, deadline: Deadline) -> None:
        """Raises Unreachable and Contended, after which it may be retried."""
        operation = operation_id(self.journal.run, ref, undo=self.id)
        self.append("undo.intended", WriteStarted(ref.stage, ref.index, operation))
        writes = self.own_writes.by(self.journal.run, ref, change)
        writes.start(undoes=True)
        options = WriteOptions(operation, fenced=True, not_ours=writes.not_ours)
        try:
            write = _restore(change, self.context.access, deadline, options)
        except (Unreachable, Contended):
            raise
        except Conflict as conflict:
            self.conflicts.append((change, conflict))
            code = conflict.why if isinstance(conflict, SetByOther) else None
            if code is not None:
                writes.withdraw()
            self.append("undo.left", ChangeLeft(ref.stage, ref.index, change.step, str(conflict), code))
        except LatdoctorError as error:
            self._record_failure(change, error)
            if change.undo == Undo.IRREVERSIBLE:  # a recovery cannot undo it either
                self.append("undo.left", ChangeLeft(ref.stage, ref.index, change.step, str(error)))
        else:
            if write is not None:
                writes.end(write)
            self.append("undo.made", WriteEnded(ref.stage, ref.index, write))

    def _record_failure(self, change: Change, error: LatdoctorError) -> None:
        self.failed.append((change, error))
        self.append("undo.failed", {"step": change.step, "why": str(error)})


def _restore(change: Change, access: Access, deadline: Deadline, options: WriteOptions) -> Write | None:
    """Restore each field that still has our value; return the write, None without one.

    Raises Conflict if a field has neither our value nor the old one, or if our value is no longer ours.
    """
    if change.undo == Undo.IRREVERSIBLE:
        raise LatdoctorError("the change is irreversible", where=change.resource)
    resource = require_action(change.action).resource(access, change.resource)
    try:
        write = ensure(change, ChangeState.BEFORE, resource, deadline, options)
    except ProcessEnded as ended:
        raise SetByOther(change, NotOurs.ENDED) from ended
    except SetByOther:
        raise
    except Conflict:
        now = read_with_retry(resource, deadline).values
        ours = tuple(field for field in change.fields if has_values(now, {field.name: field.after}))
        if not ours:
            raise
        part = replace(options, operation=f"{options.operation}-part")  # another content is another operation
        write = ensure(msgspec.structs.replace(change, fields=ours), ChangeState.BEFORE, resource, deadline, part)
        if any(not has_values(now, {field.name: field.before}) for field in change.fields if field not in ours):
            raise
        return write
    _require_restored(change, resource, write, deadline)
    return write


def _require_restored(change: Change, resource: Resource, write: Write | None, deadline: Deadline) -> None:
    """Raises Refused if the target confirmed the write and still has our values.

    Another version is the write of another client since. Without a response the confirmation has to do.
    """
    if write is None or has_values(change.before, change.after):
        return
    with suppress(Unreachable, ProcessEnded):
        now = resource.read(deadline)
        same = write.after.version in ("", now.version)
        if same and has_values(now.values, change.after):
            kept = ", ".join(f"{field.name} is still {field.after!r}" for field in change.fields)
            raise Refused(f"the undo was accepted, but not done: {kept}", where=change.resource)
