"""First come, first served, released only when another request arrives: the last one of a lull waits for the next."""

from __future__ import annotations

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
        self._due: set[int] = set()
        self._fresh: set[int] = set()  # came since the last arrival that released others

    def add(self, work: Work) -> None:
        if self._waiting and work.arrived >= self._waiting.oldest.arrived + self._batching.max_wait_ms / 1000:
            self._due |= self._fresh
            self._fresh.clear()
        super().add(work)
        self._fresh.add(work.id)

    def drop(self, ids: frozenset[int]) -> None:
        super().drop(ids)
        self._forget(ids)

    def take(self, now: float) -> Batch | None:
        choice = self._choose(now)
        if not choice.works:
            return None
        self._forget(frozenset(work.id for work in choice.works))
        return self._release(choice.works, choice.reason)

    def wake_at(self, now: float) -> float | None:
        return now if self._choose(now).works else None

    def _forget(self, ids: frozenset[int]) -> None:
        self._due -= ids
        self._fresh -= ids

    def _choose(self, now: float) -> Choice:
        works, cap = self._waiting.works(), self._batching.max_batch_requests
        if len(works) >= cap:
            return Choice(tuple(works[:cap]), "full", closed=True)
        due = tuple(work for work in works if work.id in self._due)
        return Choice(due, "arrival", closed=True)
