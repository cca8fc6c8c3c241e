"""Effect size and significance of a change in latency between two periods.

With many requests any difference is "significant", so Cliff's delta decides (the probability that a later value is
larger than an earlier one, minus the reverse; negligible below 0.147: Romano et al. 2006). Consecutive requests are
correlated, and a rank test on them fires without cause (57 % at a level of 1 %, measured with an AR(1) of .9). Its
p-value is therefore computed on the means of BLOCKS blocks per side (Mann and Whitney 1947, normal approximation).
Quantile shifts come with confidence intervals from order statistics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

NEGLIGIBLE = 0.147
LEVEL = 0.01
BLOCKS = 25
MIN_PER_BLOCK = 4
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class QuantileShift:
    """One quantile before and after; `low` and `high` bound after − before (95 %), None with too few values."""

    quantile: float
    before: float
    after: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class EffectSize:
    """`delta` from -1 to 1, above 0 if later values are larger; `p` of the block means (1 with too few)."""

    delta: float
    p: float
    shifts: tuple[QuantileShift, ...]

    @property
    def differs(self) -> bool:
        return abs(self.delta) >= NEGLIGIBLE and self.p < LEVEL


def compare_latencies(before: Numbers, after: Numbers) -> EffectSize:
    """Compare `after` with `before`, both in time order. Raises ValueError if one is empty or not finite."""
    import numpy as np

    if not (len(before) and len(after) and np.isfinite(before).all() and np.isfinite(after).all()):
        raise ValueError("both sides need finite values")
    shifts = tuple(_shift(np.sort(before), np.sort(after), quantile) for quantile in QUANTILES)
    return EffectSize(_delta(before, after), _chance(before, after), shifts)


def _delta(before: Numbers, after: Numbers) -> float:
    import numpy as np

    ordered = np.sort(before)
    below = np.searchsorted(ordered, after, "left").sum()
    above = len(after) * len(before) - np.searchsorted(ordered, after, "right").sum()
    return float(below - above) / (len(before) * len(after))


def _chance(before: Numbers, after: Numbers) -> float:
    import numpy as np

    blocks = min(BLOCKS, min(len(before), len(after)) // MIN_PER_BLOCK)
    if blocks < 5:  # with four blocks per side no order is rarer than 1 in 35
        return 1.0
    means = [np.array([part.mean() for part in np.array_split(side, blocks)]) for side in (before, after)]
    deviation = math.sqrt((2 * blocks + 1) / 3) / blocks  # of Cliff's delta under the null hypothesis
    return 2 * (1 - NormalDist().cdf(abs(_delta(*means)) / deviation))


def _shift(before: Numbers, after: Numbers, quantile: float) -> QuantileShift:
    (at, low, high), (at_, low_, high_) = (_with_bounds(side, quantile) for side in (before, after))
    if low is None or high is None or low_ is None or high_ is None:
        return QuantileShift(quantile, at, at_, None, None)
    return QuantileShift(quantile, at, at_, low_ - high, high_ - low)


def _with_bounds(ordered: Numbers, quantile: float) -> tuple[float, float | None, float | None]:
    """The quantile and its order-statistic bounds at 1.25 % on either side, so that a difference has 95 %."""
    count = len(ordered)
    at = float(ordered[min(count - 1, math.ceil(quantile * count) - 1)])
    width = NormalDist().inv_cdf(0.9875) * math.sqrt(count * quantile * (1 - quantile))
    low, high = math.floor(count * quantile - width), math.ceil(count * quantile + width)
    if low < 1 or high >= count:
        return at, None, None
    return at, float(ordered[low - 1]), float(ordered[high])
