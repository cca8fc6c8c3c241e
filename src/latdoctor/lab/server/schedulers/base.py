"""Base of the schedulers: the queue, the wait for a larger batch, and the release reason."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import count

from msgspec import Struct

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers.batch import Batch, ReleaseReason, Work
from latdoctor.lab.server.schedulers.cost_model import CostModel


class WaitingQueue:
    """A queue with two orders. Adding and removing cost a binary search and one move of memory.

    Requests may be added in another order than they arrived (one waited longer for a session or a lookup); "oldest"
    always means by arrival. The number given at adding breaks ties, so equal lengths stay first in, first out.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._entries: dict[int, tuple[float, int, Work]] = {}
        self._by_arrival: list[tuple[float, int, Work]] = []
        self._by_length: list[tuple[int, float, int, Work]] = []

    def __len__(self) -> int:
        return len(self._by_arrival)

    def add(self, work: Work) -> None:
        """Raises ValueError if a request with this id already waits: one of the two would be lost."""
        if work.id in self._entries:
            raise ValueError(f"request {work.id} already waits")
        entry = (work.arrived, next(self._numbers), work)
        self._entries[work.id] = entry
        insort(self._by_arrival, entry)
        insort(self._by_length, (work.tokens, *entry))

    def remove(self, ids: Iterable[int]) -> None:
        """Removes these; ids that do not wait are ignored."""
        for id_ in ids:
            entry = self._entries.pop(id_, None)
            if entry is not None:
                del self._by_arrival[bisect_left(self._by_arrival, entry)]
                del self._by_length[bisect_left(self._by_length, (entry[2].tokens, *entry))]

    @property
    def oldest(self) -> Work:
        return self._by_arrival[0][2]

    @property
    def newest(self) -> Work:
        return self._by_arrival[-1][2]

    def works(self) -> list[Work]:
        """All of them, the oldest first."""
        return [work for _, _, work in self._by_arrival]

    @property
    def last_key(self) -> tuple[float, int]:
        """Of the newest: its arrival and its number."""
        arrived, number, _ = self._by_arrival[-1]
        return arrived, number

    def up_to(self, key: tuple[float, int]) -> list[Work]:
        """Those that are no newer than the request with this key, the oldest first."""
        end = bisect_left(self._by_arrival, (key[0], key[1] + 1))
        return [work for _, _, work in self._by_arrival[:end]]

    def place(self, work: Work) -> int:
        """The index of a waiting request in the order of length, from 0."""
        return bisect_left(self._by_length, (work.tokens, *self._entries[work.id]))

    def at(self, place: int) -> Work:
        """The request at an index in the order of length; equal lengths are in order of arrival."""
        return self._by_length[place][3]

    def first_of_length(self, tokens: int) -> int:
        """The place of the first request that is no shorter than `tokens`."""
        return bisect_left(self._by_length, (tokens,))


# The share of the newest gap in the running mean of the gaps between arrivals: about the last ten count.
_NEWEST = 0.1
# Batch size by complexity, 16 to 128: about 5 120 tokens in a batch, so 128 requests of 40 tokens or 16 of 320.
_FEWEST, _MOST, _COMPLEX_TOKENS = 16, 128, 5120


class BatchChoice(Struct, frozen=True):
    """What a rule would compute now. `closed`: nothing more can join, so there is no reason to wait."""

    works: tuple[Work, ...]
    reason: ReleaseReason
    closed: bool


def count_cap(batching: BatchingConfig, longest: int) -> int:
    """How many requests may share a batch whose longest has `longest` tokens.

    With `size_by_complexity` the fixed `max_batch_requests` gives way to 16..128: longer requests, smaller batches.
    """
    if not batching.size_by_complexity:
        return batching.max_batch_requests
    return min(_MOST, max(_FEWEST, _COMPLEX_TOKENS // max(1, longest)))


class SchedulingRule(ABC):
    """Base class: a queue with a batching rule. Times are seconds of the caller's monotonic clock."""

    def __init__(self, batching: BatchingConfig, model: CostModel | None = None) -> None:
        self._batching = batching
        self._model = model
        self._waiting = WaitingQueue()
        self._held = False  # an idle worker has waited since the last release
        self._last_arrival: float | None = None
        self._gap: float | None = None  # mean seconds between arrivals

    @abstractmethod
    def _choose(self, now: float) -> BatchChoice:
        """The batch by the rule; something waits. The first request chosen is taken whatever its size."""

    @property
    def pending(self) -> Sequence[Work]:
        return self._waiting.works()

    def add(self, work: Work) -> None:
        """Raises ValueError if a request with this id already waits."""
        self._waiting.add(work)
        before = work.arrived if self._last_arrival is None else self._last_arrival
        if self._last_arrival is not None:
            gap = max(0.0, work.arrived - before)
            self._gap = gap if self._gap is None else self._gap + _NEWEST * (gap - self._gap)
        self._last_arrival = max(work.arrived, before)

    def drop(self, ids: frozenset[int]) -> None:
        self._waiting.remove(ids)
        self._held = self._held and bool(self._waiting)

    def take(self, now: float) -> Batch | None:
        if not self._waiting:
            return None
        choice = self._choose(now)
        if not choice.closed and now < self._hold_until(choice):
            self._held = True
            return None
        # TIMEOUT only where a worker was idle: a request that waited for a busy one was not held by the timer.
        reason = ReleaseReason.TIMEOUT if self._held and not choice.closed else choice.reason
        return self._release(choice.works, reason)

    def wake_at(self, now: float) -> float | None:
        if not self._waiting:
            return None
        choice = self._choose(now)
        return now if choice.closed else max(now, self._hold_until(choice))

    def _release(self, works: tuple[Work, ...], reason: ReleaseReason) -> Batch:
        self._waiting.remove(work.id for work in works)
        self._held = False
        return Batch(works, reason)

    def _is_aged(self, now: float) -> bool:
        """Whether the oldest has waited longer than `age_ms`, so that it must be in the next batch."""
        return now - self._waiting.oldest.arrived > self._batching.age_ms / 1000

    def _hold_until(self, choice: BatchChoice) -> float:
        """Until when an idle worker waits for more requests: at most `max_wait_ms` after the oldest arrived."""
        limit = self._waiting.oldest.arrived + self._batching.max_wait_ms / 1000
        if not self._batching.adaptive_wait:
            return limit
        return min(limit, self._waiting.newest.arrived + self._worth_waiting(choice.works))

    def _worth_waiting(self, works: tuple[Work, ...]) -> float:
        """The longest gap to the next arrival, in seconds, for which waiting lowers the sum of the latencies; or 0.

        n requests wait a gap g for one more, and one call's fixed cost a is saved. Released now, they take n·C(n) in
        sum and the next one C(n) − g + C(1); together they take (n+1)·(C(n+1) + g) less the g it arrived later. With
        C(n) = a + n·m the difference is a − n·m − (n+1)·g.
        """
        cost = self._model.cost if self._model is not None else None
        if cost is None or self._gap is None:
            return 0.0
        longest, size = max(work.tokens for work in works), len(works)
        another = cost.seconds(1, longest) - cost.fixed
        bearable = (cost.fixed - size * another) / (size + 1)
        return bearable if self._gap <= bearable else 0.0
