"""Two queues for one worker: short requests first, and long ones in a lane of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers.base import BatchChoice, SchedulingRule, count_cap
from latdoctor.lab.server.schedulers.batch import Batch, Scheduler, Work
from latdoctor.lab.server.schedulers.cost_model import CostModel
from latdoctor.lab.server.schedulers.token_budget import GrownBatch, window
from latdoctor.load.mix import FRAMES_PER_SECOND


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
            return BatchChoice(first.works, "age", closed=True)
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
        return BatchChoice(tuple(bucket[:size]), why or ("idle" if alone else "bucket"), closed=why is not None)

    def _refuses(self, size: int, longest: int) -> str | None:
        if size > count_cap(self._batching, longest):
            return "full"
        return "tokens" if size * longest > self._batching.max_batch_tokens else None


class Lanes:
    """A scheduler for each lane. A request's own `lane` decides, else its length against `boundary` (tokens).

    The short lane goes first. Once the oldest long request has waited longer than `age` (seconds) the lanes take
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

    def lane(self, work: Work) -> str:
        """`short` or `long`."""
        if work.lane in {"short", "long"}:
            return work.lane
        return "long" if work.tokens > self._boundary else "short"

    def add(self, work: Work) -> None:
        """Raises ValueError if a request with this id already waits in the same lane."""
        (self._long if self.lane(work) == "long" else self._short).add(work)

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


class DurationBounds(Struct, frozen=True):
    """`total_seconds` counts what was asked, without padding."""

    batching: BatchingConfig

    def refuses(self, grown: GrownBatch) -> str | None:
        if grown.size > count_cap(self.batching, grown.longest):
            return "full"
        return "seconds" if grown.asked > self.batching.total_seconds * FRAMES_PER_SECOND else None

    def closed(self, size: int, longest: int, asked: int) -> str | None:
        return self.refuses(GrownBatch(size + 1, longest, asked + 1, longest, 1))  # the shortest there can be


class DurationBounded(SchedulingRule):
    """The shortest first until the seconds are full; the oldest becomes the middle once it waited `age_ms`."""

    def _choose(self, now: float) -> BatchChoice:
        return window(self._waiting, DurationBounds(self._batching), aged=self._is_aged(now))
