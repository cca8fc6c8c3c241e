"""How the sessions of users ended, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from latdoctor.load.plan import LoadPlan
from latdoctor.load.user_sessions import SessionEnding, SessionRecord


class SessionCounts(Struct, frozen=True):
    """Sessions of users: `arrived` is the sum of the next four, `turns` the requests that they sent.

    Abandoned: a turn took longer than the user's patience (`slow`), or failed (`failed`). Unfinished at the end of the
    run, or of the phase of a population.
    """

    arrived: int = 0
    completed: int = 0
    abandoned_slow: int = 0
    abandoned_failed: int = 0
    unfinished: int = 0
    turns: int = 0

    @property
    def abandoned(self) -> int:
        return self.abandoned_slow + self.abandoned_failed


def count_sessions(plan: LoadPlan, records: Iterable[SessionRecord]) -> SessionCounts:
    """Of the users who arrived after the warm-up."""
    measured = [record for record in records if record.at >= plan.warm_up_s]
    endings = Counter(record.ending for record in measured)
    counts = {ending.value: endings[ending] for ending in SessionEnding}
    return SessionCounts(arrived=len(measured), turns=sum(record.turns for record in measured), **counts)
