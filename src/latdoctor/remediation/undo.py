"""Undo of single changes, the latest first, under one deadline: what a rollback, a recovery and a failed run share."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
from msgspec import Struct

from latdoctor.errors import LatdoctorError
from latdoctor.journal.entry import JournalError
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
    Undo,
    Unreachable,
    WriteOptions,
    ensure,
    has_values,
    read_with_retry,
)
from latdoctor.remediation.own_writes import OwnWrites
from latdoctor.remediation.ownership import NotOurs, Write
from latdoctor.remediation.run_context import RunContext, RunJournal
from latdoctor.remediation.run_history import (
    ChangeLeft,
    ChangeRef,
    RollbackStarted,
    WriteEnded,
    WriteStarted,
    operation_id,
)
from latdoctor.remediation.run_result import Outcome
from latdoctor.remediation.target import Access

ROLLBACK_TIMEOUT = 30.0  # seconds for all changes of a run
ReferencedChange = tuple[ChangeRef, Change]


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
