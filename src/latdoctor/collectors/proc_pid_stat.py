"""Parser of /proc/PID/stat, shared by several collectors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile(r"-?[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """Fields of /proc/PID/stat (proc_pid_stat(5)). Times in clock ticks, `rss` in pages."""

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
    """Parse one line of /proc/PID/stat. Raises ValueError.

    The command in parentheses may itself contain spaces and parentheses, so the last `)` counts.
    """
    _, found, rest = text.rpartition(")")
    fields = rest.split()
    if not found or len(fields) < 22 or len(fields[0]) != 1:
        raise ValueError("not a line of /proc/PID/stat")
    return ProcessStat(
        state=fields[0],
        parent=_whole(fields[1]),
        minor_faults=_whole(fields[7]),
        major_faults=_whole(fields[9]),
        user_ticks=_whole(fields[11]),
        system_ticks=_whole(fields[12]),
        threads=_whole(fields[17]),
        start_ticks=_whole(fields[19]),
        rss=_whole(fields[21]),
    )


def _whole(text: str) -> int:
    """Parse an integer of at most 64 bits. Raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a line of /proc/PID/stat")
    return int(text)


def parent_pid(pid: int, root: Path = Path("/proc")) -> int | None:
    """Return the parent of `pid`; None if there is no such process or it is not readable."""
    try:
        return parse_stat((root / str(pid) / "stat").read_text(errors="replace")).parent
    except (OSError, ValueError):
        return None
