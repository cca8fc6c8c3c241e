"""A value that each thread of a process has for itself: read from all of them, and set in one after the other.

Between the first thread and the last a process is neither as before nor as after. `State.parts` tells that, so that
whoever comes next, after a crash, can go either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from latdoctor.errors import UsageError
from latdoctor.remediation.change import Contended, Deadline, Refused, State, Unreachable, Value, Values
from latdoctor.remediation.target import Target

T = TypeVar("T")
PROC = Path("/proc")
_ENDED = "ZX"  # states of a process that only waits to be buried


@dataclass(frozen=True, slots=True)
class Process:
    """`started` in clock ticks after boot: field 22 of /proc/PID/stat (proc_pid_stat(5))."""

    pid: int
    started: int

    @classmethod
    def of(cls, target: Target) -> Process:
        """Raises UsageError for a target that does not say which process it is."""
        if target.pid <= 1 or target.started <= 0:
            raise UsageError("the target does not say which process it is, and when that began", where=target.name)
        return cls(target.pid, round(target.started))

    def __str__(self) -> str:
        return f"process {self.pid} of {self.started}"

    @property
    def test(self) -> str:
        """A shell's test that it is still this process: for the commands that a person types."""
        return f"""[ "$(sed 's/.*) //' /proc/{self.pid}/stat | cut -d' ' -f20)" = {self.started} ]"""

    def state(self) -> str | None:
        """Its state's letter (`S`, `R`, `T`, …); None where it has ended, whatever has its number now."""
        try:
            text = (PROC / str(self.pid) / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = text.rpartition(")")[2].split()
        if len(fields) < 20 or fields[19] != str(self.started) or fields[0] in _ENDED:
            return None
        return fields[0]

    def must_be(self) -> str:
        """Its state. Raises Refused where it has ended."""
        state = self.state()
        if state is None:
            raise Refused("the process has ended; another one may have its number now", where=str(self))
        return state

    def threads(self) -> tuple[int, ...]:
        """The numbers of its threads at this moment. Raises Refused where it has ended."""
        self.must_be()
        try:
            return tuple(sorted(int(task.name) for task in (PROC / str(self.pid) / "task").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            return ()

    def permitted(self, call: Callable[[], T]) -> T | None:
        """What `call` gives; None where the process or thread it is about has ended meanwhile. Raises Refused."""
        try:
            return call()
        except ProcessLookupError:
            return None
        except PermissionError as error:
            raise Refused(
                "it may not be changed by this user", where=str(self), next_step="run latdoctor as its user"
            ) from error
        except OSError as error:
            raise Refused(f"the kernel refuses: {error.strerror}", where=str(self)) from error


def began(pid: int) -> int:
    """When the process began, in clock ticks after boot. Raises UsageError where there is none."""
    try:
        return int((PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError) as error:
        raise UsageError("there is no such process", where=f"--pid {pid}") from error


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
