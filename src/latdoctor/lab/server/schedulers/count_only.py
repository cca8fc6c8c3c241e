"""First come, first served, bounded by count only: whatever is long makes all the others as long."""

from __future__ import annotations

from latdoctor.lab.server.schedulers.rule import Choice, Rule, count_cap


class CountOnly(Rule):
    """The oldest `max_batch_requests`, however different their lengths."""

    def _choose(self, now: float) -> Choice:
        works = self._waiting.works()
        longest = size = 0
        for work in works:
            longest = max(longest, work.tokens)
            if size >= count_cap(self._batching, longest):
                break
            size += 1
        chosen = tuple(works[:size])
        full = size < len(works) or size >= count_cap(self._batching, longest)
        return Choice(chosen, "full" if full else "idle", closed=full)
