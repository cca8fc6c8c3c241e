"""First come, first served, bounded by count, and anything long is computed alone."""

from __future__ import annotations

from latdoctor.lab.server.schedulers.rule import Choice, Rule, count_cap
from latdoctor.lab.server.work import Work


class LongAlone(Rule):
    """Requests over `long_seconds` run alone, in their turn: a batch ends where the next in line is long."""

    def _choose(self, now: float) -> Choice:
        works = self._waiting.works()
        if self._is_long(works[0]):
            return Choice((works[0],), "alone", closed=True)
        chosen: list[Work] = []
        longest = 0
        for work in works:
            if self._is_long(work):
                return Choice(tuple(chosen), "seconds", closed=True)
            longest = max(longest, work.tokens)
            if len(chosen) >= count_cap(self._batching, longest):
                return Choice(tuple(chosen), "full", closed=True)
            chosen.append(work)
        full = len(chosen) >= count_cap(self._batching, longest)
        return Choice(tuple(chosen), "full" if full else "idle", closed=full)

    def _is_long(self, work: Work) -> bool:
        return work.seconds > self._batching.long_seconds
