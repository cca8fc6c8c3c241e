"""The requests of one access log, gathered line by line: what was read, what was excluded, and why.

Lines of a log are roughly in time order: a line with the entry time is written at the exit. If times go back further
than that, or leave a long hole, the log is split into segments. Segments of different times are one log in another
order (concatenated rotated files); of segments that cover the same time (a clock set back, or the logs of two servers
concatenated) only one is read, because combined rates would be wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from latdoctor.collectors.access_log.entry import AccessLogEntry, Timestamp
from latdoctor.collectors.access_log.failures import FailureReason
from latdoctor.collectors.logs.log_clock import LogTimes
from latdoctor.collectors.time_range import TimeRange
from latdoctor.sanitize import clean

BACK = 5.0  # seconds by which a line may be earlier than the lines before it, in addition to its duration
HOLE = 3600.0  # seconds without a line; beyond that a clock change or a missing piece is as likely as a pause
MAX_REPLICAS = 64
MAX_STAGES = 12
_ENOUGH = 0.05  # share of all lines (and _ENOUGH_LINES) that the last segment needs to be the one that is read
_ENOUGH_LINES = 30
_DISORDER = 16  # segments; beyond that the lines are unordered (many shippers), and it is not the clock
_UNTIMED = -1.0
_COARSE = 0.05  # share of a duration from which its resolution matters
REASONS = tuple(FailureReason)
UNZONED = "without a time zone, read as UTC"


@dataclass(slots=True)
class RequestColumns:
    """The requests of one replica, in log order. Times unix seconds UTC, durations seconds.

    `ended` is -1 for a line without a time; so are `duration`, `status`, `upstream_status`, `per_token` and `reason`
    (an index of REASONS). The status is the one that counts (`AccessLogEntry.outcome`).
    """

    ended: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    status: array[int] = field(default_factory=lambda: array("h"))
    answered: array[int] = field(default_factory=lambda: array("b"))  # the duration counts as latency
    failure: array[int] = field(default_factory=lambda: array("b"))
    upstream_status: array[int] = field(default_factory=lambda: array("h"))
    attempts: array[int] = field(default_factory=lambda: array("b"))  # 0 if unknown
    bare: array[int] = field(default_factory=lambda: array("q"))  # a number that may be the duration; -1 if none
    per_token: array[float] = field(default_factory=lambda: array("d"))
    number: array[int] = field(default_factory=lambda: array("l"))  # the line in its log
    stages: dict[str, array[float]] = field(default_factory=dict)  # seconds; -1 if unknown

    def add(self, entry: AccessLogEntry, number: int) -> None:
        self.ended.append(entry.ended.time if entry.ended else _UNTIMED)
        self.duration.append(entry.duration.seconds if entry.duration else _UNTIMED)
        self.status.append(-1 if entry.outcome is None else entry.outcome)
        self.answered.append(entry.counts_as_latency)
        failure = entry.failure or (FailureReason.CLIENT_CLOSED if entry.cancelled else None)
        self.failure.append(-1 if failure is None else REASONS.index(failure))
        self.upstream_status.append(-1 if entry.upstream_status is None else entry.upstream_status)
        self.attempts.append(min(entry.attempts, 100))
        self.per_token.append(_UNTIMED if entry.per_token is None else entry.per_token)
        self.bare.append(-1 if entry.bare is None else min(entry.bare, 1 << 60))
        self.number.append(number)
        for name, seconds in entry.stages:
            column = self.stages.get(name)
            if column is None and len(self.stages) < MAX_STAGES:
                column = self.stages.setdefault(clean(name, 40), array("d"))
            if column is not None:
                column.extend([_UNTIMED] * (len(self) - 1 - len(column)))
                column.append(seconds)

    def stage(self, name: str, index: int) -> float:
        """Seconds of one request in one stage; -1 if unknown."""
        column = self.stages[name]
        return column[index] if index < len(column) else _UNTIMED

    def __len__(self) -> int:
        return len(self.ended)


@dataclass(frozen=True, slots=True)
class TimeSegment:
    """Lines first..last (indexes) with consecutive times, and their time range."""

    first: int
    last: int
    start: float
    end: float

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class RequestGatherer:
    """Takes the entries of one log within the time range `past`. Mutable; used by `parse` only."""

    def __init__(self, past: TimeRange | None = None, ahead: float | None = None) -> None:
        self.past = past
        self._ahead = ahead  # seconds that times without a zone are ahead of UTC, if known
        self.times = LogTimes(ahead)
        self.first: float | None = None  # time range of the log, including probes and excluded lines
        self.last: float | None = None
        self.untimed = 0  # requests without a time, which may be outside the time range
        self.by_replica: dict[str, RequestColumns] = {}
        self.probes = self.duplicates = self.failed = self.cancelled = self.unit_unknown = self.other = self.beyond = 0
        self.borrowed = False  # some requests have the time of another line
        self.coarse = 0.0  # the coarsest resolution of durations, seconds
        self.unzoned = False
        self._seen: set[int] = set()

    @property
    def kept(self) -> int:
        return sum(len(requests) for requests in self.by_replica.values())

    @property
    def missed(self) -> str:
        """Why the log does not cover the judged window; empty if it does, or if there is no time range."""
        why = self.past.coverage_gap(self.first, self.last) if self.past else ""
        return f"{why} ({UNZONED})" if why and self.unzoned else why

    @property
    def late(self) -> str:
        """Says that the log begins only within the judged window."""
        return self.past.late_start(self.first) if self.past else ""

    def _in_time_range(self, entry: AccessLogEntry) -> bool:
        if entry.ended is not None:
            self.unzoned |= not entry.ended.zoned
            self.first = entry.ended.time if self.first is None else min(self.first, entry.ended.time)
            self.last = entry.ended.time if self.last is None else max(self.last, entry.ended.time)
        elif self.past is not None:
            self.untimed += 1
        return self.past is None or (entry.ended is not None and self.past.contains(entry.ended.time))

    def _in_utc(self, entry: AccessLogEntry) -> AccessLogEntry:
        """`entry` with its times in UTC, where the zone of those without one is known."""
        if entry.ended is not None:
            self.times.note(entry.ended.time, zoned=entry.ended.zoned)
        if self._ahead is None or entry.ended is None or entry.ended.zoned:
            return entry
        started = entry.started and Timestamp(entry.started.time - self._ahead, entry.started.fine, zoned=True)
        ended = Timestamp(entry.ended.time - self._ahead, entry.ended.fine, zoned=True)
        return replace(entry, started=started, ended=ended)

    def take(self, entry: AccessLogEntry, raw: bytes, number: int) -> None:
        entry = self._in_utc(entry)
        if not self._in_time_range(entry):
            return
        if entry.is_probe:
            self.probes += 1
            return
        if self._is_duplicate(entry, raw):
            self.duplicates += 1
            return
        replica = clean(entry.replica, 64) if entry.replica else ""
        if replica not in self.by_replica and len(self.by_replica) >= MAX_REPLICAS:
            self.beyond += 1
            return
        self.failed += entry.failed
        self.cancelled += entry.cancelled
        self.unit_unknown += entry.unit_unknown
        duration = entry.duration
        if duration is not None and entry.counts_as_latency and duration.step > _COARSE * duration.seconds:
            self.coarse = max(self.coarse, duration.step)
        self.by_replica.setdefault(replica, RequestColumns()).add(entry, number)

    def _is_duplicate(self, entry: AccessLogEntry, raw: bytes) -> bool:
        """An identical line that cannot be another request, because it has a request id or a time in milliseconds."""
        if not (entry.request_id or (entry.ended is not None and entry.ended.fine)):
            return False
        mark = hash(raw.strip())
        if mark in self._seen:
            return True
        self._seen.add(mark)
        return False


def time_segments(requests: RequestColumns) -> tuple[TimeSegment, ...]:
    """Split a log into segments in the order of its lines; lines without a time belong to the segment around them."""
    found: list[TimeSegment] = []
    first, start, end, arrived = 0, 0.0, 0.0, 0.0
    begun = False
    for index, ended in enumerate(requests.ended):
        if ended < 0:
            continue
        lasted = max(0.0, requests.duration[index])
        slack = BACK + lasted  # a line with the entry time is written at the exit
        in_order = ended >= end - slack or ended - lasted >= arrived - BACK  # of the ends, or sorted by the arrivals
        arrived = ended - lasted
        if begun and (not in_order or ended > end + HOLE):
            found.append(TimeSegment(first, index - 1, start, end))
            first, begun = index, False
        start, end = (min(start, ended), max(end, ended)) if begun else (ended, ended)
        begun = True
    return (*found, TimeSegment(first, len(requests) - 1, start, end)) if begun else tuple(found)


def choose_segments(found: Sequence[TimeSegment]) -> tuple[tuple[TimeSegment, ...], str]:
    """Return the segments to read, in time order, and a remark about the others (empty if there are none)."""
    if len(found) < 2:
        return tuple(found), ""
    total = sum(one.size for one in found)
    if len(found) > _DISORDER:
        return tuple(
            found
        ), f"its lines are unordered ({len(found)} times one is much earlier than the previous one): sorted"
    ordered = sorted(found, key=lambda one: one.start)
    groups = list(_joined(ordered))
    if len(groups) == 1 and not _overlap(groups[0]):
        return tuple(groups[0]), ""
    whole = [group for group in groups if sum(one.size for one in group) >= max(_ENOUGH * total, _ENOUGH_LINES)]
    group = whole[-1] if whole else max(groups, key=lambda one: sum(each.size for each in one))
    read = (max(group, key=lambda one: one.size),) if _overlap(group) else tuple(group)
    size = sum(one.size for one in read)
    why = (
        "its times overlap (a clock that was set back, or several logs concatenated)"
        if any(_overlap(one) for one in groups)
        else f"more than {HOLE / 3600:g} h are between its parts (a pause, a missing piece, or a clock change)"
    )
    return read, f"{why}: only {size} of {total} requests are read, those of one part"


def _joined(ordered: Iterable[TimeSegment]) -> Iterator[list[TimeSegment]]:
    """Group segments with less than a hole between them."""
    group: list[TimeSegment] = []
    end = 0.0
    for one in ordered:
        if group and one.start > end + HOLE:
            yield group
            group = []
        end = max(end, one.end) if group else one.end
        group.append(one)
    if group:
        yield group


def _overlap(group: Sequence[TimeSegment]) -> bool:
    return any(later.start < before.end - BACK for before, later in pairwise(group))
