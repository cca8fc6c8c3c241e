"""Sorted batches bounded by count and by their total seconds of audio: what the field does about long requests."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.lab.server.config import Batching
from latdoctor.lab.server.schedulers.rule import Choice, Rule, count_cap
from latdoctor.lab.server.schedulers.window import Grown, window
from latdoctor.lab.server.work import FRAMES_PER_SECOND


class DurationBounds(Struct, frozen=True):
    """`total_seconds` counts what was asked, without padding."""

    batching: Batching

    def refuses(self, grown: Grown) -> str | None:
        if grown.size > count_cap(self.batching, grown.longest):
            return "full"
        return "seconds" if grown.asked > self.batching.total_seconds * FRAMES_PER_SECOND else None

    def closed(self, size: int, longest: int, asked: int) -> str | None:
        return self.refuses(Grown(size + 1, longest, asked + 1, longest, 1))  # the shortest there can be


class DurationBounded(Rule):
    """The shortest first until the seconds are full; the oldest becomes the middle once it waited `age_ms`."""

    def _choose(self, now: float) -> Choice:
        return window(self._waiting, DurationBounds(self._batching), aged=self._is_aged(now))
