"""Load patterns as data: request rate and mix over time, and the seeded requests that they make."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from latdoctor.lab.server.schedulers.batch import Work

SHIPPED = Path(__file__).with_suffix(".yaml")
Points = tuple[tuple[float, float], ...]  # second, value
USUAL_LONG_SHARE = 0.15


class LoadPattern(Struct, frozen=True, forbid_unknown_fields=True):
    """One pattern; the file explains the fields."""

    rate: Points
    long_share: Points = ((0.0, USUAL_LONG_SHARE),)
    service_time: Points = ((0.0, 1.0),)
    repeat: int = 1

    @property
    def period(self) -> float:
        return self.rate[-1][0]

    @property
    def seconds(self) -> float:
        return self.period * self.repeat

    def at(self, points: Points, now: float) -> float:
        """The value of `points` at that second."""
        return interpolated(points, now % self.period)


def interpolated(points: Points, second: float) -> float:
    """Straight lines between the points; before the first and after the last their values."""
    before = points[0]
    for point in points[1:]:
        if second < point[0]:
            if point[0] <= before[0] or second <= before[0]:
                return before[1]
            share = (second - before[0]) / (point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def read_patterns(file: Path = SHIPPED) -> dict[str, LoadPattern]:
    """By name, in the order of the file."""
    return msgspec.convert(yaml.safe_load(file.read_text(encoding="utf-8")), dict[str, LoadPattern])


def requests_of(pattern: LoadPattern, seed: int) -> Sequence[Work]:
    """Poisson arrivals by thinning (Lewis and Shedler 1979): the same seed gives the same requests."""
    chance = random.Random(seed)
    most = max(rate for _, rate in pattern.rate)
    works, now = [], 0.0
    while (now := now + chance.expovariate(most)) < pattern.seconds:
        if chance.random() * most >= pattern.at(pattern.rate, now):
            continue
        is_long = chance.random() < pattern.at(pattern.long_share, now)
        works.append(Work(len(works), chance.randint(300, 512) if is_long else chance.randint(20, 60), now))
    return works
