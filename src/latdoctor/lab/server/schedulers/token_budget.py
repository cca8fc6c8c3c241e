"""Batches bounded by padded tokens and by waste, from the shortest up, with a guard for the old."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.lab.server.config import Batching
from latdoctor.lab.server.schedulers.rule import Choice, Rule, count_cap
from latdoctor.lab.server.schedulers.window import waste, window


class TokenBounds(Struct, frozen=True):
    """`max_batch_tokens` counts padded tokens: what is computed, and what memory is taken for."""

    batching: Batching

    def refuses(self, size: int, longest: int, asked: int) -> str | None:
        if size > count_cap(self.batching, longest):
            return "full"
        if size * longest > self.batching.max_batch_tokens:
            return "tokens"
        return "waste" if waste(size, longest, asked) > self.batching.max_waste else None

    def closed(self, size: int, longest: int, asked: int) -> str | None:
        return self.refuses(size + 1, longest, asked + longest)  # one as long as the longest wastes least


class TokenBudget(Rule):
    """The shortest requests first, as many as fit into the token budget without much padding.

    A request that has waited longer than `age_ms` becomes the middle of the next batch, so none starves.
    """

    def _choose(self, now: float) -> Choice:
        return window(self._waiting, TokenBounds(self._batching), aged=self._is_aged(now))
