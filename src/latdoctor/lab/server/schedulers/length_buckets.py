"""Requests of similar length together: a batch never crosses the border of a bucket."""

from __future__ import annotations

from bisect import bisect_left

from latdoctor.lab.server.config import Batching
from latdoctor.lab.server.schedulers.cost_model import CostModel
from latdoctor.lab.server.schedulers.rule import Choice, Rule, count_cap
from latdoctor.lab.server.work import Work


class LengthBuckets(Rule):
    """The bucket of the oldest first; while a wait is set, a bucket that is full may go before it.

    Buckets are upper bounds in tokens; what is longer than the last shares one bucket more.
    """

    def __init__(self, batching: Batching, model: CostModel | None = None) -> None:
        super().__init__(batching, model)
        self._bounds = sorted(batching.buckets)

    def _choose(self, now: float) -> Choice:
        buckets: dict[int, list[Work]] = {}
        for work in self._waiting.works():
            buckets.setdefault(bisect_left(self._bounds, work.tokens), []).append(work)
        choices = [self._head(bucket, alone=len(buckets) == 1) for bucket in buckets.values()]
        first, full = choices[0], [choice for choice in choices if choice.closed]
        if first.closed or not full or now >= self._hold_until(first):
            return first
        if self._is_aged(now):
            return Choice(first.works, "age", closed=True)
        return full[0]

    def _head(self, bucket: list[Work], *, alone: bool) -> Choice:
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
        return Choice(tuple(bucket[:size]), why or ("idle" if alone else "bucket"), closed=why is not None)

    def _refuses(self, size: int, longest: int) -> str | None:
        if size > count_cap(self._batching, longest):
            return "full"
        return "tokens" if size * longest > self._batching.max_batch_tokens else None
