"""The machine that something was measured on: what it is, and how much of its processors others took meanwhile.

From /proc (Linux): what all processors were busy with, less what this process and all that it started took.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal of the line `cpu`: proc_stat(5)
_ALL, _STOLEN = slice(0, 8), 7  # guests, the last two fields of that line, are in user and nice already
# The share of all processors that others may take: with more than this the machine's own state moves P99 as a mild
# fault does. Two looks at an idle machine differ by 2 %.
OTHERS = 0.15
_PARENT, _TIMES = 1, slice(11, 15)  # after the command's name: ppid; utime, stime and those of ended children


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processor time since the machine started, and when that was read (unix seconds).

    `whole` is what there was of it; `stolen` the part that the host gave to others, which is in `busy` as well.
    """

    at: float
    busy: float
    own: float
    whole: float
    stolen: float


def usage(now: float, root: Path = Path("/proc"), pid: int = 0) -> Usage | None:
    """None where the kernel does not tell."""
    try:
        line = [int(field) for field in (root / "stat").read_text().splitlines()[0].split()[1:]]
        ticks = os.sysconf("SC_CLK_TCK")
        busy = sum(line[place] for place in _BUSY) / ticks
        own = _of_tree(root, pid or os.getpid()) / ticks
        return Usage(now, busy, own, sum(line[_ALL]) / ticks, line[_STOLEN] / ticks)
    except (OSError, ValueError, IndexError):
        return None


def others(first: Usage | None, last: Usage | None, processors: int) -> float | None:
    """The share of all processors that others took between two readings; None where it cannot be told."""
    if first is None or last is None or last.at <= first.at:
        return None
    foreign = (last.busy - first.busy) - (last.own - first.own)
    return min(1.0, max(0.0, foreign / ((last.at - first.at) * processors)))


def steal(first: Usage | None, last: Usage | None) -> float | None:
    """The share of processor time that the host gave to others between two readings; None where it cannot be told."""
    if first is None or last is None or last.whole <= first.whole:
        return None
    return (last.stolen - first.stolen) / (last.whole - first.whole)


def model(root: Path = Path("/proc")) -> str:
    """What its processors are called; empty where the kernel does not tell."""
    try:
        lines = (root / "cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def state(root: Path = Path("/proc")) -> dict[str, object]:
    """What a figure that was measured here has to be read with: versions, processors, and how busy they are."""
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


def load_average(root: Path = Path("/proc")) -> float | None:
    """Runnable tasks over the last minute; None where the kernel does not tell."""
    try:
        return float((root / "loadavg").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _of_tree(root: Path, pid: int) -> int:
    """Ticks of `pid` and everything below it, what has ended included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in root.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended: its parent has its times
            continue
        parents[int(entry.name)] = int(fields[_PARENT])
        ticks[int(entry.name)] = sum(int(value) for value in fields[_TIMES])
    own = {pid}
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in own} - own
        own |= more
        grown = bool(more)
    return sum(ticks.get(one, 0) for one in own)
