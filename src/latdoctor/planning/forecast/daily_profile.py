"""What a time of day was like on earlier days: causal, so that the profile of a step knows no later step.

The profile of a step is the mean of the same time on up to `DAYS` earlier open days, smoothed over its neighbours, and
on up to `WEEKS` earlier days of the same weekday.
"""

from __future__ import annotations

import numpy as np

from latdoctor.planning.forecast.open_hours import OpenSeries
from latdoctor.planning.forecast.rate_series import FloatArray, IntArray

DAYS = (1, 3, 10)
WEEKS = 4
SMOOTH = 2  # neighbouring steps on either side


def profiles(series: OpenSeries, level: FloatArray) -> FloatArray:
    """A row for each step of the series and `ahead` steps beyond it: one column for each of DAYS, and the weekday's.

    `level` are its (transformed) values with NaN for gaps. NaN in the result: no earlier day has that time.
    """
    period, count = series.period, len(level) + series.ahead
    days = -(-(series.offset + count) // period)
    table = np.full(days * period, np.nan)
    table[series.offset : series.offset + len(level)] = level
    table = _smoothed(table.reshape(days, period))
    columns = [_before(table, number) for number in DAYS]
    columns.append(_weekday(table, _weekdays(series, days)))
    flat = np.column_stack([column.ravel() for column in columns])
    return flat[series.offset : series.offset + count]


def _weekdays(series: OpenSeries, days: int) -> IntArray:
    """The day of the week of each row; a forecast may reach into one more day, taken to be the next open one."""
    known = [int(day) for day in series.weekdays[:days]]
    usual = sorted(set(known))
    while len(known) < days:
        known.append(usual[(usual.index(known[-1]) + 1) % len(usual)])
    return np.asarray(known)


def _smoothed(table: FloatArray) -> FloatArray:
    """The mean of the neighbouring steps of the same day. Those of closing and opening time have fewer."""
    period = table.shape[1]
    sums, counts = np.zeros_like(table), np.zeros_like(table)
    known, seen = np.nan_to_num(table), ~np.isnan(table)
    for shift in range(-min(SMOOTH, period - 1), min(SMOOTH, period - 1) + 1):
        to, source = slice(max(0, -shift), period - max(0, shift)), slice(max(0, shift), period + min(0, shift))
        sums[:, to] += known[:, source]
        counts[:, to] += seen[:, source]
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _before(table: FloatArray, number: int) -> FloatArray:
    """The mean of up to `number` earlier rows that have a value."""
    seen = ~np.isnan(table)
    sums = np.vstack([np.zeros(table.shape[1]), np.cumsum(np.nan_to_num(table), axis=0)])
    counts = np.vstack([np.zeros(table.shape[1]), np.cumsum(seen, axis=0)])
    rows = np.arange(len(table))
    first = np.maximum(rows - number, 0)
    total, seen_count = sums[rows] - sums[first], counts[rows] - counts[first]
    return np.where(seen_count > 0, total / np.maximum(seen_count, 1), np.nan)


def _weekday(table: FloatArray, weekdays: IntArray) -> FloatArray:
    found = np.full_like(table, np.nan)
    for day in np.unique(weekdays):
        rows = np.flatnonzero(weekdays == day)
        found[rows] = _before(table[rows], WEEKS)
    return found
