"""A change to one resource: a value that is planned, printed, hashed, journaled, applied and undone.

A change stores the old and the new value of each field, so the resource can be compared with it at any time: as before,
as after, or modified by another client. Applying and undoing are one idempotent compare-and-set in two directions; it
never overwrites a value that is neither the old nor the new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.remediation.ownership import NotOurs, Snapshot, Write, document_digest

RETRY_PAUSE = 0.2  # seconds between two attempts


@dataclass(frozen=True, slots=True)
class Deadline:
    """`at` by `clock`, in monotonic seconds. Tests replace `sleep`. No time is left once `stop` returns a reason."""

    at: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    stop: Callable[[], str] = lambda: ""

    @classmethod
    def after(
        cls, seconds: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> Deadline:
        return cls(clock() + seconds, clock, sleep)

    @property
    def left(self) -> float:
        """Seconds; 0 after the deadline."""
        return 0.0 if self.stop() else max(0.0, self.at - self.clock())

    def pause(self, seconds: float = RETRY_PAUSE) -> bool:
        """Sleep before the next attempt. Return False at once if no time is left for one."""
        if self.left <= seconds:
            return False
        self.sleep(seconds)
        return True


Value = bool | int | float | str | None  # None: the field does not exist
Values = Mapping[str, Value]


class Undo(StrEnum):
    """How a step is undone."""

    RESTORE = "restore"  # write the old values back
    NONE_NEEDED = "none-needed"  # the step leaves no state behind
    IRREVERSIBLE = "irreversible"  # cannot be undone; allowed only with high risk


class Field(Struct, frozen=True):
    """The old and the new value of one field."""

    name: str
    before: Value
    after: Value


class Change(Struct, frozen=True):
    """What one step changes on one resource. `version` is the ETag that was read together with the old values."""

    step: str
    action: str
    resource: str  # the resource's id, readable by people and by the action: "http://127.0.0.1:8080/admin/config"
    fields: tuple[Field, ...]
    undo: Undo
    version: str = ""
    caution: str = ""  # a guarantee that this change lacks; shown in the plan

    @property
    def before(self) -> Values:
        return {field.name: field.before for field in self.fields}

    @property
    def after(self) -> Values:
        return {field.name: field.after for field in self.fields}


class State(Struct, frozen=True):
    """The current fields of a resource, and the version that a write must name.

    `parts`: the distinct values of a field that is written part by part (the threads of a process) and differs among
    the parts.
    """

    values: dict[str, Value]
    version: str = ""
    caution: str = ""  # a guarantee that a write to this resource lacks
    parts: dict[str, tuple[Value, ...]] = {}
    rest: str = ""  # digest of what the document contains beside `values`
    instance: str = ""  # the process that responded, if it identifies itself; another one after a restart

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.version, document_digest(self.values, self.rest), self.instance)

    def with_values(self, values: Values, receipt: Receipt) -> Snapshot:
        """The snapshot after a write of `values` to this state."""
        document = document_digest({**self.values, **values}, self.rest)
        return Snapshot(receipt.version, document, receipt.instance or self.instance)


class Receipt(Struct, frozen=True):
    """What the response to a write tells about its result; an empty text is unknown."""

    version: str = ""
    instance: str = ""


class ChangeState(StrEnum):
    """Whether a change is in effect on its resource."""

    BEFORE = "before"
    AFTER = "after"
    BETWEEN = "between"  # our write was interrupted between two parts; it can be completed or undone
    OTHER = "other"  # another client has modified a field since


class Resource(Protocol):
    """Fields that are read and written together, atomically unless `State.parts` reports otherwise."""

    def read(self, deadline: Deadline) -> State:
        """Return every field that can be changed. Raises OperationError, Unreachable."""

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        """Set some fields, provided that nothing has changed since `version` was read.

        `operation` is the same for every retry of one write, so that a target that knows it applies it once.
        Raises Contended if something has, Refused if the target rejects the write, Unreachable if the result is
        unknown.
        """

    def manual_command(self, values: Values) -> str:
        """Return the shell command that sets these fields. It contains no secret."""


class Conflict(OperationError):  # noqa: N818 - an event, not a mistake
    """Another client has modified fields of this change; they are left as they are."""

    written = False  # whether our write may have taken effect before


class SetByOther(Conflict):
    """The fields do not have our values by our write any more; they are left as they are."""

    def __init__(self, change: Change, why: NotOurs) -> None:
        values = ", ".join(f"{field.name} was set to {field.after!r}" for field in change.fields)
        super().__init__(f"{values}, but {why.text}", where=change.resource)
        self.why = why


class Contended(OperationError):  # noqa: N818
    """Another client wrote between our read and our write. Nothing was written; the write may be retried."""


class Refused(OperationError):  # noqa: N818
    """The target understood the request and rejected it."""


class Unauthorized(Refused):
    """The target demands a token, or another one."""


class ProcessEnded(Refused):
    """The process that would be changed no longer exists."""


class Unreachable(OperationError):  # noqa: N818
    """No response: the request may or may not have taken effect."""


def read_with_retry(resource: Resource, deadline: Deadline) -> State:
    """Read until a response arrives. Raises Refused, and Unreachable after the deadline."""
    while True:
        try:
            return resource.read(deadline)
        except Unreachable:
            if not deadline.pause():
                raise


def state_of_change(change: Change, state: State) -> ChangeState:
    """Compare `state` with both sides of `change`. A change with two equal sides is AFTER."""
    now = {name: state.values.get(name) for name in change.after}
    if has_values(now, change.after):
        return ChangeState.AFTER
    if has_values(now, change.before):
        return ChangeState.BEFORE
    return ChangeState.BETWEEN if _is_between(change, state) else ChangeState.OTHER


def _is_between(change: Change, state: State) -> bool:
    """Whether every part of every field has its old or its new value: only our interrupted write leaves that."""
    return bool(state.parts) and all(
        _equal(part, field.before) or _equal(part, field.after)
        for field in change.fields
        for part in state.parts.get(field.name, (state.values.get(field.name),))
    )


def has_values(current: Mapping[str, Value], expected: Mapping[str, Value]) -> bool:
    """Whether `current` has all `expected` values, equal as in JSON: 250 equals 250.0, true does not equal 1."""
    return all(_equal(current.get(name), value) for name, value in expected.items())


def _equal(one: Value | None, other: Value) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`operation`: the id of the write, the same for all its retries.

    `fenced`: if the resource is in the desired state already, write the same values once more. A delayed write of ours
    to the other state then names a version that is no longer current. Requires ETags that never repeat.

    `not_ours` returns why values that equal ours must not be replaced.
    """

    operation: str = ""
    fenced: bool = False
    not_ours: Callable[[Snapshot], NotOurs | None] = lambda _: None


