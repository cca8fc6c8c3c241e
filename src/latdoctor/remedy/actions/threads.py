"""A value that each thread of a process has for itself: read from all of them, and set in one after the other.

Between the first thread and the last a process is neither as before nor as after. `State.parts` tells that, so that
whoever comes next, after a crash, can go either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from latdoctor.errors import UsageError
from latdoctor.remedy.actions.process import Process
from latdoctor.remedy.change import Contended, Refused, State, Unreachable, Value, Values
from latdoctor.remedy.deadline import Deadline

PASSES = 20  # a thread that begins meanwhile has its parent's value: it is found in the next pass


@dataclass(frozen=True, slots=True)
class ThreadValue:
    """`get` and `put` are of one thread, and raise OSError; `command` is what a person types to set it in all."""

    process: Process
    field: str
    get: Callable[[int], Value]
    put: Callable[[int, Value], None]
    command: Callable[[Process, Value], str]

    def read(self, deadline: Deadline) -> State:
        found = list(dict.fromkeys(value for _, value in self._each()))
        if not found:
            raise Refused("the process has ended", where=str(self.process))
        shown = " | ".join(sorted(map(str, found)))
        if len(found) == 1:
            return State({self.field: found[0]}, shown)
        return State({self.field: shown}, shown, parts={self.field: tuple(found)})

    def write(self, values: Values, version: str, deadline: Deadline) -> None:
        """Returns once every thread has it. What another process sets at the very moment may be lost: Linux has no
        way to set it only if it is still what it was."""
        if self.read(deadline).version != version:
            raise Contended("it was set meanwhile", where=str(self.process))
        wanted = values[self.field]
        for _ in range(PASSES):
            left = [(thread, value) for thread, value in self._each() if value != wanted]
            if not left:
                return
            if deadline.left <= 0:
                raise Unreachable("there was no time for all threads", where=str(self.process))
            for thread, value in left:
                self._put(thread, wanted, value)
        raise Refused("threads begin faster than they can be set", where=str(self.process))

    def by_hand(self, values: Values) -> str:
        return f"{self.process.test} && {self.command(self.process, values[self.field])}"

    def _each(self) -> list[tuple[int, Value]]:
        found = ((thread, self.process.permitted(partial(self.get, thread))) for thread in self.process.threads())
        return [(thread, value) for thread, value in found if value is not None]

    def _put(self, thread: int, wanted: Value, before: Value) -> None:
        """Sets one thread's. Raises Refused, and leaves it as it was, where the kernel gives it something else."""
        self.process.must_be()
        self.process.permitted(partial(self.put, thread, wanted))
        given = self.process.permitted(partial(self.get, thread))
        if given is not None and given != wanted:
            self.process.permitted(partial(self.put, thread, before))
            raise Refused(f"{self.field} {wanted} is not to be had here, only {given}", where=str(self.process))


def problems_of(given: Mapping[str, str], field: str, example: str, read: Callable[[str], object]) -> Iterator[str]:
    """What is wrong with a step that takes this field alone. `read` raises UsageError for what it cannot be."""
    if set(given) != {field}:
        yield f"it takes one argument, `{field}: {example}`"
    elif "$" not in given[field]:
        try:
            read(given[field])
        except UsageError as error:
            yield error.what


def uniform(field: str, state: State) -> Value:
    """The one value of all threads. Raises UsageError where they differ: what was could not be restored."""
    if field in state.parts:
        raise UsageError(f"its threads differ in {field} ({state.values[field]}): that could not be restored")
    return state.values[field]
