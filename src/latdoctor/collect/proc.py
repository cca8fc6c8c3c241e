"""The texts of /proc that several sources read: /proc/PID/stat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/PID/stat that are used (proc_pid_stat(5)). Times in clock ticks, `rss` in pages."""

    state: str
    parent: int
    minor_faults: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    threads: int
    start_ticks: int
    rss: int


def parse_stat(text: str) -> ProcessStat:
    """One line of /proc/PID/stat. Raises ValueError where it is not one.

    The command in parentheses may itself hold spaces and parentheses: what counts is the last one.
    """
    _, found, rest = text.rpartition(")")
    fields = rest.split()
    if not found or len(fields) < 22 or len(fields[0]) != 1:
        raise ValueError("not a line of /proc/PID/stat")
    return ProcessStat(
        state=fields[0],
        parent=int(fields[1]),
        minor_faults=int(fields[7]),
        major_faults=int(fields[9]),
        user_ticks=int(fields[11]),
        system_ticks=int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss=int(fields[21]),
    )


def parent_of(pid: int, root: Path = Path("/proc")) -> int | None:
    """The parent of `pid`, or None where there is no such process or it may not be read."""
    try:
        return parse_stat((root / str(pid) / "stat").read_text(errors="replace")).parent
    except (OSError, ValueError):
        return None
