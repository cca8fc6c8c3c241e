"""A change is a value: it is printed, hashed, journaled, made, and taken back.

A change knows what each of its fields was and shall be. So the place where it is made can be asked how things stand: as
before, as after, or as somebody else has left them. Making and taking back are the same act in two directions, both may
be done twice, and neither ever writes over what is neither before nor after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from latdoctor.errors import OperationError

PAUSE = 0.2  # seconds between two tries


@dataclass(frozen=True, slots=True)
class Deadline:
    """`at` by `clock`, monotonic seconds. `sleep` is what a test replaces. Where `stop` says why, no time is left."""

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
        """Seconds; 0 where it has passed."""
        return 0.0 if self.stop() else max(0.0, self.at - self.clock())

    def pause(self, seconds: float = PAUSE) -> bool:
        """Waits before another try; False at once where there is no time for one."""
        if self.left <= seconds:
            return False
        self.sleep(seconds)
        return True


Value = bool | int | float | str | None  # None: the field is not there
Values = Mapping[str, Value]


class Field(Struct, frozen=True):
    """One value, old and new."""

    name: str
    before: Value
    after: Value


class Change(Struct, frozen=True):
    """What one step does to one resource. `version` is the ETag that was read with the values from before."""

    step: str
    action: str
    resource: str  # what is changed, for people and for the action: "http://127.0.0.1:8080/admin/config"
    fields: tuple[Field, ...]
    undo: str  # one of playbook.UNDOS
    version: str = ""
    caution: str = ""  # what making it cannot promise: shown in the plan

    @property
    def before(self) -> Values:
        return {field.name: field.before for field in self.fields}

    @property
    def after(self) -> Values:
        return {field.name: field.after for field in self.fields}


class State(Struct, frozen=True):
    """What a resource's fields are now, and the version that a write must name.

    `parts`: of a field that can only be written part by part (the threads of a process) and is not the same in all of
    them, what they have.
    """

    values: dict[str, Value]
    version: str = ""
    caution: str = ""  # what a write here cannot promise
    parts: dict[str, tuple[Value, ...]] = {}


class Standing(StrEnum):
    """How a resource stands to a change."""

    BEFORE = "before"
    AFTER = "after"
    BETWEEN = "between"  # a write of ours was interrupted part by part: it can go either way
    OTHER = "other"  # somebody else has changed a field since


class Resource(Protocol):
    """A place where fields can be read and written, all at once or not at all; or `State.parts` tells where it is."""

    def read(self, deadline: Deadline) -> State:
        """Every field that can be changed. Raises OperationError, Unreachable."""

    def write(self, values: Values, version: str, deadline: Deadline) -> None:
        """Sets some fields if nobody has changed anything since `version` was read.

        Raises Contended where somebody has, Refused where the target will not, Unreachable where it is not known
        whether it was done.
        """

    def by_hand(self, values: Values) -> str:
        """The command by which a person sets these fields, without any secret in it."""


class Conflict(OperationError):  # noqa: N818 - what happened, not a mistake
    """Somebody else has changed the very fields of a change: they are theirs now."""

    written = False  # whether we may have written before that


class Contended(OperationError):  # noqa: N818
    """Somebody else has written between our reading and our writing. Nothing was done; it may be tried again."""


class Refused(OperationError):  # noqa: N818
    """The target has understood and will not."""


class Unreachable(OperationError):  # noqa: N818
    """No answer: what was asked for may have been done or not."""


def looked(resource: Resource, deadline: Deadline) -> State:
    """How it stands; asked again where no answer comes. Raises Refused, and Unreachable once there is no time left."""
    while True:
        try:
            return resource.read(deadline)
        except Unreachable:
            if not deadline.pause():
                raise


def standing(change: Change, state: State) -> Standing:
    """How `state` stands to `change`. A change whose two sides are alike stands as after."""
    now = {name: state.values.get(name) for name in change.after}
    if alike(now, change.after):
        return Standing.AFTER
    if alike(now, change.before):
        return Standing.BEFORE
    return Standing.BETWEEN if _is_between(change, state) else Standing.OTHER


def _is_between(change: Change, state: State) -> bool:
    """Whether every part of every field is as before or as after: nobody but us has left it so."""
    return bool(state.parts) and all(
        _equal(part, field.before) or _equal(part, field.after)
        for field in change.fields
        for part in state.parts.get(field.name, (state.values.get(field.name),))
    )


def alike(some: Mapping[str, Value], others: Mapping[str, Value]) -> bool:
    """Equal as JSON has it: 250 is 250.0, and true is not 1."""
    return all(_equal(some.get(name), value) for name, value in others.items())


def _equal(one: Value | None, other: Value) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def brought(change: Change, to: Standing, resource: Resource, deadline: Deadline, *, fenced: bool = False) -> bool:
    """Brings the resource to the one side of `change` from the other; whether we may have written anything.

    `fenced`: where it stands so already, the same is written once more. A write of ours to the other side may still be
    on its way, and then names a version that is gone. It takes a target whose ETag never comes back.

    May be called again after any failure: where a reply was lost the next reading tells what was done.
    Raises Conflict where it stands on neither side, Refused, and Unreachable or Contended once there is no time left.
    """
    wanted = change.after if to is Standing.AFTER else change.before
    written = False
    while True:
        sending = False
        try:
            state = resource.read(deadline)
            if alike(state.values, wanted):
                if fenced and not written:
                    with suppress(Refused):  # what it will not take now it does not take late either
                        resource.write(wanted, state.version, deadline)
                return written
            _must_stand(change, state)
            sending = True
            resource.write(wanted, state.version, deadline)
        except Conflict as conflict:
            conflict.written = written
            raise
        except (Unreachable, Contended) as error:
            written = written or (sending and isinstance(error, Unreachable))  # what was contended was not done
            if not deadline.pause():
                raise
        else:
            return True


def _must_stand(change: Change, state: State) -> None:
    if standing(change, state) is Standing.OTHER:
        differing = (
            ", ".join(
                f"{field.name} is {state.values.get(field.name)!r}, neither {field.before!r} nor {field.after!r}"
                for field in change.fields
                if state.values.get(field.name) not in (field.before, field.after)
            )
            or "some fields stand as before and some as after"
        )
        raise Conflict(f"somebody else has changed it: {differing}", where=change.resource)