_PLAIN = WriteOptions()


def ensure(
    change: Change, to: ChangeState, resource: Resource, deadline: Deadline, options: WriteOptions = _PLAIN
) -> Write | None:
    """Bring the resource to the state `to` (BEFORE or AFTER) of `change`; return our write, None without one.

    May be called again after any failure: after a lost response, the next read shows whether the write took effect.
    Raises Conflict if the resource is in neither state or the values are not ours, Refused, and Unreachable or
    Contended after the deadline.
    """
    desired = change.after if to is ChangeState.AFTER else change.before
    sent: State | None = None  # what our write was based on, once one may have taken effect
    while True:
        sending = False
        try:
            state = resource.read(deadline)
            if has_values(state.values, desired):
                if sent is not None:
                    return Write(sent.snapshot, state.snapshot)
                return _fence(desired, state, resource, deadline, options) if options.fenced else None
            _require_unmodified(change, state)
            if reason := options.not_ours(state.snapshot):
                raise SetByOther(change, reason)
            sending = True
            receipt = resource.write(desired, state.version, deadline, options.operation)
        except Conflict as conflict:
            conflict.written = sent is not None
            raise
        except (Unreachable, Contended) as error:
            if sending and isinstance(error, Unreachable):  # a contended write had no effect
                sent = sent or state
            if not deadline.pause():
                raise
        else:
            return Write((sent or state).snapshot, state.with_values(desired, receipt))


def _fence(
    desired: Values, state: State, resource: Resource, deadline: Deadline, options: WriteOptions
) -> Write | None:
    """Write the values that the resource has already. A write that is rejected now is also rejected if it is late."""
    try:
        receipt = resource.write(desired, state.version, deadline, options.operation)
    except Refused:
        return None
    return Write(state.snapshot, state.with_values(desired, receipt))


def _require_unmodified(change: Change, state: State) -> None:
    """Raises Conflict if another client has modified a field."""
    if state_of_change(change, state) is ChangeState.OTHER:
        differing = (
            ", ".join(
                f"{field.name} is {state.values.get(field.name)!r}, neither {field.before!r} nor {field.after!r}"
                for field in change.fields
                if state.values.get(field.name) not in (field.before, field.after)
            )
            or "some fields have their old and some their new values"
        )
        raise Conflict(f"modified by another client: {differing}", where=change.resource)
