"""Intervals: of shares by Wilson, of means and of calibration errors by the bootstrap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct

Z = 1.959964  # of 95 %
RESAMPLES = 1000
_SEED = 20261122

T = TypeVar("T")


class Proportion(Struct, frozen=True):
    """`right` of `of`, with its 95 % interval; all None where there is nothing to tell it by."""

    right: float
    of: int
    value: float | None
    low: float | None
    high: float | None


class BootstrapEstimate(Struct, frozen=True):
    """A mean or a distance with its 95 % bootstrap interval."""

    of: int
    value: float | None
    low: float | None
    high: float | None


def proportion(right: float, of: int) -> Proportion:
    """Wilson's interval (1927), which stays within 0..1 and is no point at 0 or 1. `right` may be fractional."""
    if of == 0:
        return Proportion(0, 0, None, None, None)
    p, z2 = right / of, Z * Z
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = Z * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return Proportion(right, of, p, max(0.0, middle - half), min(1.0, middle + half))


def at_most(seen: int, of: int) -> float | None:
    """The rate that `seen` of `of` bounds from above, one-sided at 95 %: of none seen 1 − 0.05^(1/n), about 3/n.

    Clopper and Pearson (1934), by bisection of the binomial's own tail. None of nothing.
    """
    if of == 0:
        return None
    if seen >= of:
        return 1.0
    low, high = seen / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(seen, of, middle) > 0.05 else (low, middle)
    return high


def _tail(seen: int, of: int, p: float) -> float:
    """P(at most `seen` of `of`)."""
    return sum(math.comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(seen + 1))


def bootstrap(sample: Sequence[T], statistic: Callable[[Sequence[T]], float]) -> BootstrapEstimate:
    """`statistic` of `sample`, and where the middle 95 % of its values over resamples lie (percentile bootstrap).

    The same sample always gives the same interval.
    """
    if not sample:
        return BootstrapEstimate(0, None, None, None)
    from random import Random

    rng = Random(_SEED)  # noqa: S311  # resamples, no secret
    drawn = sorted(statistic(rng.choices(sample, k=len(sample))) for _ in range(RESAMPLES))
    edge = round(RESAMPLES * 0.025)
    return BootstrapEstimate(len(sample), statistic(sample), drawn[edge], drawn[-edge - 1])


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


BINS = 10
_LEAST = 5  # statements in a bin
_CLIP = 1e-4  # a probability is stated with four digits


class Prediction(Struct, frozen=True):
    """The probability of the top cause, and whether it was right."""

    probability: float
    right: bool


class ReliabilityBin(Struct, frozen=True):
    """Statements of about the same probability: how sure they were on average, and how often right."""

    of: int
    probability: float
    right: float


def brier(stated: Sequence[Prediction]) -> float:
    """Mean squared distance of the probability from what came true (Brier 1950)."""
    return sum((one.probability - one.right) ** 2 for one in stated) / len(stated)


def log_loss(stated: Sequence[Prediction]) -> float:
    """Mean −ln of the probability that was given to what came true."""
    total = 0.0
    for one in stated:
        p = min(1 - _CLIP, max(_CLIP, one.probability))
        total -= math.log(p if one.right else 1 - p)
    return total / len(stated)


def bins(stated: Sequence[Prediction], most: int = BINS) -> tuple[ReliabilityBin, ...]:
    """Bins of equal mass: equally many statements in each, ten at most and none of fewer than five.

    Bins of equal width are nearly all empty where most statements are sure (Nixon et al. 2019).
    """
    ordered = sorted(stated, key=lambda one: (one.probability, one.right))
    count = max(1, min(most, len(ordered) // _LEAST))
    edges = [round(number * len(ordered) / count) for number in range(count + 1)]
    parts = [ordered[low:high] for low, high in pairwise(edges) if high > low]
    return tuple(
        ReliabilityBin(
            len(part), sum(one.probability for one in part) / len(part), sum(one.right for one in part) / len(part)
        )
        for part in parts
    )


def ece(stated: Sequence[Prediction]) -> float:
    """The expected calibration error: how far sureness and rightness are apart, on average over the bins."""
    return sum(one.of * abs(one.probability - one.right) for one in bins(stated)) / len(stated)
