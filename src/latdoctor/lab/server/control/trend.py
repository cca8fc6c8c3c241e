"""Whether a series rises, and where it will be: a rank test and a median slope, so that one spike is no trend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import median

from msgspec import Struct

FEWEST = 8  # values


class SeriesTrend(Struct, frozen=True):
    """`z` of the Mann-Kendall test is above 0 where it rises; `slope` is per second, `last` the level."""

    z: float
    slope: float
    last: float

    def ahead(self, seconds: float) -> float:
        """The level so many seconds from now, if it goes on like this."""
        return self.last + self.slope * seconds


def trend(values: Sequence[tuple[float, float]]) -> SeriesTrend | None:
    """Of (second, value) in order of time; None of fewer than FEWEST.

    Mann 1945 and Kendall 1975 without correction for ties, which makes it more careful; Theil 1950 and Sen 1968. The
    level is the median of the last three values.
    """
    if len(values) < FEWEST:
        return None
    pairs = [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in combinations(values, 2)]
    count = len(values)
    score = sum((rise > 0) - (rise < 0) for _, rise in pairs)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    z = (score - (score > 0) + (score < 0)) / deviation
    slope = median(rise / seconds for seconds, rise in pairs if seconds > 0)
    return SeriesTrend(z, slope, median(value for _, value in values[-3:]))
