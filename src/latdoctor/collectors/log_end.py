"""When a log file ends: the time of its last line that has one.

Only the end of the file is read. A log without times, a compressed one and a pipe have no end that could be known
before they are read.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from latdoctor.collectors.access_log.formats import line_time

_READ = 256 << 10  # bytes
_LINES = 2000


def last_end(paths: Iterable[Path], now: float) -> float | None:
    """When the last of the files ends, in unix seconds; None where one of them does not say."""
    ends = [_end(path, now) for path in paths]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def _end(path: Path, now: float) -> float | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _READ))
            lines = file.read(_READ).splitlines()
    except OSError:
        return None  # the collector will say so
    found = (line_time(raw, now) for raw in reversed(lines[-_LINES:]))
    return next((one.time for one in found if one is not None), None)
