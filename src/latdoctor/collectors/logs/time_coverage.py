"""Of which time a log speaks, and which of its lines belong to the part that was asked for.

Not every line is taken apart: a kernel log of a day has a million. The first and last lines are, one in STEP between
them, and whatever is worth a look. A line without a time of its own (the lines of a traceback) has the time of the
nearest one before it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from latdoctor.collectors.logs import line_prefix
from latdoctor.collectors.logs.line_prefix import MAX_LINE, LogLine
from latdoctor.collectors.time_range import TimeRange

NEAR = 64  # lines: how far a traceback's lines stand behind its time, and how many are read at both ends
STEP = 50


class LogTimeCoverage:
    """Takes the lines of one log in their order. Mutable, and used by `logs.parse` alone. Times unix seconds UTC."""

    def __init__(self, past: TimeRange, taken_at: float) -> None:
        self.past = past
        self.first: float | None = None
        self.last: float | None = None
        self.zoned = True
        self._taken_at = taken_at
        self._behind: deque[bytes] = deque(maxlen=NEAR)  # not taken apart yet
        self._passed = 0
        self._nearest: tuple[LogLine, int] | None = None  # the last line known to tell a time, and its number

    def add_line(self, raw: bytes, number: int) -> None:
        """A line goes by; `number` counts from 1."""
        if number <= NEAR or number % STEP == 0:
            self._parsed(raw)
        self._behind.append(raw)
        self._passed = number

    def finish(self) -> None:
        """No line comes any more."""
        for raw in self._behind:
            self._parsed(raw)

    def _parsed(self, raw: bytes) -> LogLine:
        line = line_prefix.parse(line_prefix.clean_line(raw[:MAX_LINE]), self._taken_at)
        self.note_time(line)
        return line

    def note_time(self, line: LogLine) -> None:
        """Notes the time of a line that was taken apart."""
        if line.time is not None:
            self.first = line.time if self.first is None else min(self.first, line.time)
            self.last = line.time if self.last is None else max(self.last, line.time)
            self.zoned = self.zoned and line.zoned

    def with_time(self, line: LogLine) -> LogLine:
        """`line` with the time of the nearest line before it, where it tells none itself."""
        self.note_time(line)
        if line.time is not None or line.uptime is not None:
            return line
        self._look_behind()
        if self._nearest is None or self._passed - self._nearest[1] >= NEAR:
            return line
        before, _ = self._nearest
        return replace(line, time=before.time, zoned=before.zoned)

    def _look_behind(self) -> None:
        """Each line is looked at once, however many without a time follow each other."""
        for offset, raw in enumerate(reversed(self._behind)):
            one = self._parsed(raw)
            if one.time is not None:
                self._nearest = (one, self._passed - offset)
                break
        self._behind.clear()

    @property
    def missed(self) -> str:
        """Why the log says nothing of the judged time; empty where it does."""
        why = self.past.coverage_gap(self.first, self.last) or self.past.late_start(self.first)
        return f"{why} (the log tells no zone: read as UTC)" if why and not self.zoned else why

    def excludes(self, time: float, *, earlier_too: bool) -> bool:
        """Whether that moment is not asked for; `earlier_too`: what lay before may explain what is judged."""
        return time > self.past.until or (time < self.past.since and not earlier_too)
