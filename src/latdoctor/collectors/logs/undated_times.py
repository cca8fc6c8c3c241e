"""Times of day without a date: `10:02:33,123 INFO ready`.

The day is that of the nearest line before it with a date, if the log has such lines. Else the last line is taken to be
written when the file was last changed: that is certain where both clocks agree but for whole hours of a time zone. For
a copy or a stream it is not; then only the differences between the times are certain, and a gap says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from latdoctor.collectors.logs.line_prefix import APPLICATION, LogLine
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Gap, Origin
from latdoctor.gap_code import GapCode

_LEVEL = rb"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL)"
_CLOCK = re.compile(
    rb"^[ \t]{0,4}(?:\[?" + _LEVEL + rb"\]?[ :|-]{1,6})?\[?([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:[.,](\d{1,9}))?\]?"
    rb"(?=[ \t|:,\]-])",
    re.MULTILINE,
)
_ANY_LEVEL = re.compile(rb"\b" + _LEVEL + rb"\b", re.IGNORECASE)
_DAY, _HOUR = 86400.0, 3600.0
_TRIED = 100  # lines at the beginning
_LEAST = 0.3  # of them begin with such a time
_SAME = 30.0  # seconds between the last line and the last change of the file
_MOST_HOURS = 12
_STEP = "pass the log with dates (kubectl logs --timestamps, docker logs --timestamps)"


class UndatedTimes:
    """Dates the times of day of one log, whose lines are passed in their order. Mutable."""

    def __init__(self, last: float, written_at: float, days: int, *, exact: bool) -> None:
        """`last`: the last time of day in the log, in seconds; `days`: how often a new day begins in it."""
        ahead = (last - written_at) % _DAY
        hours = round(ahead / _HOUR)
        self._certain = exact and abs(ahead - hours * _HOUR) <= _SAME
        self._zone = (hours if hours <= _MOST_HOURS else hours - 24) * _HOUR if self._certain else 0.0
        # The local time of the last line as if it were UTC.
        end = written_at + self._zone + ahead - hours * _HOUR if self._certain else written_at - _DAY + ahead
        self._midnight = end - last - days * _DAY
        self._last: float | None = None
        self._dated = False  # a line with a date stood before
        self._unsure = 0

    @property
    def certain(self) -> bool:
        """Whether the file shows on which day it ends."""
        return self._certain

    def placed(self, line: LogLine, raw: bytes) -> LogLine:
        """`line`, with a time if it begins with a time of day."""
        if line.time is not None:
            self._midnight, self._last = line.time - line.time % _DAY, line.time % _DAY
            self._zone, self._dated = 0.0, True
            return line
        found = _CLOCK.match(raw)
        if found is None or line.uptime is not None:
            return line
        clock = _seconds(found)
        if self._last is not None and abs(clock - self._last) > _DAY / 2:
            self._midnight += _DAY if clock < self._last else -_DAY  # the latter where earlier lines are looked at
        self._last = clock
        self._unsure += not (self._dated or self._certain)
        message = raw[found.end() :].decode("utf-8", "replace").lstrip(" \t|:,]-")
        return replace(line, message=message, writer=APPLICATION, time=self._midnight + clock - self._zone)

    def gap(self, artifact: Artifact) -> Gap | None:
        """That the day is not certain, where a line was dated by the time of the file alone."""
        if not self._unsure:
            return None
        reason = (
            f"{artifact.source}: its times have no date and are dated by the file: only the differences between them "
            "are certain"
        )
        return Gap("logs", reason, (), None, _STEP, Origin(artifact.name), GapCode.AMBIGUOUS)


def is_undated(head: bytes) -> bool:
    """Whether many lines at the beginning start with a time of day without a date, most of which have a level: rows of
    a table of figures have none.
    """
    lines = [line for line in head.splitlines() if line.strip()][:_TRIED]
    timed = [line for line in lines if _CLOCK.match(line)]
    leveled = sum(_ANY_LEVEL.search(line[:200]) is not None for line in timed)
    return bool(timed) and len(timed) >= _LEAST * len(lines) and 2 * leveled > len(timed)


def undated_times(blocks: Iterable[bytes], artifact: Artifact) -> UndatedTimes | None:
    """What dates the log in `blocks`, all of which are searched for times of day; None where it has none."""
    last, days, known = 0.0, 0, False
    for block in blocks:
        for found in _CLOCK.finditer(block):
            clock = _seconds(found)
            days += known and clock < last - _DAY / 2
            last, known = clock, True
    return UndatedTimes(last, artifact.written_by, days, exact=artifact.modified_at is not None) if known else None


def _seconds(found: re.Match[bytes]) -> float:
    whole = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    return whole + (float(b"0." + found[4]) if found[4] else 0.0)
