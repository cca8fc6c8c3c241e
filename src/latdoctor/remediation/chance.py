"""Whether a signal has changed by more than it changes by itself.

The windows before and after a change are compared by the mean of their logarithms, so that a P99 that doubles counts
as much as one that halves. Windows that follow each other are alike: a queue that is long now is long in five seconds.
Their correlation is taken as that of a first-order autoregression, and so many independent windows as give a mean of
the same variance are counted (Bayley and Hammersley 1946). Few windows show neither their variance nor their
correlation; both are drawn towards what services usually show. The test is Student's, one-sided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

# Of the logarithm of P99 in windows of _USUAL_STEP seconds, below saturation; each counts as so many windows that were
# observed.
_USUAL_STEP = 5.0
_USUAL_CORRELATION, _CORRELATION_WEIGHT = 0.7, 6.0
_USUAL_VARIANCE, _VARIANCE_WEIGHT = 0.4**2, 3.0
_MOST_CORRELATION = 0.98
_SETTLED = 1.645  # standard errors of a one-sided 95 % bound
_MOST_TOLERANCE = 0.25  # of the logarithm: a bound that is wider says nothing of the size of an effect


class Samples(Struct, frozen=True):
    """Values of one signal and subject in windows of equal length without pauses; `step` in seconds."""

    values: tuple[float, ...]
    step: float

    @property
    def seconds(self) -> float:
        return len(self.values) * self.step

    @property
    def usable(self) -> bool:
        """Whether logarithms of all values exist."""
        return bool(self.values) and all(math.isfinite(value) and value > 0 for value in self.values)


class Shift(Struct, frozen=True):
    """From before to after: the factor on the level, its standard error as a logarithm, and how likely chance is.

    `p`: the probability of a shift at least as far in this direction where nothing was changed, from 0 to 1.
    """

    factor: float
    error: float
    p: float

    @property
    def least(self) -> float:
        """The factor that 95 % of such samples would not fall below."""
        return self.factor * math.exp(-min(_SETTLED * self.error, _MOST_TOLERANCE))

    @property
    def most(self) -> float:
        """The factor that 95 % of such samples would not exceed."""
        return self.factor * math.exp(min(_SETTLED * self.error, _MOST_TOLERANCE))


def shift(before: Samples, after: Samples) -> Shift | None:
    """The change of level; None where a value is zero, negative or not a number, or there is none.

    The longer of the two shows how much the values vary by themselves and how long they stay alike.
    """
    if not (before.usable and after.usable):
        return None
    old, new = _logs(before), _logs(after)
    longer, step = (old, before.step) if before.seconds >= after.seconds else (new, after.step)
    correlation = _correlation(longer, step)
    earlier = effective(len(old), correlation ** (before.step / step))
    later = effective(len(new), correlation ** (after.step / step))
    variance, freedom = _variance(longer, effective(len(longer), correlation))
    if longer is old:
        variance = max(variance, _sample_variance(new))
    error = math.sqrt(variance * (1 / earlier + 1 / later))
    moved = _mean(new) - _mean(old)
    return Shift(math.exp(moved), error, student_tail(abs(moved) / error, math.floor(freedom)))


def effective(count: int, correlation: float) -> float:
    """How many independent windows give a mean as certain as `count` with this correlation from one to the next."""
    inflation = 1 + 2 * sum((1 - lag / count) * correlation**lag for lag in range(1, count))
    return max(1.0, count / inflation)


def student_tail(t: float, freedom: int) -> float:
    """The probability that Student's t with `freedom` degrees exceeds `t`. Source: Abramowitz and Stegun 26.7.3-4."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(3 if odd else 2, freedom, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if odd:
        within = 2 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))
    else:
        within = sine * total
    return (1 - within) / 2


def _logs(samples: Samples) -> tuple[float, ...]:
    return tuple(map(math.log, samples.values))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _squares(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _sample_variance(values: Sequence[float]) -> float:
    return _squares(values) / max(1, len(values) - 1)


def _correlation(values: Sequence[float], step: float) -> float:
    """From one window to the next: corrected for the bias of few windows (Kendall 1954), then drawn to the usual."""
    count, mean, squares = len(values), _mean(values), _squares(values)
    found = 0.0
    if squares > 0:
        found = math.fsum((a - mean) * (b - mean) for a, b in pairwise(values)) / squares
    found = min(_MOST_CORRELATION, found + (1 + 3 * found) / count)
    usual: float = _USUAL_CORRELATION ** (step / _USUAL_STEP)
    return max(0.0, (found * count + usual * _CORRELATION_WEIGHT) / (count + _CORRELATION_WEIGHT))


def _variance(values: Sequence[float], independent: float) -> tuple[float, float]:
    """Of one window, with its degrees of freedom. Windows that are alike show less than the variance."""
    own = independent - 1
    seen = _squares(values) / len(values) / (1 - 1 / independent) if own > 0 else 0.0
    freedom = own + _VARIANCE_WEIGHT
    return (seen * own + _USUAL_VARIANCE * _VARIANCE_WEIGHT) / freedom, freedom
