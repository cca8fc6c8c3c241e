"""The time that a log covers, and which of its lines are in the requested time range.

Not every line is parsed, because the kernel log of a day has a million: only the first and last lines, one in STEP in
between, and lines of interest. A line without a time (part of a traceback) has the time of the nearest line before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from latdoctor.collectors.logs import line_prefix
from latdoctor.collectors.logs.line_prefix import MAX_LINE, LogLine
from latdoctor.collectors.time_range import TimeRange

NEAR = 64  # lines: maximum distance of a traceback's lines from its time, and number of lines parsed at both ends
STEP = 50


class LogTimeCoverage:
    """Takes the lines of one log in order. Mutable; used by `logs.parse` only. Times are unix seconds UTC."""

    def __init__(self, past: TimeRange, taken_at: float) -> None:
        self.past = past
        self.first: float | None = None
        self.last: float | None = None
        self.zoned = True
        self._taken_at = taken_at
        self._behind: deque[bytes] = deque(maxlen=NEAR)  # not parsed yet
        self._passed = 0
        self._nearest: tuple[LogLine, int] | None = None  # the last line with a time, and its number

    def add_line(self, raw: bytes, number: int) -> None:
        """Add a line; `number` counts from 1."""
        if number <= NEAR or number % STEP == 0:
            self._parsed(raw)
        self._behind.append(raw)
        self._passed = number

    def finish(self) -> None:
        """Called after the last line."""
        for raw in self._behind:
            self._parsed(raw)

    def _parsed(self, raw: bytes) -> LogLine:
        line = line_prefix.parse(line_prefix.clean_line(raw[:MAX_LINE]), self._taken_at)
        self.note_time(line)
        return line

    def note_time(self, line: LogLine) -> None:
        """Record the time of a parsed line."""
        if line.time is not None:
            self.first = line.time if self.first is None else min(self.first, line.time)
            self.last = line.time if self.last is None else max(self.last, line.time)
            self.zoned = self.zoned and line.zoned

    def with_time(self, line: LogLine) -> LogLine:
        """Return `line` with the time of the nearest line before it if it has none itself."""
        self.note_time(line)
        if line.time is not None or line.uptime is not None:
            return line
        self._parse_backlog()
        if self._nearest is None or self._passed - self._nearest[1] >= NEAR:
            return line
        before, _ = self._nearest
        return replace(line, time=before.time, zoned=before.zoned)

    def _parse_backlog(self) -> None:
        """Each line is looked at once, however many without a time follow each other."""
        for offset, raw in enumerate(reversed(self._behind)):
            one = self._parsed(raw)
            if one.time is not None:
                self._nearest = (one, self._passed - offset)
                break
        self._behind.clear()

    @property
    def missed(self) -> str:
        """Why the log does not cover the judged window; empty if it does."""
        why = self.past.coverage_gap(self.first, self.last) or self.past.late_start(self.first)
        return f"{why} (without a time zone, read as UTC)" if why and not self.zoned else why

    def excludes(self, time: float, *, earlier_too: bool) -> bool:
        """Whether the time is outside the requested range; `earlier_too`: earlier events may explain what is judged."""
        return time > self.past.until or (time < self.past.since and not earlier_too)
