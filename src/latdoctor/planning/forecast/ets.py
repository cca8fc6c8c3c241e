"""Exponential smoothing with a damped additive trend (statsmodels) of what is left beside the daily profile.

A seasonal ETS model would estimate an initial state for each of up to 1,440 steps of a day; so the profile is taken off
first, as in STL with ETS.
"""

from __future__ import annotations

import warnings

import numpy as np
from statsmodels.tools.sm_exceptions import ConvergenceWarning
from statsmodels.tsa.exponential_smoothing.ets import ETSModel

from latdoctor.planning.forecast.features import Features
from latdoctor.planning.forecast.rate_series import FloatArray, IntArray

_CONSTANT = 1e-12
_FITTED = 2000  # steps, the last ones: four parameters need no more


class EtsModel:
    """Smoothing parameters that are estimated before `end`; the states of every later step follow from the values."""

    def __init__(self, features: Features, ahead: int, end: int) -> None:
        deviation = features.deviation
        recent = deviation[max(0, end - _FITTED) : end]
        if np.ptp(recent) < _CONSTANT:  # no parameters can be estimated: the last deviation stays
            self._root = features.usual[ahead:] + deviation
            return
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)  # the backtest shows whether the estimate is any good
            fitted = _model(recent).fit(disp=False, maxiter=200)
        states = _model(deviation).smooth(fitted.params)
        damping = float(fitted.params[2])
        reach = sum(damping**step for step in range(1, ahead + 1))
        self._root = features.usual[ahead:] + np.asarray(states.level) + reach * np.asarray(states.slope)

    def predict(self, origins: IntArray) -> FloatArray:
        root: FloatArray = self._root[origins]
        return np.square(np.maximum(root, 0.0))


def _model(values: FloatArray) -> ETSModel:
    return ETSModel(values, error="add", trend="add", damped_trend=True)
