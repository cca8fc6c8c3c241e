"""The effect of a setting on one quantity: a ratio with its interval, and what that shows. Pure.

Requests of one run depend on one another (they share a queue), so a test on single requests finds differences between
equal settings most of the time. The unit here is a whole run, or a slice of time that is long against the queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import mean, variance

from msgspec import Struct

from latdoctor.units import format_value

ALPHA = 0.025  # of two-sided intervals: the share of equal settings that are called different
POWER = 0.9  # with which the number of pairs finds the difference that is looked for


class Quantity(StrEnum):
    """What is compared."""

    P50 = "p50"
    P99 = "p99"
    GOODPUT = "goodput"  # good answers per second
    ERRORS = "errors"  # share of requests that are not answered

    @property
    def more_is_better(self) -> bool:
        return self is Quantity.GOODPUT

    def shown(self, value: float) -> str:
        """`value` with its unit, for people."""
        if self is Quantity.ERRORS:
            return f"{value:.2%}"
        return f"{value:.3g}/s" if self is Quantity.GOODPUT else format_value(value, "time")


class ComparisonVerdict(StrEnum):
    """What is shown of B against A. No difference is shown only where a larger one than `margin` is ruled out."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no-difference"
    INCONCLUSIVE = "inconclusive"

    @property
    def is_difference(self) -> bool:
        return self in (ComparisonVerdict.BETTER, ComparisonVerdict.WORSE)


TEXT = {
    ComparisonVerdict.BETTER: "better",
    ComparisonVerdict.WORSE: "worse",
    ComparisonVerdict.NO_DIFFERENCE: "no difference shown",
    ComparisonVerdict.INCONCLUSIVE: "inconclusive",
}


class Effect(Struct, frozen=True):
    """B over A with its interval; for errors B less A, in shares.

    `a`, `b`: means over runs (geometric for ratios). `of`: pairs, or runs of each side. `needed`: pairs that find a
    difference of the size looked for; None where the variation is not known.
    """

    quantity: Quantity
    a: float | None
    b: float | None
    ratio: float | None
    interval: tuple[float, float] | None
    verdict: ComparisonVerdict
    of: int
    needed: int | None = None


def paired_effect(
    quantity: Quantity, pairs: Sequence[tuple[float, float]], margin: float, known: int | None = None
) -> Effect:
    """The effect from pairs (A, B) of the same load. `margin`: the smallest relative difference that matters.

    `known`: the pairs from which the number of pairs was computed. Their variation alone then gives the interval
    (C. Stein, A Two-Sample Test for a Linear Hypothesis Whose Power Is Independent of the Variance, 1945); else the
    variation of all would depend on when the runs were ended.
    """
    if quantity is Quantity.ERRORS:
        return _difference(pairs, margin, known)
    usable = [(a, b) for a, b in pairs if a > 0 and b > 0 and math.isfinite(a) and math.isfinite(b)]
    if len(usable) < len(pairs) or not usable:
        return Effect(quantity, None, None, None, None, ComparisonVerdict.INCONCLUSIVE, len(usable))
    logs = [math.log(b / a) for a, b in usable]
    half = _half_width(logs, known)
    middle = mean(logs)
    a, b = (math.exp(mean(math.log(pair[side]) for pair in usable)) for side in (0, 1))
    if half is None:
        return Effect(quantity, a, b, math.exp(middle), None, ComparisonVerdict.INCONCLUSIVE, len(usable))
    low, high = math.exp(middle - half), math.exp(middle + half)
    verdict = _verdict(quantity, (low, high), 1.0, (1 / (1 + margin), 1 + margin))
    needed = pairs_needed(logs[:known], math.log1p(margin))
    return Effect(quantity, a, b, math.exp(middle), (low, high), verdict, len(usable), needed)


def _difference(pairs: Sequence[tuple[float, float]], margin: float, known: int | None) -> Effect:
    """Shares of errors: many are 0, so their difference, against a margin of as many points."""
    differences = [b - a for a, b in pairs]
    half = _half_width(differences, known)
    if not pairs or half is None:
        return Effect(Quantity.ERRORS, None, None, None, None, ComparisonVerdict.INCONCLUSIVE, len(pairs))
    a, b = (mean(pair[side] for pair in pairs) for side in (0, 1))
    low, high = mean(differences) - half, mean(differences) + half
    verdict = _verdict(Quantity.ERRORS, (low, high), 0.0, (-margin, margin))
    return Effect(Quantity.ERRORS, a, b, mean(differences), (low, high), verdict, len(pairs))


def unpaired_effect(quantity: Quantity, a: Sequence[float], b: Sequence[float], margin: float) -> Effect:
    """The effect from independent runs or slices of each side: Welch's t interval of the logarithms."""
    from scipy.stats import t

    logs = [[math.log(one) for one in side if one > 0 and math.isfinite(one)] for side in (a, b)]
    if min(map(len, logs)) < 2 or sum(map(len, logs)) < len(a) + len(b):
        return Effect(quantity, None, None, None, None, ComparisonVerdict.INCONCLUSIVE, min(map(len, logs)))
    means, errors = [mean(side) for side in logs], [variance(side) / len(side) for side in logs]
    whole = sum(errors)
    middle = means[1] - means[0]
    if whole:
        freedom = whole**2 / sum(error**2 / (len(side) - 1) for error, side in zip(errors, logs, strict=True) if error)
        half = float(t.ppf(1 - ALPHA / 2, freedom)) * math.sqrt(whole)
    else:
        half = 0.0
    low, high = math.exp(middle - half), math.exp(middle + half)
    verdict = _verdict(quantity, (low, high), 1.0, (1 / (1 + margin), 1 + margin))
    left, right = (math.exp(one) for one in means)
    return Effect(quantity, left, right, math.exp(middle), (low, high), verdict, min(map(len, logs)))


def pairs_needed(values: Sequence[float], difference: float) -> int | None:
    """Pairs whose interval excludes 0 with POWER for a true mean of `difference`; None for fewer than two values."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    freedom = len(values) - 1
    quantiles = float(t.ppf(1 - ALPHA / 2, freedom)) + float(t.ppf(POWER, freedom))
    return max(2, math.ceil(quantiles**2 * variance(values) / difference**2))


def _half_width(values: Sequence[float], known: int | None) -> float | None:
    """Half of the t interval of the mean; None for fewer than two values."""
    from scipy.stats import t

    first = values[:known]
    if len(first) < 2:
        return None
    return float(t.ppf(1 - ALPHA / 2, len(first) - 1)) * math.sqrt(variance(first) / len(values))


def _verdict(
    quantity: Quantity, interval: tuple[float, float], equal: float, within: tuple[float, float]
) -> ComparisonVerdict:
    low, high = interval
    if low > equal or high < equal:
        return ComparisonVerdict.BETTER if (low > equal) is quantity.more_is_better else ComparisonVerdict.WORSE
    return ComparisonVerdict.NO_DIFFERENCE if within[0] <= low and high <= within[1] else ComparisonVerdict.INCONCLUSIVE
