"""`process.affinity.set`: the processors that a process may run on, as sched_setaffinity(2) has them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from latdoctor.errors import UsageError
from latdoctor.remedy.actions.process import Process
from latdoctor.remedy.actions.threads import ThreadValue, problems_of, uniform
from latdoctor.remedy.change import State, Value, Values
from latdoctor.remedy.target import Access, Target
from latdoctor.text import clean

FIELD = "cpus"
MOST = 8192  # processors: what a kernel of today can be built for
_LIST = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*")


@dataclass(frozen=True, slots=True)
class AffinityAction:
    """`cpus: 0-3,6`, for all threads of the process."""

    name: str = "process.affinity.set"
    kinds: frozenset[str] = frozenset({"process"})
    undos: frozenset[str] = frozenset({"restore"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        return problems_of(given, FIELD, "0-3,6", cpus)

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return f"{Process.of(target)}, {FIELD}"

    def resource(self, access: Access, where: str) -> ThreadValue:
        return ThreadValue(Process.of(access.target), FIELD, _get, _put, _command)

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        uniform(FIELD, state)
        return {FIELD: listed(cpus(given.get(FIELD, "")))}


def cpus(text: str) -> frozenset[int]:
    """`0-3,6` as numbers (cpuset(7), "List format"). Raises UsageError."""
    given = text.replace(" ", "")
    if not _LIST.fullmatch(given) or len(given) > 4 * MOST:
        raise UsageError(f"{clean(text, 80)!r} is no list of processors, such as 0-3,6")
    found: set[int] = set()
    for part in given.split(","):
        first, _, last = part.partition("-")
        if not int(first) <= int(last or first) < MOST:
            raise UsageError(f"{part!r} is no range of processors")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def listed(numbers: Iterable[int]) -> str:
    """The same the other way round; one text for one set."""
    ordered = sorted(numbers)
    runs = [[number for _, number in run] for _, run in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _get(thread: int) -> Value:
    return listed(os.sched_getaffinity(thread))


def _put(thread: int, value: Value) -> None:
    os.sched_setaffinity(thread, cpus(str(value)))


def _command(process: Process, value: Value) -> str:
    return f"taskset -a -p -c {value} {process.pid}"


AFFINITY = AffinityAction()
