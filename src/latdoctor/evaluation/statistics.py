"""Confidence intervals and calibration: Wilson for shares, bootstrap for means, Brier score, log loss, ECE."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import TypeVar

from msgspec import Struct

from latdoctor.shares import wilson

Z = 1.959964  # of 95 %
RESAMPLES = 1000
_SEED = 20261122

T = TypeVar("T")


class Proportion(Struct, frozen=True):
    """`right` of `of`, with its 95 % interval; None for an empty sample."""

    right: float
    of: int
    value: float | None
    low: float | None
    high: float | None


class BootstrapEstimate(Struct, frozen=True):
    """A statistic with its 95 % bootstrap interval."""

    of: int
    value: float | None
    low: float | None
    high: float | None


def proportion(right: float, of: int) -> Proportion:
    """A share with Wilson's interval. `right` may be fractional."""
    if of == 0:
        return Proportion(0, 0, None, None, None)
    return Proportion(right, of, right / of, *wilson(right, of, Z))


def at_most(events: int, of: int) -> float | None:
    """The one-sided 95 % upper bound of a rate of which `events` of `of` were observed; None for an empty sample.

    Clopper and Pearson (1934). For 0 of n it is 1 − 0.05^(1/n), about 3/n.
    """
    from scipy.stats import beta

    if of == 0:
        return None
    return 1.0 if events >= of else float(beta.ppf(0.95, events + 1, of - events))


def bootstrap(sample: Sequence[T], statistic: Callable[[Sequence[T]], float]) -> BootstrapEstimate:
    """`statistic` of `sample` with its percentile bootstrap interval, from a fixed seed.

    Not by scipy, whose resamples would change every published interval.
    """
    if not sample:
        return BootstrapEstimate(0, None, None, None)
    rng = Random(_SEED)  # noqa: S311  # resamples, no secret
    drawn = sorted(statistic(rng.choices(sample, k=len(sample))) for _ in range(RESAMPLES))
    edge = round(RESAMPLES * 0.025)
    return BootstrapEstimate(len(sample), statistic(sample), drawn[edge], drawn[-edge - 1])


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


BINS = 10
_LEAST = 5  # predictions per bin
_CLIP = 1e-4  # probabilities have four digits


class Prediction(Struct, frozen=True):
    """The probability of the top cause, and whether it was injected."""

    probability: float
    right: bool


class ReliabilityBin(Struct, frozen=True):
    """Predictions of similar probability: their mean probability, and the share that was correct."""

    of: int
    probability: float
    right: float


def brier(predictions: Sequence[Prediction]) -> float:
    """The Brier score (1950): mean squared distance of probability and outcome."""
    return sum((one.probability - one.right) ** 2 for one in predictions) / len(predictions)


def log_loss(predictions: Sequence[Prediction]) -> float:
    """Mean negative log-likelihood of the outcomes."""
    total = 0.0
    for one in predictions:
        p = min(1 - _CLIP, max(_CLIP, one.probability))
        total -= math.log(p if one.right else 1 - p)
    return total / len(predictions)


def bins(predictions: Sequence[Prediction], most: int = BINS) -> tuple[ReliabilityBin, ...]:
    """Bins with equally many predictions, at least five each: equal-width bins are mostly empty where most predictions
    are near 0 or 1 (Nixon et al. 2019).
    """
    ordered = sorted(predictions, key=lambda one: (one.probability, one.right))
    count = max(1, min(most, len(ordered) // _LEAST))
    edges = [round(number * len(ordered) / count) for number in range(count + 1)]
    parts = [ordered[low:high] for low, high in pairwise(edges) if high > low]
    return tuple(
        ReliabilityBin(
            len(part), sum(one.probability for one in part) / len(part), sum(one.right for one in part) / len(part)
        )
        for part in parts
    )


def ece(predictions: Sequence[Prediction]) -> float:
    """The expected calibration error: mean distance of probability and accuracy over the bins."""
    return sum(one.of * abs(one.probability - one.right) for one in bins(predictions)) / len(predictions)
