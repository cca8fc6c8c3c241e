"""`process.affinity.set` and `process.nice.set`: kernel settings that every thread of a process has separately.

They are set thread by thread. Between the first and the last thread the process is neither as before nor as after;
`State.parts` records that, so a run that recovers from a crash can complete or undo the change.

Raising `nice` needs no privilege but lowering it does, so a change is refused unless it could also be restored.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.actions.process import PROC, Process
from latdoctor.remediation.change import (
    Contended,
    Deadline,
    ProcessEnded,
    Receipt,
    Refused,
    State,
    Undo,
    Unreachable,
    Value,
    Values,
)
from latdoctor.remediation.target import Access, Target, TargetKind
from latdoctor.sanitize import clean

_MAX_PASSES = 20  # a new thread inherits its parent's value and is found in the next pass


@dataclass(frozen=True, slots=True)
class ThreadSetting:
    """A setting of all threads. `get` and `put` act on one thread and raise OSError; `command` sets it in all."""

    process: Process
    field: str
    get: Callable[[int], Value]
    put: Callable[[int, Value], None]
    command: Callable[[Process, Value], str]

    def read(self, deadline: Deadline) -> State:
        found = list(dict.fromkeys(value for _, value in self._each_thread()))
        if not found:
            raise ProcessEnded("the process has ended", where=str(self.process))
        text = " | ".join(sorted(map(str, found)))
        if len(found) == 1:
            return State({self.field: found[0]}, text, instance=str(self.process))
        return State({self.field: text}, text, parts={self.field: tuple(found)}, instance=str(self.process))

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        """Return once every thread has the value. A concurrent write by another process may be lost: Linux offers no
        compare-and-set for these settings."""
        if self.read(deadline).version != version:
            raise Contended("the setting has changed meanwhile", where=str(self.process))
        desired = values[self.field]
        for _ in range(_MAX_PASSES):
            remaining = [(thread, value) for thread, value in self._each_thread() if value != desired]
            if not remaining:
                return Receipt(instance=str(self.process))
            if deadline.left <= 0:
                raise Unreachable("no time left for all threads", where=str(self.process))
            for thread, value in remaining:
                self._put(thread, desired, value)
        raise Refused("threads start faster than they can be set", where=str(self.process))

    def manual_command(self, values: Values) -> str:
        return f"{self.process.shell_test} && {self.command(self.process, values[self.field])}"

    def _each_thread(self) -> list[tuple[int, Value]]:
        found = ((thread, self.process.system_call(partial(self.get, thread))) for thread in self.process.threads())
        return [(thread, value) for thread, value in found if value is not None]

    def _put(self, thread: int, desired: Value, before: Value) -> None:
        """Set one thread. If the kernel applies another value, restore `before` and raise Refused."""
        self.process.require_running()
        self.process.system_call(partial(self.put, thread, desired))
        applied = self.process.system_call(partial(self.get, thread))
        if applied is not None and applied != desired:
            self.process.system_call(partial(self.put, thread, before))
            raise Refused(f"{self.field} {desired} is not available, only {applied}", where=str(self.process))


@dataclass(frozen=True, slots=True)
class ThreadAction:
    """Sets `field` in all threads of the process. `parse` converts its argument and raises UsageError; `check_undo`
    raises UsageError if a change from one value to another could not be undone."""

    name: str
    field: str
    example: str
    parse: Callable[[str], Value]
    get: Callable[[int], Value]
    put: Callable[[int, Value], None]
    command: Callable[[Process, Value], str]
    check_undo: Callable[[Value, Value], None] = lambda before, after: None
    kinds: frozenset[TargetKind] = frozenset({TargetKind.PROCESS})
    undos: frozenset[Undo] = frozenset({Undo.RESTORE})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if set(arguments) != {self.field}:
            yield f"takes one argument, `{self.field}: {self.example}`"
        elif "$" not in arguments[self.field]:
            try:
                self.parse(arguments[self.field])
            except UsageError as error:
                yield error.what

    def resource_id(self, target: Target, arguments: Mapping[str, str]) -> str:
        return f"{Process.of(target)}, {self.field}"

    def resource(self, access: Access, resource_id: str) -> ThreadSetting:
        return ThreadSetting(Process.of(access.target), self.field, self.get, self.put, self.command)

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        if self.field in state.parts:
            differing = state.values[self.field]
            raise UsageError(f"the threads differ in {self.field} ({differing}), which could not be restored")
        after = self.parse(arguments.get(self.field, ""))
        self.check_undo(state.values[self.field], after)
        return {self.field: after}


MAX_CPUS = 8192  # the largest number that Linux supports (CONFIG_NR_CPUS)
_CPU_LIST = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*")


def parse_cpu_list(text: str) -> frozenset[int]:
    """`0-3,6` as CPU numbers (cpuset(7), "List format"). Raises UsageError."""
    compact = text.replace(" ", "")
    if not _CPU_LIST.fullmatch(compact) or len(compact) > 4 * MAX_CPUS:
        raise UsageError(f"{clean(text, 80)!r} is not a list of CPUs such as 0-3,6")
    found: set[int] = set()
    for part in compact.split(","):
        first, _, last = part.partition("-")
        if not int(first) <= int(last or first) < MAX_CPUS:
            raise UsageError(f"{part!r} is not a range of CPUs from 0 to {MAX_CPUS - 1}")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """The inverse of `parse_cpu_list`; one text for each set."""
    ordered = sorted(cpus)
    ranges = [[cpu for _, cpu in group] for _, group in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])]
    return ",".join(str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]}-{cpus[-1]}" for cpus in ranges)


def _parse_affinity(text: str) -> Value:
    return format_cpu_list(parse_cpu_list(text))


def _get_affinity(thread: int) -> Value:
    return format_cpu_list(os.sched_getaffinity(thread))


def _set_affinity(thread: int, value: Value) -> None:
    os.sched_setaffinity(thread, parse_cpu_list(str(value)))


def _affinity_command(process: Process, value: Value) -> str:
    return f"taskset -a -p -c {value} {process.pid}"


MIN_NICE, MAX_NICE = -20, 19
_CAP_SYS_NICE = 23  # capability.h


def lowest_permitted_nice() -> int:
    """The lowest value that this process may set (getrlimit(2), RLIMIT_NICE)."""
    if _has_cap_sys_nice():
        return MIN_NICE
    limit = resource.getrlimit(resource.RLIMIT_NICE)[0]
    if limit == resource.RLIM_INFINITY:
        return MIN_NICE
    return max(MIN_NICE, 20 - limit) if limit else MAX_NICE + 1


def _has_cap_sys_nice() -> bool:
    text = (PROC / "self" / "status").read_text(errors="replace")
    effective = next((line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_SYS_NICE & 1)


def _check_nice_undo(before: Value, after: Value) -> None:
    lowest = min(int(before or 0), int(after or 0))
    if before != after and lowest < lowest_permitted_nice():
        raise UsageError(
            f"this user may not set nice to {lowest}, so {before} → {after} could not be undone",
            next_step="run latdoctor with CAP_SYS_NICE, or raise RLIMIT_NICE",
        )


def _parse_nice(text: str) -> Value:
    level = field_values.parse_number("nice", text)
    if not isinstance(level, int) or not MIN_NICE <= level <= MAX_NICE:
        raise UsageError(f"nice must be an integer from {MIN_NICE} to {MAX_NICE} (got {text!r})")
    return level


def _get_nice(thread: int) -> Value:
    return os.getpriority(os.PRIO_PROCESS, thread)


def _set_nice(thread: int, value: Value) -> None:
    os.setpriority(os.PRIO_PROCESS, thread, int(value or 0))


def _nice_command(process: Process, value: Value) -> str:
    return f"renice -n {value} -p $(ls /proc/{process.pid}/task)"


AFFINITY = ThreadAction(
    "process.affinity.set", "cpus", "0-3,6", _parse_affinity, _get_affinity, _set_affinity, _affinity_command
)
NICE = ThreadAction("process.nice.set", "nice", "5", _parse_nice, _get_nice, _set_nice, _nice_command, _check_nice_undo)
