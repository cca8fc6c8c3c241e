"""The requests of one access log, gathered line by line: what was read, what was excluded, and why."""

from __future__ import annotations

from dataclasses import replace

from latdoctor.collectors.access_log.entry import CLIENT_LEFT, AccessLogEntry, Timestamp, is_failure
from latdoctor.collectors.access_log.requests import MAX_REPLICAS, UNZONED, RequestColumns
from latdoctor.collectors.access_log.step_table import StepTable
from latdoctor.collectors.logs.log_clock import LogTimes
from latdoctor.collectors.time_range import TimeRange
from latdoctor.sanitize import clean

MOST = 200_000  # requests of a log that are kept one by one, at least
_COARSE = 0.05  # share of a duration from which its resolution matters


class RequestGatherer:
    """Takes the entries of one log within the time range `past`. Mutable; used by `parse` only.

    Beyond twice MOST requests, all but the last MOST become sums for each step of time (`tables`).
    """

    def __init__(
        self, past: TimeRange | None = None, ahead: float | None = None, most_steps: int | None = None
    ) -> None:
        self.past = past
        self._most_steps = most_steps
        self._ahead = ahead  # seconds that times without a zone are ahead of UTC, if known
        self.times = LogTimes(ahead)
        self.first: float | None = None  # time range of the log, including probes and excluded lines
        self.last: float | None = None
        self.untimed = 0  # requests without a time, which may be outside the time range
        self.by_replica: dict[str, RequestColumns] = {}
        self.tables: dict[str, StepTable] = {}
        self.since: float | None = None  # requests before are in `tables` only; None if all are kept
        self.undated_left = 0  # requests without a time that are not kept
        self._rows, self._limit = 0, 2 * MOST
        self._unanswered: set[int] = set()  # marks of the ids of requests that failed
        self.probes = self.duplicates = self.failed = self.cancelled = self.unit_unknown = self.other = self.beyond = 0
        self.borrowed = False  # some requests have the time of another line
        self.coarse = 0.0  # the coarsest resolution of durations, seconds
        self.unzoned = False
        self._seen: set[int] = set()
        self._seen_before: set[int] = set()

    @property
    def kept(self) -> int:
        return self._rows + sum(table.requests for table in self.tables.values()) + self.undated_left

    @property
    def missed(self) -> str:
        """Why the log does not cover the judged window; empty if it does, or if there is no time range."""
        why = self.past.coverage_gap(self.first, self.last) if self.past else ""
        return f"{why} ({UNZONED})" if why and self.unzoned else why

    @property
    def late(self) -> str:
        """Says that the log begins only within the judged window."""
        return self.past.late_start(self.first) if self.past else ""

    def within(self, entry: AccessLogEntry) -> bool:
        """Whether a request ended within the time range; either way the log has its time."""
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
        if not self.within(entry):
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
        outcome = entry.outcome
        self.failed += outcome is not None and is_failure(outcome)
        self.cancelled += outcome in CLIENT_LEFT
        self.unit_unknown += entry.unit_unknown
        duration = entry.duration
        if duration is not None and entry.counts_as_latency and duration.step > _COARSE * duration.seconds:
            self.coarse = max(self.coarse, duration.step)
        again = self._failed_before(entry, outcome)
        self.by_replica.setdefault(replica, RequestColumns()).add(entry, number, outcome, again=again)
        self._rows += 1
        if self._rows >= self._limit:
            self._fold()

    def _fold(self) -> None:
        """Keep the last MOST requests one by one, and sums of the others."""
        times = sorted(time for requests in self.by_replica.values() for time in requests.ended if time >= 0)
        self.since = times[-MOST] if len(times) > MOST else self.since
        for replica, requests in self.by_replica.items():
            undated = [row for row, ended in enumerate(requests.ended) if ended < 0]
            left = set(undated[:-MOST])
            self.undated_left += len(left)
            older: list[int] = []
            if len(times) > MOST and self.since is not None:
                older = [row for row, ended in enumerate(requests.ended) if 0 <= ended < self.since]
                self.tables.setdefault(replica, StepTable(self._most_steps)).add(requests.chosen(older))
            left.update(older)
            if left:
                self.by_replica[replica] = requests.chosen(row for row in range(len(requests)) if row not in left)
        self._rows = sum(len(requests) for requests in self.by_replica.values())
        self._limit = self._rows + MOST  # requests of one moment stay together, however many they are

    def _failed_before(self, entry: AccessLogEntry, outcome: int | None) -> bool:
        """Whether a request with this id failed, or was given up by its client, among the last failures."""
        if not entry.request_id:
            return False
        mark = hash(entry.request_id)
        before = mark in self._unanswered
        if outcome is not None and (is_failure(outcome) or outcome in CLIENT_LEFT):
            if len(self._unanswered) >= MOST:
                self._unanswered = set()
            self._unanswered.add(mark)
        return before

    def _is_duplicate(self, entry: AccessLogEntry, raw: bytes) -> bool:
        """An identical line that cannot be another request, because it has a request id or a time in milliseconds.

        It is found among the MOST lines before it, at least.
        """
        if not (entry.request_id or (entry.ended is not None and entry.ended.fine)):
            return False
        mark = hash(raw.strip())
        if mark in self._seen or mark in self._seen_before:
            return True
        self._seen.add(mark)
        if len(self._seen) >= MOST:
            self._seen, self._seen_before = set(), self._seen
        return False
