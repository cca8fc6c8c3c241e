"""The time in which a service is open, as one series without its nights: the step after closing time is opening time.

A bank's telephone line is open from 7 to 21 h on weekdays. Its history has nothing at other times, and there the rate
is not unknown but not defined. Without these times a day has as many steps as the service is open, and the step a day
before a Monday morning is the Friday morning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latdoctor.planning.forecast.rate_series import BoolArray, FloatArray, IntArray, RateSeries

DAY = 86_400.0  # seconds
_CLOSED = 0.1  # share of the days with a value below which a time of day is closed
_DAYS_TO_CLOSE = 3  # without so many days, a time without values is a gap
_MOST_CLOSINGS = 3  # times a day
_WEEK = 7
NEIGHBOURS = 3  # steps by which a day must be longer than a forecast, as the profile of a target has neighbours
MOST_STEPS = 50_000  # five weeks of minutes: older steps cost time and no longer resemble today


@dataclass(frozen=True, slots=True, eq=False)
class OpenSeries:
    """Values of the open steps in order of time, NaN where one is missing; `filled` has the last value there.

    `period`: open steps of a day, 0 where the history covers no two days. Step i is slot `(i + offset) % period` of the
    open day `(i + offset) // period`, whose day of the week is in `weekdays`. `ahead`: steps from an origin to its
    target.
    """

    values: FloatArray
    filled: FloatArray
    ahead: int
    period: int
    offset: int
    weekdays: IntArray
    places: IntArray  # of each step in the series with closed times
    open_slots: IntArray  # steps since midnight of each slot
    closed: bool = False  # whether some times were left out
    dropped: int = 0  # older steps, left out because there were more than MOST_STEPS

    def __len__(self) -> int:
        return len(self.values)

    @property
    def origins(self) -> IntArray:
        """Steps with a value whose target has one too."""
        last = len(self) - self.ahead
        known = ~np.isnan(self.values)
        return np.flatnonzero(known[:last] & known[self.ahead :])


def open_series(series: RateSeries, ahead: int) -> OpenSeries:
    """The open steps of `series`, for forecasts `ahead` steps later."""
    per_day = round(DAY / series.step)
    whole = abs(per_day * series.step - DAY) < 1e-6 * DAY
    count = len(series.values)
    if not whole or count < 2 * per_day or per_day < ahead + NEIGHBOURS:
        return _without_season(series, ahead)
    first_slot = round((series.start % DAY) / series.step) % per_day
    first_day = round((series.start - first_slot * series.step) / DAY)
    days = -(-(first_slot + count) // per_day)
    flat = np.full(days * per_day, np.nan)
    flat[first_slot : first_slot + count] = series.values
    table = flat.reshape(days, per_day)
    slots, rows = _open(table)
    kept = table[np.ix_(rows, slots)].ravel()
    places = (np.flatnonzero(rows)[:, None] * per_day + np.flatnonzero(slots)).ravel() - first_slot
    seen = np.flatnonzero(~np.isnan(kept))
    last = int(seen[-1])
    dropped = max(0, last - int(seen[0]) + 1 - MOST_STEPS)
    offset = int(seen[seen >= seen[0] + dropped][0])
    values, period = kept[offset : last + 1], int(slots.sum())
    if period < ahead + NEIGHBOURS:
        return _without_season(series, ahead)
    first = offset // period
    # 1970-01-01 was a Thursday, day 3 of the week
    weekdays = (np.flatnonzero(rows) + first_day + 3) % _WEEK
    closed = not (rows.all() and slots.all())
    return OpenSeries(
        values,
        _filled(values),
        ahead,
        period,
        offset - first * period,
        weekdays[first:],
        places[offset : last + 1],
        np.flatnonzero(slots),
        closed,
        dropped,
    )


def _without_season(series: RateSeries, ahead: int) -> OpenSeries:
    dropped = max(0, len(series.values) - MOST_STEPS)
    first = int(np.flatnonzero(~np.isnan(series.values[dropped:]))[0]) + dropped
    values, none = series.values[first:], np.empty(0, dtype=np.int64)
    places = np.arange(first, len(series.values))
    return OpenSeries(values, _filled(values), ahead, 0, 0, none, places, none, dropped=dropped)


def _open(table: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Which times of day (columns) and days (rows) are open."""
    seen = ~np.isnan(table)
    days = seen.any(axis=1)
    if days.sum() < _DAYS_TO_CLOSE:
        return np.ones(table.shape[1], dtype=bool), np.ones(table.shape[0], dtype=bool)
    slots = np.asarray(seen[days].mean(axis=0) >= _CLOSED)
    if np.count_nonzero(slots != np.roll(slots, 1)) > 2 * _MOST_CLOSINGS:
        slots = np.ones_like(slots)  # times at random are gaps
    return slots, np.asarray(seen[:, slots].any(axis=1))


def _filled(values: FloatArray) -> FloatArray:
    """The last recorded value at each step; the first one is recorded."""
    known = np.where(np.isnan(values), 0, np.arange(len(values)))
    return values[np.maximum.accumulate(known)]
