"""The texts of /proc that several sources read: /proc/PID/stat."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile(r"-?[0-9]{1,20}")


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
    """Raises ValueError for what the kernel would not write: no number, or one of more than 64 bits."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a line of /proc/PID/stat")
    return int(text)


def parent_pid(pid: int, root: Path = Path("/proc")) -> int | None:
    """The parent of `pid`, or None where there is no such process or it may not be read."""
    try:
        return parse_stat((root / str(pid) / "stat").read_text(errors="replace")).parent
    except (OSError, ValueError):
        return None
