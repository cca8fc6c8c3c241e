"""First come, first served, released only when another request arrives: the last one of a lull waits for the next."""

from __future__ import annotations

import math

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers.base import BatchChoice, SchedulingRule, count_cap
from latdoctor.lab.server.schedulers.batch import Batch, Work
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
        return BatchChoice(chosen, "full" if full else "idle", closed=full)


class Single(SchedulingRule):
    """A batch of one is full."""

    def _choose(self, now: float) -> BatchChoice:
        return BatchChoice((self._waiting.oldest,), "full", closed=True)


class NoTimer(SchedulingRule):
    """An arrival releases those before it, if the oldest of them has waited `max_wait_ms`; so does a full batch.

    Nothing else does. Who drains this scheduler must know that the last request never leaves by itself.
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
            return BatchChoice(tuple(self._waiting.works()[:cap]), "full", closed=True)
        return BatchChoice(tuple(self._waiting.up_to(self._due)), "arrival", closed=True)


class LongAlone(SchedulingRule):
    """Requests over `long_seconds` run alone, in their turn: a batch ends where the next in line is long."""

    def _choose(self, now: float) -> BatchChoice:
        works = self._waiting.works()
        if self._is_long(works[0]):
            return BatchChoice((works[0],), "alone", closed=True)
        chosen: list[Work] = []
        longest = 0
        for work in works:
            if self._is_long(work):
                return BatchChoice(tuple(chosen), "seconds", closed=True)
            longest = max(longest, work.tokens)
            if len(chosen) >= count_cap(self._batching, longest):
                return BatchChoice(tuple(chosen), "full", closed=True)
            chosen.append(work)
        full = len(chosen) >= count_cap(self._batching, longest)
        return BatchChoice(tuple(chosen), "full" if full else "idle", closed=full)

    def _is_long(self, work: Work) -> bool:
        return work.seconds > self._batching.long_seconds
