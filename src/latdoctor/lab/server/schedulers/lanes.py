"""Two queues for one worker: short requests first, and long ones in a lane of their own."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.lab.server.work import Batch, Scheduler, Work


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
