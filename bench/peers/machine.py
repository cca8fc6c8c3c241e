"""The state of the machine a figure was measured on."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct


class Machine(Struct, frozen=True):
    """`steal`: share of processor time that the host gave to others, since `ticks` was read. `load`: over a minute."""

    model: str
    processors: int
    load: float
    steal: float


def ticks() -> tuple[int, int]:
    """All ticks of all processors since boot, and those stolen (proc(5), stat)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[7]


def machine(since: tuple[int, int]) -> Machine:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    total, stolen = ticks()
    return Machine(
        model=names[0].partition(":")[2].strip() if names else "unknown",
        processors=os.cpu_count() or 1,
        load=float(Path("/proc/loadavg").read_text().split()[0]),
        steal=round((stolen - since[1]) / max(1, total - since[0]), 4),
    )


def busy_seconds() -> float:
    """Processor time that this machine was kept busy with since boot, by whomever; stolen time is somebody's too."""
    user, nice, system, _, _, interrupts, soft, stolen = (
        int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])
