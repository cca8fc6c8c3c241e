"""Measures of a forecast: MASE, pinball loss, coverage.

MASE (Hyndman and Koehler 2006) is the mean absolute error in units of what the seasonal naive forecast (the value a
day before) errs by in the part of the history that the method has learned from. Where no daily season is known, the
unit is the error of the last value at the same horizon there. The true q-quantile minimises the pinball loss at q.
"""

from __future__ import annotations

import numpy as np

from latdoctor.planning.forecast.open_hours import OpenSeries
from latdoctor.planning.forecast.rate_series import FloatArray

LEVEL = 0.9  # of the planning figure


def naive_error(series: OpenSeries, end: int) -> float:
    """The unit of MASE, from the steps before `end`; 0 where nothing varies, NaN without a pair of steps."""
    lag = series.period or series.ahead
    values = series.values[:end]
    differences = np.abs(values[lag:] - values[:-lag])
    known = differences[~np.isnan(differences)]
    return float(known.mean()) if len(known) else float("nan")


def mean_absolute_error(actual: FloatArray, forecast: FloatArray) -> float:
    return float(np.abs(actual - forecast).mean())


def pinball(actual: FloatArray, quantile: FloatArray, level: float = LEVEL) -> float:
    """The mean pinball loss of `quantile`, in the unit of the values."""
    above = actual - quantile
    return float(np.maximum(level * above, (level - 1) * above).mean())


def coverage(actual: FloatArray, quantile: FloatArray) -> float:
    """The share of values at or below their quantile."""
    return float((actual <= quantile).mean())
