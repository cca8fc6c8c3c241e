"""Which rate to offer next: doubling until a level fails, then halving the gap around the limit. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from latdoctor.planning.capacity.fit import limit
from latdoctor.planning.capacity.level import Level


class SearchSettings(Struct, frozen=True):
    """`attainment`: the share of requests within the SLO that a level needs. `precision`: the ratio of the lowest
    failing to the highest passing rate at which the search ends. `repeats`: levels at the estimate after that.
    Rates in requests per second.
    """

    attainment: float = 0.99
    precision: float = 1.06
    repeats: int = 3
    most_levels: int = 20
    lowest: float = 0.2
    highest: float = 5000.0


def next_rate(levels: Sequence[Level], start: float, settings: SearchSettings) -> float | None:
    """The rate of the next level; None: the limit is known as precisely as wanted, or there are enough levels."""
    if not levels:
        return start
    if len(levels) >= settings.most_levels:
        return None
    passed = [one.rate for one in levels if one.attainment >= settings.attainment]
    failed = [one.rate for one in levels if one.attainment < settings.attainment]
    if not failed:
        return _within(max(passed) * 2, max(passed), settings)
    if not passed:
        return _within(min(failed) / 2, min(failed), settings)
    estimate = limit(levels, settings.attainment, resamples=0)
    low = max((rate for rate in passed if rate <= estimate.rate), default=estimate.rate)
    high = estimate.first_failing or min(failed)
    if high / max(low, settings.lowest) > settings.precision:
        return math.sqrt(low * high)
    return _repeated(levels, estimate.rate, settings)


def _within(rate: float, last: float, settings: SearchSettings) -> float | None:
    """`rate` bounded by the settings; None where that was offered already."""
    bounded = min(max(rate, settings.lowest), settings.highest)
    return None if bounded == last else bounded


def _repeated(levels: Sequence[Level], rate: float, settings: SearchSettings) -> float | None:
    """A rate close to the limit, first on it and then on either side; None after enough of these."""
    near = sum(abs(math.log(one.rate / rate)) < math.log(settings.precision) for one in levels)
    wanted = settings.repeats + 2  # the last passing and the first failing are two of them
    if near >= wanted:
        return None
    side = (settings.precision - 1) / 2
    return rate * (1, 1 - side, 1 + side)[near % 3]
