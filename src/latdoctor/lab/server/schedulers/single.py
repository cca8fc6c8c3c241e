"""No batching: one request at a time, in order of arrival."""

from __future__ import annotations

from latdoctor.lab.server.schedulers.rule import Choice, Rule


class Single(Rule):
    """A batch of one is full."""

    def _choose(self, now: float) -> Choice:
        return Choice((self._waiting.oldest,), "full", closed=True)
