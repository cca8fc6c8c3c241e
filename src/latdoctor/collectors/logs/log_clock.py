"""The clock of a log: the times of its lines with a zone and without one, and how far those without are ahead of UTC.

Programs that write into one log may each choose their zone: Gin writes local time beside records in UTC. Where a line
with a zone stands next to one without, they were written within seconds, so that the difference of their times is that
of the zones: a multiple of a quarter of an hour, the same throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from latdoctor.collectors.log_zones import whole_zone
from latdoctor.collectors.logs import formats
from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.evidence.model import LogClock, Origin, Window

_NEAR = 5  # lines
_CLOSE, _EXACT = 30.0, 2.0  # seconds between neighbouring lines; of a single pair
_SHARE = 0.8  # of the pairs
_TRIED = 500  # lines at the beginning and at the end of what is searched
_MAX_LINE = 4096


def ahead_within(head: bytes, written_at: float) -> float | None:
    """Seconds that times without a zone are ahead of UTC, by neighbouring lines; None where that cannot be known."""
    pairs: Counter[float | None] = Counter()
    exact = False
    for local, utc in _neighbours(head, written_at):
        ahead = whole_zone(local - utc, _CLOSE)
        pairs[ahead] += 1
        exact = exact or (ahead is not None and abs(local - utc - ahead) <= _EXACT)
    if not pairs:
        return None
    ahead, count = pairs.most_common(1)[0]
    sure = count >= _SHARE * pairs.total() and (count > 1 or exact)
    return ahead if sure else None


def _neighbours(head: bytes, written_at: float) -> Iterator[tuple[float, float]]:
    """Times without and with a zone, of lines next to each other."""
    last: dict[bool, tuple[int, float]] = {}
    before: bool | None = None
    lines = list(enumerate(head.splitlines()))
    for number, raw in lines if len(lines) <= 2 * _TRIED else (*lines[:_TRIED], *lines[-_TRIED:]):
        line = formats.line_of(raw[:_MAX_LINE], written_at)[1]
        if line.time is None:
            continue
        last[line.zoned] = (number, line.time)
        other = last.get(not line.zoned)
        if before is not None and before != line.zoned and other is not None and number - other[0] <= _NEAR:
            yield (other[1], line.time) if line.zoned else (line.time, other[1])
        before = line.zoned


class LogTimes:
    """Notes the times of the lines of one log. Mutable. `ahead`: see `ahead_within`."""

    def __init__(self, ahead: float | None) -> None:
        self._ahead = ahead
        self._spans: dict[bool, tuple[float, float]] = {}

    def note(self, time: float, *, zoned: bool) -> None:
        first, last = self._spans.get(zoned, (time, time))
        self._spans[zoned] = (min(first, time), max(last, time))

    def in_utc(self, line: LogLine) -> LogLine:
        """`line`, noted, with its time in UTC where that is known."""
        if line.time is None:
            return line
        self.note(line.time, zoned=line.zoned)
        if line.zoned or self._ahead is None:
            return line
        return replace(line, time=line.time - self._ahead, zoned=True)

    def clocks(self, artifact: str) -> tuple[LogClock, ...]:
        """None for a log without times."""
        zoned, local = (Window(*self._spans[kind]) if kind in self._spans else Window() for kind in (True, False))
        return (LogClock(Origin(artifact), zoned, local, self._ahead),) if self._spans else ()
