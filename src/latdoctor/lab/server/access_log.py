"""Access log: one JSON line for each answered request, with its start and end time."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.errors import OperationError


class AccessLogEntry(Struct, frozen=True, omit_defaults=True):
    """A line. Times are UTC; `entry` is when the first line of the request arrived.

    `seconds` is not their difference: it is measured with a monotonic clock, and of an answered request it is the
    server's own time, from its whole body on. `stages` are the seconds of it that a computed answer spent in each.
    """

    entry: datetime
    exit: datetime
    seconds: float
    status: int
    request_id: str
    replica: str
    reason: str = ""
    stages: dict[str, float] = {}
    session: str = ""
    input_tokens: int = 0  # of the request itself, without the history of its session


class AccessLog:
    """Appends lines; safe from every thread. A disk error is reported once and fails no request."""

    def __init__(self, path: Path) -> None:
        """Raises OperationError where the file cannot be opened."""
        try:
            self._file = path.open("ab", buffering=0)  # unbuffered: readers only find whole lines
        except OSError as error:
            raise OperationError(f"cannot be written: {error.strerror}", where=str(path)) from error
        self.path = path
        self._lock = threading.Lock()
        self._broken = False

    def write(self, entry: AccessLogEntry) -> None:
        line = msgspec.json.encode(entry) + b"\n"
        with self._lock:
            try:
                self._file.write(line)
            except OSError as error:
                self._report(error)

    def close(self) -> None:
        self._file.close()

    def _report(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            sys.stderr.write(f"{self.path}: the access log cannot be written: {error.strerror}\n")


def utc_time(unix_seconds: float) -> datetime:
    return datetime.fromtimestamp(unix_seconds, UTC)
