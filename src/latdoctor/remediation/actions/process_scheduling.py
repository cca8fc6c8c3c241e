"""`process.nice.set`: how much a process gives way to others (nice(2)); only where it may also be taken back.

Everybody may give way more. Giving way less needs a privilege, so without it a change upwards could not be restored.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import value_parsing
from latdoctor.remediation.actions.process import PROC, Process, ThreadValue, problems_of, uniform
from latdoctor.remediation.change import State, Value, Values
from latdoctor.remediation.target import Access, Target
from latdoctor.sanitize import clean

AFFINITY_FIELD = "cpus"
MAX_CPUS = 8192  # processors: what a kernel of today can be built for
_LIST = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*")


@dataclass(frozen=True, slots=True)
class AffinityAction:
    """`cpus: 0-3,6`, for all threads of the process."""

    name: str = "process.affinity.set"
    kinds: frozenset[str] = frozenset({"process"})
    undos: frozenset[str] = frozenset({"restore"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        return problems_of(given, AFFINITY_FIELD, "0-3,6", cpus)

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return f"{Process.of(target)}, {AFFINITY_FIELD}"

    def resource(self, access: Access, where: str) -> ThreadValue:
        return ThreadValue(Process.of(access.target), AFFINITY_FIELD, _get_affinity, _set_affinity, _affinity_command)

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        uniform(AFFINITY_FIELD, state)
        return {AFFINITY_FIELD: listed(cpus(given.get(AFFINITY_FIELD, "")))}


def cpus(text: str) -> frozenset[int]:
    """`0-3,6` as numbers (cpuset(7), "List format"). Raises UsageError."""
    given = text.replace(" ", "")
    if not _LIST.fullmatch(given) or len(given) > 4 * MAX_CPUS:
        raise UsageError(f"{clean(text, 80)!r} is no list of processors, such as 0-3,6")
    found: set[int] = set()
    for part in given.split(","):
        first, _, last = part.partition("-")
        if not int(first) <= int(last or first) < MAX_CPUS:
            raise UsageError(f"{part!r} is no range of processors")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def listed(numbers: Iterable[int]) -> str:
    """The same the other way round; one text for one set."""
    ordered = sorted(numbers)
    runs = [[number for _, number in run] for _, run in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _get_affinity(thread: int) -> Value:
    return listed(os.sched_getaffinity(thread))


def _set_affinity(thread: int, value: Value) -> None:
    os.sched_setaffinity(thread, cpus(str(value)))


def _affinity_command(process: Process, value: Value) -> str:
    return f"taskset -a -p -c {value} {process.pid}"


AFFINITY = AffinityAction()


NICE_FIELD = "nice"
LEAST, MAX_NICE = -20, 19
_CAP_SYS_NICE = 23  # capability.h


@dataclass(frozen=True, slots=True)
class NiceAction:
    """`nice: 5`, for all threads of the process."""

    name: str = "process.nice.set"
    kinds: frozenset[str] = frozenset({"process"})
    undos: frozenset[str] = frozenset({"restore"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        return problems_of(given, NICE_FIELD, "5", _level)

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return f"{Process.of(target)}, {NICE_FIELD}"

    def resource(self, access: Access, where: str) -> ThreadValue:
        return ThreadValue(Process.of(access.target), NICE_FIELD, _get_nice, _set_nice, _nice_command)

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        before, after = uniform(NICE_FIELD, state), _level(given.get(NICE_FIELD, ""))
        lowest = min(int(before or 0), after)
        if before != after and lowest < floor():
            raise UsageError(
                f"this user may not set nice to {lowest}, so that {before} → {after} could not be made and taken back",
                next_step="run latdoctor with CAP_SYS_NICE, or raise RLIMIT_NICE",
            )
        return {NICE_FIELD: after}


def floor() -> int:
    """The lowest value that this process may set (getrlimit(2), RLIMIT_NICE)."""
    if _privileged():
        return LEAST
    limit = resource.getrlimit(resource.RLIMIT_NICE)[0]
    if limit == resource.RLIM_INFINITY:
        return LEAST
    return max(LEAST, 20 - limit) if limit else MAX_NICE + 1


def _privileged() -> bool:
    text = (PROC / "self" / "status").read_text(errors="replace")
    effective = next((line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_SYS_NICE & 1)


def _level(text: str) -> int:
    level = value_parsing.number(NICE_FIELD, text)
    if not isinstance(level, int) or not LEAST <= level <= MAX_NICE:
        raise UsageError(f"nice is a whole number from {LEAST} to {MAX_NICE}")
    return level


def _get_nice(thread: int) -> Value:
    return os.getpriority(os.PRIO_PROCESS, thread)


def _set_nice(thread: int, value: Value) -> None:
    os.setpriority(os.PRIO_PROCESS, thread, int(value or 0))


def _nice_command(process: Process, value: Value) -> str:
    return f"renice -n {value} -p $(ls /proc/{process.pid}/task)"


NICE = NiceAction()
