"""The limit from levels: an isotonic fit of the attainment over the rate, and a bootstrap interval. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from latdoctor.planning.capacity.level import Level

_RESAMPLES = 400
_BLOCK = 3  # seconds: the latencies of neighbouring seconds depend on one another
_CLIFF = 0.15  # from the limit to the rate at which half fails, as a share of the limit: up to here a cliff

Array = NDArray[np.float64]


class Limit(Struct, frozen=True):
    """The highest rate within the SLO, in requests per second, with a 95 % interval.

    `first_failing`: the lowest rate above it that failed; None: none did, and the limit is at least this.
    `half_fails`: the rate at which half of the requests miss the SLO; None: not reached.
    """

    rate: float
    interval: tuple[float, float]
    first_failing: float | None
    half_fails: float | None

    @property
    def is_cliff(self) -> bool | None:
        """Whether a little more load makes most requests miss the SLO; None: unknown."""
        if self.half_fails is None or not self.rate:
            return None
        return self.half_fails <= self.rate * (1 + _CLIFF)


def limit(levels: Sequence[Level], wanted: float, seed: int = 0, resamples: int = _RESAMPLES) -> Limit:
    """The rate at which the share of good requests falls below `wanted`. Needs at least one level.

    The share is taken to fall with the rate (isotonic regression, weighted by requests); between two levels the limit
    lies where the line between them crosses, on a logarithmic scale of the rate. Below the lowest level the share is
    not known: a limit there is 0. Without `resamples` the interval is the estimate alone.
    """
    ordered = sorted((one for one in levels if one.requests), key=lambda one: one.rate)
    rates = np.array([one.rate for one in ordered])
    shares = np.array([one.attainment for one in ordered])
    weights = np.array([float(one.requests) for one in ordered])
    fitted = _falling(shares, weights)
    found = _crossing(rates, fitted, wanted)
    rng = Random(seed)  # noqa: S311  # repeatable, no secret
    drawn = sorted(_resampled(ordered, rates, weights, wanted, rng) for _ in range(resamples)) or [found]
    low, high = drawn[int(0.025 * len(drawn))], drawn[math.ceil(0.975 * len(drawn)) - 1]
    failing = [float(rate) for rate, share in zip(rates, fitted, strict=True) if share < wanted and rate >= found]
    half = _crossing(rates, fitted, 0.5) if fitted[-1] < 0.5 else None
    return Limit(found, (min(low, found), max(high, found)), failing[0] if failing else None, half)


def _falling(shares: Array, weights: Array) -> Array:
    from scipy.optimize import isotonic_regression

    fitted: Any = isotonic_regression(shares, weights=weights, increasing=False).x
    return np.asarray(fitted, dtype=np.float64)


def _crossing(rates: Array, fitted: Array, wanted: float) -> float:
    passing = [index for index, share in enumerate(fitted) if share >= wanted]
    if not passing:
        return 0.0
    last = passing[-1]
    if last == len(rates) - 1:
        return float(rates[last])
    above, below = fitted[last], fitted[last + 1]
    part = (above - wanted) / (above - below)
    return float(math.exp(math.log(rates[last]) * (1 - part) + math.log(rates[last + 1]) * part))


def _resampled(levels: Sequence[Level], rates: Array, weights: Array, wanted: float, rng: Random) -> float:
    """The limit of resampled levels: blocks of seconds are drawn with replacement."""
    shares = []
    for one in levels:
        blocks = _blocks(one.blocks)
        drawn = rng.choices(blocks, k=len(blocks))
        shares.append(sum(good for good, _ in drawn) / sum(all_ for _, all_ in drawn))
    return _crossing(rates, _falling(np.array(shares), weights), wanted)


def _blocks(seconds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sums of neighbouring seconds."""
    parts = [seconds[start : start + _BLOCK] for start in range(0, len(seconds), _BLOCK)]
    return [(sum(good for good, _ in part), sum(all_ for _, all_ in part)) for part in parts]
