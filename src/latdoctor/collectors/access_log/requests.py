"""The requests of one replica as columns, and the segments of time that their lines fall into.

Lines of a log are roughly in time order: a line with the entry time is written at the exit. If times go back further
than that, or leave a long hole, the log is split into segments. Segments of different times are one log in another
order (concatenated rotated files); of segments that cover the same time (a clock set back, or the logs of two servers
concatenated) only one is read, because combined rates would be wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from latdoctor.collectors.access_log.entry import CLIENT_LEFT, AccessLogEntry
from latdoctor.collectors.access_log.failures import FailureReason
from latdoctor.sanitize import clean

BACK = 5.0  # seconds by which a line may be earlier than the lines before it, in addition to its duration
HOLE = 3600.0  # seconds without a line; beyond that a clock change or a missing piece is as likely as a pause
MAX_REPLICAS = 64
MAX_STAGES = 12
_ENOUGH = 0.05  # share of all lines (and _ENOUGH_LINES) that the last segment needs to be the one that is read
_ENOUGH_LINES = 30
_DISORDER = 16  # segments; beyond that the lines are unordered (many shippers), and it is not the clock
_UNTIMED = -1.0
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
    again: array[int] = field(default_factory=lambda: array("b"))  # 1: sent again after it failed; -1: has no id
    bare: array[int] = field(default_factory=lambda: array("q"))  # a number that may be the duration; -1 if none
    per_token: array[float] = field(default_factory=lambda: array("d"))
    number: array[int] = field(default_factory=lambda: array("l"))  # the line in its log
    upstream: array[int] = field(default_factory=lambda: array("h"))  # an index of `upstreams`; -1 if unknown
    upstreams: list[str] = field(default_factory=list)
    stages: dict[str, array[float]] = field(default_factory=dict)  # seconds; -1 if unknown

    def add(self, entry: AccessLogEntry, number: int, outcome: int | None, *, again: bool = False) -> None:
        """Add the request in line `number`; `outcome` is that of the entry, `again` that it failed before."""
        self.ended.append(entry.ended.time if entry.ended else _UNTIMED)
        self.duration.append(entry.duration.seconds if entry.duration else _UNTIMED)
        self.status.append(-1 if outcome is None else outcome)
        self.answered.append(entry.counts_as_latency)
        failure = entry.failure or (FailureReason.CLIENT_CLOSED if outcome in CLIENT_LEFT else None)
        self.failure.append(-1 if failure is None else REASONS.index(failure))
        self.upstream_status.append(-1 if entry.upstream_status is None else entry.upstream_status)
        self.attempts.append(min(entry.attempts, 100))
        self.per_token.append(_UNTIMED if entry.per_token is None else entry.per_token)
        self.again.append(again if entry.request_id else -1)
        self.bare.append(-1 if entry.bare is None else min(entry.bare, 1 << 60))
        self.upstream.append(self._upstream(entry.upstream))
        self.number.append(number)
        for name, seconds in entry.stages:
            column = self.stages.get(name)
            if column is None and len(self.stages) < MAX_STAGES:
                column = self.stages.setdefault(clean(name, 40), array("d"))
            if column is not None:
                column.extend([_UNTIMED] * (len(self) - 1 - len(column)))
                column.append(seconds)

    def _upstream(self, address: str) -> int:
        """The place of an address; -1 for none, and for those of more servers than are kept."""
        if not address:
            return -1
        if address not in self.upstreams:
            if len(self.upstreams) >= MAX_REPLICAS:
                return -1
            self.upstreams.append(address)
        return self.upstreams.index(address)

    def stage(self, name: str, index: int) -> float:
        """Seconds of one request in one stage; -1 if unknown."""
        column = self.stages[name]
        return column[index] if index < len(column) else _UNTIMED

    def chosen(self, which: Iterable[int]) -> RequestColumns:
        """A copy of the rows `which`, in that order."""
        rows = list(which)
        found = RequestColumns(upstreams=list(self.upstreams))
        for name in _COLUMNS:
            column = getattr(self, name)
            getattr(found, name).extend([column[row] for row in rows])
        for name in self.stages:
            found.stages[name] = array("d", [self.stage(name, row) for row in rows])
        return found

    def __len__(self) -> int:
        return len(self.ended)


_COLUMNS = (
    "ended", "duration", "status", "answered", "failure", "upstream_status", "attempts", "again", "bare",
    "per_token", "number", "upstream",
)  # fmt: skip


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
