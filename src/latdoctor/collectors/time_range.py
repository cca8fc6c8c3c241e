"""The part of its time that was asked for of a log (`--since`, `--until`, `--window`).

It is kept beside the log, so that a replay counts the same lines. A log that does not reach the judged time tells
nothing of it: that is a gap with the time at which the log ends, and no "none".
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from latdoctor.errors import UNDECODABLE, SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import to_json

SUFFIX = "+past"  # ends the artifact's name; the names of logs have no such sign in them
_MAX_BYTES = 1 << 16
NO_TIME_OF_DAY = "its lines tell no time of day, so nobody knows which of them belong to the time that was asked for"


class TimeRange(Struct, frozen=True):
    """What lies from `since` to `until` (unix seconds UTC) is read; the last `window` seconds of it are judged."""

    since: float
    until: float
    window: float

    @property
    def judged(self) -> float:
        """Where the judged time begins."""
        return self.until - self.window

    def holds(self, time: float) -> bool:
        return self.since <= time <= self.until

    def missed_by(self, first: float | None, last: float | None) -> str:
        """Why a log whose lines tell of `first` to `last` says nothing of the judged time; empty where it does."""
        if first is None or last is None:
            return NO_TIME_OF_DAY
        if last < self.judged:
            return f"the log ends at {format_utc(last)}, and the judged time begins at {format_utc(self.judged)}"
        if first > self.until:
            return f"the log begins at {format_utc(first)}, and the judged time ends at {format_utc(self.until)}"
        return ""

    def late(self, first: float | None) -> str:
        """What must be said where the log begins only within the judged time."""
        if first is None or first <= self.judged:
            return ""
        return f"the log begins at {format_utc(first)}, and the judged time at {format_utc(self.judged)}"


def with_time_range(log: Artifact, past: TimeRange | None) -> tuple[Artifact, ...]:
    """`log`, and the time that was asked for of it where not all was."""
    if past is None:
        return (log,)
    beside = Artifact(f"{log.name}{SUFFIX}", log.collector, log.group, log.source, log.taken_at, to_json(past))
    return log, beside


def read_time_range(artifacts: Sequence[Artifact]) -> TimeRange | None:
    """The time that was asked for of a group's logs; None for all of it. Raises SourceError where it makes no sense."""
    stated = next((one for one in artifacts if one.name.endswith(SUFFIX)), None)
    if stated is None:
        return None
    try:
        past = msgspec.json.decode(stated.read(_MAX_BYTES), type=TimeRange)
    except UNDECODABLE as error:
        raise SourceError("the time that was asked for of it cannot be read", where=stated.source) from error
    if not (math.isfinite(past.since) and math.isfinite(past.until) and 0 < past.window <= past.until - past.since):
        raise SourceError("the time that was asked for of it makes no sense", where=stated.source)
    return past


def format_utc(moment: float) -> str:
    """`2026-01-31 02:49:10 UTC`; the bare number where no calendar has it."""
    try:
        return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{moment:.0f} s"
