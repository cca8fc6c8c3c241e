"""Which distribution values have: the simplest that is close enough, otherwise their quantiles.

Close is the two-sample Kolmogorov-Smirnov distance between the values and draws of the fitted distribution.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct

from latdoctor.load.distributions import (
    MOST_QUANTILES,
    ConstantValue,
    Distribution,
    Exponential,
    Geometric,
    LogNormal,
    Quantiles,
)

CLOSE = 0.03  # distance up to which a simple distribution is taken whatever the number of values
_DRAWS = 20_000
_LEAST_LOG = 1e-4  # seconds; shorter times count as this in a logarithm


class Fitted(Struct, frozen=True):
    """A distribution, its distance from the values, and their number."""

    distribution: Distribution
    distance: float
    values: int


def fit(values: Sequence[float], *, whole: bool = False) -> Fitted:
    """The distribution of `values` (not negative); `whole`: of whole numbers from 1. Raises ValueError for none."""
    if not values:
        raise ValueError("no values to fit")
    close = close_enough(len(values))
    simple = [Fitted(one, _distance(values, one, whole=whole), len(values)) for one in _simple(values, whole=whole)]
    best = min(simple, key=lambda one: one.distance)
    if best.distance <= close:
        return best
    kept = quantiles(values)
    return Fitted(kept, _distance(values, kept, whole=whole), len(values))


def close_enough(count: int) -> float:
    """The distance at which `count` values do not contradict a distribution (5 % level), at least CLOSE."""
    return max(CLOSE, 1.36 / math.sqrt(count))


def quantiles(values: Sequence[float]) -> Quantiles:
    """The quantiles of `values`; the largest is such that the mean is kept, or one extreme value would rule it."""
    ordered = sorted(min(value, 1e6) for value in values)
    steps = min(MOST_QUANTILES, max(2, len(ordered))) - 1
    found = [_quantile(ordered, step / steps) for step in range(steps + 1)]
    top = ordered[bisect.bisect_left(ordered, found[-2]) :]
    share = max(1, round(len(ordered) / steps))
    found[-1] = max(found[-2], min(ordered[-1], 2 * statistics.fmean(top[-share:]) - found[-2]))
    return Quantiles(tuple(found))


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sample Kolmogorov-Smirnov distance."""
    import numpy as np

    one, two = np.sort(np.asarray(first)), np.sort(np.asarray(second))
    both = np.concatenate((one, two))
    shares = np.searchsorted(one, both, side="right") / len(one), np.searchsorted(two, both, side="right") / len(two)
    return float(np.max(np.abs(shares[0] - shares[1])))


def _distance(values: Sequence[float], distribution: Distribution, *, whole: bool) -> float:
    rng = Random(0)  # noqa: S311  # a repeatable comparison, no secret
    drawn = [distribution.draw(rng) for _ in range(_DRAWS)]
    return distance(values, [float(max(1, round(value))) for value in drawn] if whole else drawn)


def _simple(values: Sequence[float], *, whole: bool) -> Iterator[Distribution]:
    mean = min(statistics.fmean(values), 1e6)
    yield ConstantValue(min(statistics.median(values), 1e6))
    if whole:
        yield Geometric(max(1.0, mean))
        return
    if mean > 0:
        yield Exponential(mean)
        logs = [math.log(max(value, _LEAST_LOG)) for value in values]
        yield LogNormal(min(math.exp(statistics.fmean(logs)), 1e6), min(5.0, statistics.pstdev(logs)))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
