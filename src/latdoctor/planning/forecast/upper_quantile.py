"""The .9 quantile of a forecast from the errors that the same method made before (split conformal prediction).

Errors grow with the rate, as those of counts with its square root or those of a mix of clients in proportion to it: the
power by which they are divided is the one with the lowest pinball loss. The last RECENT of them count, because the
errors of a service change: on two series with a drift that covers .89 and .90, and all errors together .85 and .77.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latdoctor.planning.forecast.accuracy import LEVEL, pinball
from latdoctor.planning.forecast.rate_series import FloatArray, IntArray

RECENT = 200
_AT_ONCE = 20  # forecasts that share the errors known at the first of them
_POWERS = (0.0, 0.5, 1.0)
_FLOOR = 0.01  # of the mean forecast: below it errors do not shrink further


@dataclass(frozen=True, slots=True)
class UpperQuantile:
    """`factor` times the forecast to the `power`, added to the forecast; `floor` is the least forecast for that."""

    power: float
    factor: float
    floor: float

    def of(self, forecast: FloatArray) -> FloatArray:
        return np.maximum(forecast + self.factor * _scale(forecast, self.power, self.floor), 0.0)


def upper_quantile(actual: FloatArray, forecast: FloatArray) -> UpperQuantile:
    """Calibrated on the last RECENT of these forecasts; all of them show how errors grow with the rate."""
    floor = max(_FLOOR * float(forecast.mean()), 1e-9)
    found = []
    for power in _POWERS:
        errors = (actual - forecast) / _scale(forecast, power, floor)
        loss = pinball(actual, UpperQuantile(power, _factor(errors), floor).of(forecast))
        found.append((loss, UpperQuantile(power, _factor(errors[-RECENT:]), floor)))
    return min(found, key=lambda pair: pair[0])[1]


def rolling_upper(origins: IntArray, ahead: int, actual: FloatArray, forecast: FloatArray, first: int) -> FloatArray:
    """The quantile of each forecast from number `first` on, from errors whose targets are known at its origin."""
    form = upper_quantile(actual[:first], forecast[:first])
    errors = (actual - forecast) / _scale(forecast, form.power, form.floor)
    upper = np.empty(len(forecast) - first)
    for start in range(first, len(forecast), _AT_ONCE):
        known = int(np.searchsorted(origins, origins[start] - ahead, side="right"))
        one = UpperQuantile(form.power, _factor(errors[max(0, known - RECENT) : known]), form.floor)
        upper[start - first : start - first + _AT_ONCE] = one.of(forecast[start : start + _AT_ONCE])
    return upper


def _factor(errors: FloatArray) -> float:
    """The finite-sample quantile of split conformal prediction (Lei et al. 2018)."""
    return float(np.quantile(errors, min(1.0, LEVEL * (1 + 1 / len(errors)))))


def _scale(forecast: FloatArray, power: float, floor: float) -> FloatArray:
    return np.power(np.maximum(forecast, floor), power)
