"""The methods that compete, each as a function that learns from the steps before an end and then predicts any origin.

A prediction from an origin uses no value after it, whatever the method has learned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from latdoctor.planning.forecast import ridge
from latdoctor.planning.forecast.features import Features, features_of
from latdoctor.planning.forecast.open_hours import OpenSeries
from latdoctor.planning.forecast.rate_series import FloatArray, IntArray
from latdoctor.planning.forecast.result import Method, NotTried

Predict = Callable[[IntArray], FloatArray]
Learn = Callable[[int], Predict]

_FEWEST = 100  # origins from which more than a level can be learned
_FEWEST_LSTM = 1000
_FIRST_STEPS, _FURTHER_STEPS = 600, 200  # batches of the first training of the LSTM, and of each later one


@dataclass(frozen=True, slots=True)
class Candidates:
    """The methods that can be tried, and why the others cannot."""

    learn: Mapping[Method, Learn]
    not_tried: Mapping[Method, NotTried]


def candidates_for(series: OpenSeries, end: int) -> Candidates:
    """Those for a history of which the first part that is learned from has `end` steps."""
    known = int((series.origins + series.ahead < end).sum())
    learn: dict[Method, Learn] = {Method.LAST_VALUE: lambda end: lambda origins: series.filled[origins]}
    not_tried: dict[Method, NotTried] = {}
    if series.period and end > series.period:
        learn[Method.SEASONAL_NAIVE] = lambda end: lambda origins: _day_before(series, origins)
    else:
        not_tried[Method.SEASONAL_NAIVE] = NotTried.NO_DAILY_SEASON
    features = features_of(series) if known >= _FEWEST else None
    if features is None:
        not_tried |= dict.fromkeys((Method.ETS, Method.RIDGE, Method.LSTM), NotTried.SHORT)
        return Candidates(learn, not_tried)
    if find_spec("statsmodels") is None:
        not_tried[Method.ETS] = NotTried.STATSMODELS_MISSING
    else:
        learn[Method.ETS] = _ets(series, features)
    learn[Method.RIDGE] = _ridge(series, features)
    if find_spec("torch") is None:
        not_tried[Method.LSTM] = NotTried.TORCH_MISSING
    elif known < _FEWEST_LSTM:
        not_tried[Method.LSTM] = NotTried.SHORT
    else:
        learn[Method.LSTM] = _lstm(series, features, end)
    return Candidates(learn, not_tried)


def known_origins(series: OpenSeries, end: int) -> IntArray:
    """The origins whose target is before `end`."""
    origins = series.origins
    return origins[origins + series.ahead < end]


def _day_before(series: OpenSeries, origins: IntArray) -> FloatArray:
    """The value at the target's time a day before it; the last value where the history does not reach back."""
    places = origins + series.ahead - series.period
    return series.filled[[place if place >= 0 else origin for place, origin in zip(places, origins, strict=True)]]


def _ets(series: OpenSeries, features: Features) -> Learn:
    def learn(end: int) -> Predict:
        from latdoctor.planning.forecast.ets import EtsModel

        return EtsModel(features, series.ahead, end).predict

    return learn


def _ridge(series: OpenSeries, features: Features) -> Learn:
    def learn(end: int) -> Predict:
        origins = known_origins(series, end)
        model = ridge.fit(features, series.values[origins + series.ahead], origins)
        return lambda wanted: model.predict(features, wanted)

    return learn


def _lstm(series: OpenSeries, features: Features, end: int) -> Learn:
    from latdoctor.planning.forecast.lstm import LstmModel

    model = LstmModel(series, features, end)
    steps = [_FIRST_STEPS]

    def learn(end: int) -> Predict:
        origins = known_origins(series, end)
        model.train(series.values[origins + series.ahead], origins, steps.pop() if steps else _FURTHER_STEPS)
        return model.predict

    return learn
