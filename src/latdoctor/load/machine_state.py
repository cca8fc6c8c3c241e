"""The measuring machine: its model, its versions, and the processor time that other processes used.

Read from /proc (Linux): total busy time less the time of this process and its descendants.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal of the line `cpu`: proc_stat(5)
_ALL, _STOLEN = slice(0, 8), 7  # the last two fields (guest time) are part of user and nice
# Foreign processor use above this share changes P99 as much as a mild fault; on an idle machine readings vary by 2 %.
OTHERS = 0.15
# Of a demo: above this share nothing of it would succeed. It is measured for so many seconds before.
BUSY_SHARE, BUSY_SECONDS = 0.4, 3.0
_PARENT, _TIMES = 1, slice(11, 15)  # fields after the command name: ppid; utime, stime, cutime, cstime


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds since boot, read at `at` (unix seconds).

    `whole` is all processor time, `stolen` the part the hypervisor gave to other guests; `busy` includes it.
    """

    at: float
    busy: float
    own: float
    whole: float
    stolen: float


def usage(now: float, root: Path = Path("/proc"), pid: int = 0) -> Usage | None:
    """Processor use now; None where /proc cannot be read."""
    try:
        line = [int(field) for field in (root / "stat").read_text().splitlines()[0].split()[1:]]
        ticks = os.sysconf("SC_CLK_TCK")
        busy = sum(line[place] for place in _BUSY) / ticks
        own = _of_tree(root, pid or os.getpid()) / ticks
        return Usage(now, busy, own, sum(line[_ALL]) / ticks, line[_STOLEN] / ticks)
    except (OSError, ValueError, IndexError):
        return None


def others(first: Usage | None, last: Usage | None, processors: int) -> float | None:
    """The share of all processors that other processes used between two readings; None: unknown."""
    if first is None or last is None or last.at <= first.at:
        return None
    foreign = (last.busy - first.busy) - (last.own - first.own)
    return min(1.0, max(0.0, foreign / ((last.at - first.at) * processors)))


def steal(first: Usage | None, last: Usage | None) -> float | None:
    """The steal share of processor time between two readings; None: unknown."""
    if first is None or last is None or last.whole <= first.whole:
        return None
    return (last.stolen - first.stolen) / (last.whole - first.whole)


def model(root: Path = Path("/proc")) -> str:
    """The processor model; empty where unknown."""
    try:
        lines = (root / "cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def state(root: Path = Path("/proc")) -> dict[str, object]:
    """The provenance of a measurement: versions, processors, and their load."""
    pressure = root / "pressure" / "cpu"
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "model": model(root),
        "processors": len(usable),
        "load_average": load_average(root),
        "psi_cpu": pressure.read_text().split()[1] if pressure.exists() else "",
    }


def other_load(share: float, limit: float = OTHERS) -> str:
    """The message for a foreign processor use of `share`."""
    return f"other processes used {share:.0%} of the processors (limit {limit:.0%})"


def busy(root: Path = Path("/proc"), sleep: Callable[[float], None] = time.sleep, limit: float = BUSY_SHARE) -> str:
    """Why other processes would distort a demo, by what they do in the next seconds; empty where they would not.

    The load average would count for minutes what this demo's own set-up did.
    """
    first, began = usage(time.time(), root), time.monotonic()
    sleep(BUSY_SECONDS)
    last = usage((first.at if first else 0.0) + max(BUSY_SECONDS, time.monotonic() - began), root)
    share = others(first, last, os.cpu_count() or 1)
    return other_load(share, limit) if share is not None and share > limit else ""


def load_average(root: Path = Path("/proc")) -> float | None:
    """The one-minute load average; None where unknown."""
    try:
        return float((root / "loadavg").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _of_tree(root: Path, pid: int) -> int:
    """Ticks of `pid` and its descendants, ended ones included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in root.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile: its parent has its times
            continue
        parents[int(entry.name)] = int(fields[_PARENT])
        ticks[int(entry.name)] = sum(int(value) for value in fields[_TIMES])
    own = {pid}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(one, 0) for one in own)


if __name__ == "__main__":  # make demo, before its set-up
    if reason := busy():
        sys.exit(f"the machine is too busy for the demo: {reason}; stop other work, or: make demo FORCE=1")
