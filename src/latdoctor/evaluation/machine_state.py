"""The measuring machine: its model, its versions, and the processor time that other processes used.

Read from /proc (Linux): total busy time less the time of this process and its descendants.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal of the line `cpu`: proc_stat(5)
_ALL, _STOLEN = slice(0, 8), 7  # the last two fields (guest time) are part of user and nice
# Foreign processor use above this share changes P99 as much as a mild fault; on an idle machine readings vary by 2 %.
OTHERS = 0.15
BUSY_LOAD, BUSY_PRESSURE = 0.6, 0.25  # load average per processor; share of time
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


def busy(root: Path = Path("/proc")) -> str:
    """Why measurements here would be distorted by other load; empty where they would not."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load, limit = load_average(root), BUSY_LOAD * processors
    if load is not None and load > limit:
        return f"load average {load:.2f} on {processors} processors (limit {limit:g})"
    pressure = cpu_pressure(root)
    if pressure is not None and pressure > BUSY_PRESSURE:
        return f"tasks waited for a processor {pressure:.0%} of the last 10 s (limit {BUSY_PRESSURE:.0%})"
    return ""


def cpu_pressure(root: Path = Path("/proc")) -> float | None:
    """The share of the last 10 s in which some task waited for a processor (PSI); None where unknown."""
    try:
        fields = (root / "pressure" / "cpu").read_text().split()
        return float(fields[1].removeprefix("avg10=")) / 100
    except (OSError, ValueError, IndexError):
        return None


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
