"""When to look, for sources that are sampled over the window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from latdoctor.collect.source import Clock


@dataclass(frozen=True, slots=True)
class Moment:
    """One time to sample, unix seconds UTC; `at_end` is true for the first and the last."""

    time: float
    at_end: bool


def offsets(window: float, interval: float, most: int) -> tuple[float, ...]:
    """Seconds from the start: 0, `window`, and about every `interval` between them; `most` of them (2 or more)."""
    if window <= 0:
        return (0.0,)
    steps = max(1, min(most - 1, round(window / interval)))
    return tuple(window * step / steps for step in range(steps + 1))


def moments(clock: Clock, window: float, interval: float, most: int) -> Iterator[Moment]:
    """Waits for each moment in turn. A source that is slow to answer is sampled less often, not for longer.

    A clock that is set back in the window neither turns the order of the samples nor draws the window out.
    """
    planned = offsets(window, interval, most)
    start = now = clock.now()
    for offset in planned:
        now = max(now, clock.now())
        at_end = offset in (planned[0], planned[-1])
        if now > start + offset + interval and not at_end:
            continue
        wait = start + offset - now
        if wait > 0:
            clock.sleep(wait)
            now = max(now + wait, clock.now())
        yield Moment(now, at_end)
