"""A window in the order of length: it grows from an anchor to both sides, towards the smaller padding waste."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers.base import BatchChoice, SchedulingRule, WaitingQueue, count_cap
from latdoctor.lab.server.schedulers.batch import ReleaseReason, Work
from latdoctor.lab.server.schedulers.cost_model import Cost
from latdoctor.load.mix import FRAMES_PER_SECOND


class GrownBatch(Struct, frozen=True):
    """A batch of two or more as it would be once one more has joined.

    `asked` is the sum of its requests' tokens, before padding; `joining` are those of the new one. `before` is what
    the others were padded to without it.
    """

    size: int
    longest: int
    asked: int
    before: int
    joining: int


class BatchBounds(Protocol):
    """What a batch may be."""

    def refuses(self, grown: GrownBatch) -> ReleaseReason | None:
        """Why such a batch is not allowed (a release reason), or None."""

    def closed(self, size: int, longest: int, asked: int) -> ReleaseReason | None:
        """Why nothing more can join this one, whatever arrives, or None."""


def waste(size: int, longest: int, asked: int) -> float:
    """The share of the computed tokens that is padding."""
    return 1 - asked / (size * longest) if size * longest else 0.0


def window(waiting: WaitingQueue, bounds: BatchBounds, *, aged: bool) -> BatchChoice:
    """The batch around the shortest request, or around the oldest where it is `aged`; sorted by length.

    The anchor is always taken, even where it alone exceeds the bounds: else a request over the budget would
    block the queue.
    """
    anchor = waiting.place(waiting.oldest) if aged else 0
    low, high, why = _grow(waiting, bounds, anchor)
    chosen = _oldest_of_equals(waiting, low, high)
    if why is None:
        size, longest = len(chosen), chosen[-1].tokens
        full = bounds.closed(size, longest, sum(work.tokens for work in chosen))
        return BatchChoice(chosen, full or ReleaseReason.IDLE, closed=full is not None)
    # The guard is the reason only where it changed the batch.
    return BatchChoice(chosen, ReleaseReason.AGE if anchor > 0 else why, closed=True)


def _grow(waiting: WaitingQueue, bounds: BatchBounds, anchor: int) -> tuple[int, int, ReleaseReason | None]:
    """The places [low, high) of the window, and what stopped it; None: everything that waits is in it."""
    low, high = anchor, anchor + 1
    longest = asked = waiting.at(anchor).tokens
    while low > 0 or high < len(waiting):
        size = high - low + 1
        sides = []
        if low > 0:
            tokens = waiting.at(low - 1).tokens
            sides.append((GrownBatch(size, longest, asked + tokens, longest, tokens), -1))
        if high < len(waiting):
            tokens = waiting.at(high).tokens
            sides.append((GrownBatch(size, tokens, asked + tokens, longest, tokens), 1))
        # Stable: the shorter one where both waste the same.
        sides.sort(key=lambda side: waste(size, side[0].longest, side[0].asked))
        refusals = [bounds.refuses(grown) for grown, _ in sides]
        if None not in refusals:
            return low, high, refusals[0]
        grown, direction = sides[refusals.index(None)]
        longest, asked = grown.longest, grown.asked
        low, high = (low - 1, high) if direction < 0 else (low, high + 1)
    return low, high, None


def _oldest_of_equals(waiting: WaitingQueue, low: int, high: int) -> tuple[Work, ...]:
    """The window, with the shortest length's oldest in place of its newest, where only some of that length fit in.

    The anchor is never swapped out: it is the first of its length.
    """
    shortest = waiting.at(low).tokens
    first = waiting.first_of_length(shortest)
    same = min(high, waiting.first_of_length(shortest + 1)) - low
    places = [*range(first, first + same), *range(low + same, high)]
    return tuple(waiting.at(place) for place in places)


class TokenBounds(Struct, frozen=True):
    """`max_batch_tokens` counts padded tokens: what is computed, and what memory is taken for."""

    batching: BatchingConfig
    cost: Cost | None = None  # what a call was learnt to cost; None: nothing is known

    def refuses(self, grown: GrownBatch) -> ReleaseReason | None:
        if grown.size > count_cap(self.batching, grown.longest):
            return ReleaseReason.FULL
        if grown.size * grown.longest > self.batching.max_batch_tokens:
            return ReleaseReason.TOKENS
        if waste(grown.size, grown.longest, grown.asked) > self.batching.max_waste or not self._pays(grown):
            return ReleaseReason.WASTE
        return None

    def closed(self, size: int, longest: int, asked: int) -> ReleaseReason | None:
        # One as long as the longest wastes least.
        return self.refuses(GrownBatch(size + 1, longest, asked + longest, longest, longest))

    def _pays(self, grown: GrownBatch) -> bool:
        """Whether joining takes no longer than a call of its own: the fixed cost saved is worth the padding added.

        Where a call has a low fixed cost (a small model on a CPU) that allows few tokens of padding, where it
        has a high one (a launch on a GPU) many.
        """
        if self.cost is None or grown.joining == grown.longest == grown.before:
            return True
        alone = self.cost.seconds(grown.size - 1, grown.before) + self.cost.seconds(1, grown.joining)
        return self.cost.seconds(grown.size, grown.longest) <= alone


class TokenBudget(SchedulingRule):
    """As many requests of like length as fit into the token budget without much padding.

    One that has waited longer than `age_ms` becomes the middle of the next batch; younger ones go the shortest first.
    With 0, the default, the oldest always leads: measured, that completes more and has the better P99 over all
    requests; a higher age lets short ones overtake, at the cost of the long ones' P99.
    """

    def _choose(self, now: float) -> BatchChoice:
        cost = self._model.cost if self._model is not None else None
        return window(self._waiting, TokenBounds(self._batching, cost), aged=self._is_aged(now))


class DurationBounds(Struct, frozen=True):
    """`total_seconds` counts the requests without padding."""

    batching: BatchingConfig

    def refuses(self, grown: GrownBatch) -> ReleaseReason | None:
        if grown.size > count_cap(self.batching, grown.longest):
            return ReleaseReason.FULL
        return ReleaseReason.SECONDS if grown.asked > self.batching.total_seconds * FRAMES_PER_SECOND else None

    def closed(self, size: int, longest: int, asked: int) -> ReleaseReason | None:
        return self.refuses(GrownBatch(size + 1, longest, asked + 1, longest, 1))  # the shortest there can be


class DurationBounded(SchedulingRule):
    """The shortest first until the seconds are full; the oldest becomes the middle once it waited `age_ms`."""

    def _choose(self, now: float) -> BatchChoice:
        return window(self._waiting, DurationBounds(self._batching), aged=self._is_aged(now))
