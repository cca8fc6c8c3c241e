"""What a method may know at an origin: the recent past, the usual course of the day, and the time of the target.

Everything is in square roots, whose noise does not grow with the rate (arrivals are nearly Poisson), and causal: the
row of a step depends on values up to that step only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latdoctor.planning.forecast.daily_profile import profiles
from latdoctor.planning.forecast.open_hours import OpenSeries
from latdoctor.planning.forecast.rate_series import FloatArray

LAGS = 4
LONGEST = 512  # steps of the longest mean
HARMONICS = 6
_BASE, _OTHER = 3, 1  # columns of the profiles: that of the weekday, and of the last three days
_LONG = 2  # the column of most days


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """A row of `matrix` for each step as an origin.

    `root`: the square root of the values. `usual`: that of the daily profile, `ahead` steps longer; zero without a
    daily season. `base`: what deviations at the target are counted from: the profile there, or the last value.
    """

    matrix: FloatArray
    root: FloatArray
    usual: FloatArray
    base: FloatArray

    @property
    def deviation(self) -> FloatArray:
        return self.root - self.usual[: len(self.root)]


def features_of(series: OpenSeries) -> Features:
    """The features of each step of `series`."""
    root = np.sqrt(series.filled)
    count, ahead = len(root), series.ahead
    recent = [*(_lagged(root, lag) for lag in range(LAGS)), *_means(root)]
    if not series.period:
        return Features(np.column_stack(recent) - root[:, None], root, np.zeros(count + ahead), root)
    usual = _without_holes(profiles(series, np.sqrt(series.values)), root, ahead)
    target = usual[ahead:]
    columns = [
        *recent,
        *(target[:, place] - target[:, _BASE] for place in range(_BASE)),
        target[:, _BASE],
        *_means(root - usual[:count, _BASE]),
        *_means(root - usual[:count, _OTHER]),
        *_clock(series),
    ]
    return Features(np.column_stack(columns), root, usual[:, _BASE], target[:, _BASE])


def _without_holes(profile: FloatArray, root: FloatArray, ahead: int) -> FloatArray:
    """`profile` with the mean so far where no earlier day has that time."""
    so_far = np.cumsum(root) / np.arange(1, len(root) + 1)
    so_far = np.concatenate([np.full(ahead, so_far[0]), so_far])
    best = np.where(np.isnan(profile[:, _LONG]), so_far, profile[:, _LONG])
    return np.where(np.isnan(profile), best[:, None], profile)


def _lagged(values: FloatArray, lag: int) -> FloatArray:
    return np.concatenate([np.full(lag, values[0]), values[: len(values) - lag]])


def _means(values: FloatArray) -> list[FloatArray]:
    """Means of the last 2, 4, 8, … steps; of as many as there are at the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    found = []
    length = 2
    while length <= min(LONGEST, len(values) // 8):
        starts = np.maximum(ends - length, 0)
        found.append((sums[ends] - sums[starts]) / (ends - starts))
        length *= 2
    return found


def _clock(series: OpenSeries) -> list[FloatArray]:
    """Harmonics of the time of day of the target, and its day of the week."""
    target = np.arange(len(series)) + series.ahead + series.offset
    angle = 2 * np.pi * (target % series.period) / series.period
    waves = [wave(angle * number) for number in range(1, HARMONICS + 1) for wave in (np.sin, np.cos)]
    day = np.minimum(target // series.period, len(series.weekdays) - 1)
    weekday = series.weekdays[day]
    return waves + [(weekday == one).astype(float) for one in np.unique(series.weekdays)[1:]]
