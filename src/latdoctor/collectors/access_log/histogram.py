"""A histogram of durations in buckets of one relative width: 50 to a factor of ten, so each is 4.7 % wide."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping

_BINS_PER_DECADE = 50
_EDGES = [10 ** (power / _BINS_PER_DECADE) for power in range(-6 * _BINS_PER_DECADE, 7 * _BINS_PER_DECADE + 1)]


def bin_of(value: float) -> int:
    """The bucket of `value` seconds: the first whose upper edge it does not exceed; 0 below a microsecond."""
    place = bisect_right(_EDGES, value)
    return place - 1 if place and _EDGES[place - 1] == value else place


def edge(place: int) -> float:
    """The upper edge of a bucket in seconds."""
    return 0.0 if place < 0 else _EDGES[min(place, len(_EDGES) - 1)]


def quantile_of(counts: Mapping[int, int], q: float) -> float:
    """The middle of the bucket with the smallest value that a share `q` of all does not exceed."""
    rank = max(1, math.ceil(q * sum(counts.values())))
    for place in sorted(counts):
        rank -= counts[place]
        if rank <= 0:
            return math.sqrt(edge(place) * edge(place - 1)) if place else edge(0)
    raise ValueError("a quantile of nothing")
