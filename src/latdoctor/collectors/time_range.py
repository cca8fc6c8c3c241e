"""The requested time range of a log (`--since`, `--until`, `--window`).

It is stored as an artifact next to the log, so that a replay counts the same lines. A log that does not reach the
judged window yields a gap with the time at which it ends, never a count of zero.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import to_json

SUFFIX = "+past"  # suffix of the artifact's name; names of logs never contain a plus sign
_MAX_BYTES = 1 << 16
NO_TIME_OF_DAY = "its lines have no time of day, so they cannot be assigned to the requested time range"


class TimeRange(Struct, frozen=True):
    """Lines from `since` to `until` (unix seconds UTC) are read; the last `window` seconds are judged."""

    since: float
    until: float
    window: float

    @property
    def judged(self) -> float:
        """Start of the judged window."""
        return self.until - self.window

    def contains(self, time: float) -> bool:
        return self.since <= time <= self.until

    def coverage_gap(self, first: float | None, last: float | None) -> str:
        """Say why a log from `first` to `last` does not cover the judged window; empty if it does."""
        if first is None or last is None:
            return NO_TIME_OF_DAY
        if last < self.judged:
            return f"the log ends at {format_utc(last)}, and the judged window begins at {format_utc(self.judged)}"
        if first > self.until:
            return f"the log begins at {format_utc(first)}, and the judged window ends at {format_utc(self.until)}"
        return ""

    def late_start(self, first: float | None) -> str:
        """Say that a log begins only within the judged window; empty if it begins before."""
        if first is None or first <= self.judged:
            return ""
        return f"the log begins at {format_utc(first)}, and the judged window at {format_utc(self.judged)}"


def with_time_range(log: Artifact, past: TimeRange | None) -> tuple[Artifact, ...]:
    """Return `log` followed by the artifact of its time range, if one was requested."""
    if past is None:
        return (log,)
    range_artifact = Artifact(f"{log.name}{SUFFIX}", log.collector, log.group, log.source, log.taken_at, to_json(past))
    return log, range_artifact


def read_time_range(artifacts: Sequence[Artifact]) -> TimeRange | None:
    """Read the stored time range of a group of logs; None if all of it was requested. Raises SourceError."""
    stored = next((one for one in artifacts if one.name.endswith(SUFFIX)), None)
    if stored is None:
        return None
    try:
        past = msgspec.json.decode(stored.read(_MAX_BYTES), type=TimeRange)
    except UNDECODABLE as error:
        raise SourceError("its stored time range cannot be read", where=stored.source) from error
    if not (math.isfinite(past.since) and math.isfinite(past.until) and 0 < past.window <= past.until - past.since):
        raise SourceError("its stored time range is invalid", where=stored.source)
    return past


def format_utc(moment: float) -> str:
    """Format unix seconds as `2026-01-31 02:49:10 UTC`; as a plain number outside the calendar."""
    try:
        return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{moment:.0f} s"
