"""Synthetic histories whose best forecast is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latdoctor.evidence.model import Origin, Series
from latdoctor.planning.forecast.open_hours import OpenSeries, open_series
from latdoctor.planning.forecast.rate_series import FloatArray, on_grid

MONDAY = 1_790_553_600.0  # 2026-09-28 00:00 UTC
STEP = 300.0
DAY_STEPS = 288


def series(values: Sequence[float] | FloatArray, step: float = STEP, start: float = MONDAY) -> Series:
    """One value a step; a NaN is a missing sample."""
    kept = [(start + step * place, float(one)) for place, one in enumerate(values) if not np.isnan(one)]
    return Series(
        "arrival.rate", "service", tuple(time for time, _ in kept), tuple(one for _, one in kept), Origin("test")
    )


def opened(values: FloatArray, ahead: int = 3, step: float = STEP, start: float = MONDAY) -> OpenSeries:
    grid = on_grid([series(values, step, start)], ahead * step)
    assert grid is not None
    return open_series(grid, ahead)


def daily(days: int, *, low: float = 20.0, high: float = 200.0) -> FloatArray:
    """The same smooth day again and again."""
    angle = 2 * np.pi * np.arange(days * DAY_STEPS) / DAY_STEPS
    return low + (high - low) * (1 - np.cos(angle)) / 2


def random_walk(count: int, seed: int = 1) -> FloatArray:
    """Of which the last value is the best forecast."""
    steps = np.random.default_rng(seed).normal(0, 1, count)
    return np.maximum(500 + np.cumsum(steps), 0)


def noisy_days(days: int, seed: int = 2) -> FloatArray:
    """Poisson counts around the daily course: the profile is the best forecast."""
    return np.random.default_rng(seed).poisson(daily(days)).astype(float)
