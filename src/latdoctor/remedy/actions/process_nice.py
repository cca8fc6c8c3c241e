"""`process.nice.set`: how much a process gives way to others (nice(2)); only where it may also be taken back.

Everybody may give way more. Giving way less needs a privilege, so without it a change upwards could not be restored.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from latdoctor.errors import UsageError
from latdoctor.remedy.actions import values
from latdoctor.remedy.actions.process import PROC, Process
from latdoctor.remedy.actions.threads import ThreadValue, problems_of, uniform
from latdoctor.remedy.change import State, Value, Values
from latdoctor.remedy.target import Access, Target

FIELD = "nice"
LEAST, MOST = -20, 19
_CAP_SYS_NICE = 23  # capability.h


@dataclass(frozen=True, slots=True)
class NiceAction:
    """`nice: 5`, for all threads of the process."""

    name: str = "process.nice.set"
    kinds: frozenset[str] = frozenset({"process"})
    undos: frozenset[str] = frozenset({"restore"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        return problems_of(given, FIELD, "5", _level)

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return f"{Process.of(target)}, {FIELD}"

    def resource(self, access: Access, where: str) -> ThreadValue:
        return ThreadValue(Process.of(access.target), FIELD, _get, _put, _command)

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        before, after = uniform(FIELD, state), _level(given.get(FIELD, ""))
        lowest = min(int(before or 0), after)
        if before != after and lowest < floor():
            raise UsageError(
                f"this user may not set nice to {lowest}, so that {before} → {after} could not be made and taken back",
                next_step="run latdoctor with CAP_SYS_NICE, or raise RLIMIT_NICE",
            )
        return {FIELD: after}


def floor() -> int:
    """The lowest value that this process may set (getrlimit(2), RLIMIT_NICE)."""
    if _privileged():
        return LEAST
    limit = resource.getrlimit(resource.RLIMIT_NICE)[0]
    if limit == resource.RLIM_INFINITY:
        return LEAST
    return max(LEAST, 20 - limit) if limit else MOST + 1


def _privileged() -> bool:
    text = (PROC / "self" / "status").read_text(errors="replace")
    effective = next((line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_SYS_NICE & 1)


def _level(text: str) -> int:
    level = values.number(FIELD, text)
    if not isinstance(level, int) or not LEAST <= level <= MOST:
        raise UsageError(f"nice is a whole number from {LEAST} to {MOST}")
    return level


def _get(thread: int) -> Value:
    return os.getpriority(os.PRIO_PROCESS, thread)


def _put(thread: int, value: Value) -> None:
    os.setpriority(os.PRIO_PROCESS, thread, int(value or 0))


def _command(process: Process, value: Value) -> str:
    return f"renice -n {value} -p $(ls /proc/{process.pid}/task)"


NICE = NiceAction()
