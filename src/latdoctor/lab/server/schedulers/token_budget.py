"""Batches bounded by padded tokens and by waste, from the shortest up, with a guard for the old."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.lab.server.config import Batching
from latdoctor.lab.server.schedulers.cost_model import Cost
from latdoctor.lab.server.schedulers.rule import Choice, Rule, count_cap
from latdoctor.lab.server.schedulers.window import Grown, waste, window


class TokenBounds(Struct, frozen=True):
    """`max_batch_tokens` counts padded tokens: what is computed, and what memory is taken for."""

    batching: Batching
    cost: Cost | None = None  # what a call was learnt to cost; None: nothing is known

    def refuses(self, grown: Grown) -> str | None:
        if grown.size > count_cap(self.batching, grown.longest):
            return "full"
        if grown.size * grown.longest > self.batching.max_batch_tokens:
            return "tokens"
        if waste(grown.size, grown.longest, grown.asked) > self.batching.max_waste or not self._pays(grown):
            return "waste"
        return None

    def closed(self, size: int, longest: int, asked: int) -> str | None:
        # One as long as the longest wastes least.
        return self.refuses(Grown(size + 1, longest, asked + longest, longest, longest))

    def _pays(self, grown: Grown) -> bool:
        """Whether joining takes no longer than a call of its own: the fixed cost saved is worth the padding added.

        Where a call costs little by itself (a small model on a processor) that allows few tokens of padding, where it
        costs much (a launch on a GPU) many.
        """
        if self.cost is None or grown.joining == grown.longest == grown.before:
            return True
        alone = self.cost.seconds(grown.size - 1, grown.before) + self.cost.seconds(1, grown.joining)
        return self.cost.seconds(grown.size, grown.longest) <= alone


class TokenBudget(Rule):
    """As many requests of like length as fit into the token budget without much padding.

    One that has waited longer than `age_ms` becomes the middle of the next batch; younger ones go the shortest first.
    With 0, the default, the oldest always leads: measured, that completes more and has the better P99 over all
    requests; a higher age lets short ones overtake, at the cost of the long ones' P99.
    """

    def _choose(self, now: float) -> Choice:
        cost = self._model.cost if self._model is not None else None
        return window(self._waiting, TokenBounds(self._batching, cost), aged=self._is_aged(now))
