"""The time that a log covers, and which of its lines are in the requested time range.

Not every line is parsed, because the kernel log of a day has a million: `line_reading.py` chooses those that are.
"""

from __future__ import annotations

from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.collectors.time_range import TimeRange


class LogTimeCoverage:
    """Takes the lines of one log in order. Mutable; used by `logs.parse` only. Times are unix seconds UTC."""

    def __init__(self, past: TimeRange) -> None:
        self.past = past
        self.first: float | None = None
        self.last: float | None = None
        self.zoned = True

    def note_time(self, line: LogLine) -> None:
        """Record the time of a parsed line."""
        if line.time is not None:
            self.first = line.time if self.first is None else min(self.first, line.time)
            self.last = line.time if self.last is None else max(self.last, line.time)
            self.zoned = self.zoned and line.zoned

    @property
    def missed(self) -> str:
        """Why the log does not cover the judged window; empty if it does."""
        why = self.past.coverage_gap(self.first, self.last) or self.past.late_start(self.first)
        return f"{why} (without a time zone, read as UTC)" if why and not self.zoned else why

    def excludes(self, time: float, *, earlier_too: bool) -> bool:
        """Whether the time is outside the requested range; `earlier_too`: earlier events may explain what is judged."""
        return time > self.past.until or (time < self.past.since and not earlier_too)
