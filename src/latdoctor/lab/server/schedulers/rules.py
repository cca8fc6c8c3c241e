"""Scheduling rules that go by arrival: count, length limit, length buckets, and separate lanes for short and long."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers.base import BatchChoice, SchedulingRule, count_cap
from latdoctor.lab.server.schedulers.batch import Batch, Lane, ReleaseReason, Scheduler, Work
from latdoctor.lab.server.schedulers.cost_model import CostModel


class CountOnly(SchedulingRule):
    """The oldest `max_batch_requests`, however different their lengths."""

    def _choose(self, now: float) -> BatchChoice:
        works = self._waiting.works()
        longest = size = 0
        for work in works:
            longest = max(longest, work.tokens)
            if size >= count_cap(self._batching, longest):
                break
            size += 1
        chosen = tuple(works[:size])
        full = size < len(works) or size >= count_cap(self._batching, longest)
        return BatchChoice(chosen, ReleaseReason.FULL if full else ReleaseReason.IDLE, closed=full)


class Single(SchedulingRule):
    """A batch of one is full."""

    def _choose(self, now: float) -> BatchChoice:
        return BatchChoice((self._waiting.oldest,), ReleaseReason.FULL, closed=True)


class NoTimer(SchedulingRule):
    """An arrival releases those before it, if the oldest of them has waited `max_wait_ms`; so does a full batch.

    Nothing else does, so the last request of a lull waits for the next arrival.
    """

    def __init__(self, batching: BatchingConfig, model: CostModel | None = None) -> None:
        super().__init__(batching, model)
        self._due = (-math.inf, 0)  # the key of the newest request that may go

    def add(self, work: Work) -> None:
        if self._waiting and work.arrived >= self._waiting.oldest.arrived + self._batching.max_wait_ms / 1000:
            self._due = max(self._due, self._waiting.last_key)
        super().add(work)

    def take(self, now: float) -> Batch | None:
        choice = self._choose(now)
        return self._release(choice.works, choice.reason) if choice.works else None

    def wake_at(self, now: float) -> float | None:
        return now if self._choose(now).works else None

    def _choose(self, now: float) -> BatchChoice:
        cap = self._batching.max_batch_requests
        if len(self._waiting) >= cap:
            return BatchChoice(tuple(self._waiting.works()[:cap]), ReleaseReason.FULL, closed=True)
        return BatchChoice(tuple(self._waiting.up_to(self._due)), ReleaseReason.ARRIVAL, closed=True)


class LongAlone(SchedulingRule):
    """Requests over `long_seconds` run alone, in order: a batch ends where the next in line is long."""

    def _choose(self, now: float) -> BatchChoice:
        works = self._waiting.works()
        if self._is_long(works[0]):
            return BatchChoice((works[0],), ReleaseReason.ALONE, closed=True)
        chosen: list[Work] = []
        longest = 0
        for work in works:
            if self._is_long(work):
                return BatchChoice(tuple(chosen), ReleaseReason.SECONDS, closed=True)
            longest = max(longest, work.tokens)
            if len(chosen) >= count_cap(self._batching, longest):
                return BatchChoice(tuple(chosen), ReleaseReason.FULL, closed=True)
            chosen.append(work)
        full = len(chosen) >= count_cap(self._batching, longest)
        return BatchChoice(tuple(chosen), ReleaseReason.FULL if full else ReleaseReason.IDLE, closed=full)

    def _is_long(self, work: Work) -> bool:
        return work.seconds > self._batching.long_seconds


class LengthBuckets(SchedulingRule):
    """The bucket of the oldest first; while a wait is set, a bucket that is full may go before it.

    Buckets are upper bounds in tokens; what is longer than the last shares one bucket more.
    """

    def __init__(self, batching: BatchingConfig, model: CostModel | None = None) -> None:
        super().__init__(batching, model)
        self._bounds = sorted(batching.buckets)

    def _choose(self, now: float) -> BatchChoice:
        buckets: dict[int, list[Work]] = {}
        for work in self._waiting.works():
            buckets.setdefault(bisect_left(self._bounds, work.tokens), []).append(work)
        choices = [self._head(bucket, alone=len(buckets) == 1) for bucket in buckets.values()]
        first, full = choices[0], [choice for choice in choices if choice.closed]
        if first.closed or not full or now >= self._hold_until(first):
            return first
        if self._is_aged(now):
            return BatchChoice(first.works, ReleaseReason.AGE, closed=True)
        return full[0]

    def _head(self, bucket: list[Work], *, alone: bool) -> BatchChoice:
        """The oldest of one bucket, up to the bounds of count and of padded tokens."""
        longest = size = 0
        why = None
        for work in bucket:
            longest = max(longest, work.tokens)
            why = self._refuses(size + 1, longest) if size else None
            if why:
                break
            size += 1
        why = why or self._refuses(size + 1, longest)
        return BatchChoice(
            tuple(bucket[:size]), why or (ReleaseReason.IDLE if alone else ReleaseReason.BUCKET), closed=why is not None
        )

    def _refuses(self, size: int, longest: int) -> ReleaseReason | None:
        if size > count_cap(self._batching, longest):
            return ReleaseReason.FULL
        return ReleaseReason.TOKENS if size * longest > self._batching.max_batch_tokens else None


class Lanes:
    """A scheduler for each lane. The lane of the request decides, else its length against `boundary` (tokens).

    The short lane has priority. Once the oldest long request has waited longer than `age` (seconds) the lanes take
    turns: long requests get every second batch at least, and a short one waits for one long batch at most.
    """

    def __init__(self, short: Scheduler, long: Scheduler, boundary: int, age: float) -> None:
        self._short = short
        self._long = long
        self._boundary = boundary
        self._age = age
        self._long_was_last = False

    @property
    def pending(self) -> Sequence[Work]:
        return sorted([*self._short.pending, *self._long.pending], key=lambda work: work.arrived)

    def lane(self, work: Work) -> Lane:
        """SHORT or LONG."""
        if work.lane is not Lane.ALL:
            return work.lane
        return Lane.LONG if work.tokens > self._boundary else Lane.SHORT

    def add(self, work: Work) -> None:
        """Raises ValueError if a request with this id already waits in the same lane."""
        (self._long if self.lane(work) is Lane.LONG else self._short).add(work)

    def drop(self, ids: frozenset[int]) -> None:
        self._short.drop(ids)
        self._long.drop(ids)

    def take(self, now: float) -> Batch | None:
        lanes = [self._short, self._long]
        if self._is_longs_turn(now):
            lanes.reverse()
        for lane in lanes:
            batch = lane.take(now)
            if batch is not None:
                self._long_was_last = lane is self._long
                return batch
        return None

    def wake_at(self, now: float) -> float | None:
        times = [time for lane in (self._short, self._long) if (time := lane.wake_at(now)) is not None]
        return min(times, default=None)

    def _is_longs_turn(self, now: float) -> bool:
        waiting = self._long.pending
        return bool(waiting) and not self._long_was_last and now - waiting[0].arrived > self._age
