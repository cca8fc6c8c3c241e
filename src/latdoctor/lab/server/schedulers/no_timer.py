"""First come, first served, released only when another request arrives: the last one of a lull waits for the next."""

from __future__ import annotations

import math

from latdoctor.lab.server.config import Batching
from latdoctor.lab.server.schedulers.cost_model import CostModel
from latdoctor.lab.server.schedulers.rule import Choice, Rule
from latdoctor.lab.server.work import Batch, Work


class NoTimer(Rule):
    """An arrival releases those before it, if the oldest of them has waited `max_wait_ms`; so does a full batch.

    Nothing else does. Who drains this scheduler must know that the last request never leaves by itself.
    """

    def __init__(self, batching: Batching, model: CostModel | None = None) -> None:
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

    def _choose(self, now: float) -> Choice:
        cap = self._batching.max_batch_requests
        if len(self._waiting) >= cap:
            return Choice(tuple(self._waiting.works()[:cap]), "full", closed=True)
        return Choice(tuple(self._waiting.up_to(self._due)), "arrival", closed=True)
