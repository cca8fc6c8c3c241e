"""The choice of a method by rolling-origin backtest: every step of a part is forecast from the steps known before it.

The history is split in the order of time: methods learn from the first 60 %, the one with the lowest mean absolute
error in the next 20 % is chosen, and its accuracy is that in the last 20 %, which had no part in the choice. A simpler
method is kept unless another is at least 2 % better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from latdoctor.planning.forecast import accuracy
from latdoctor.planning.forecast.candidates import Candidates, Predict, known_origins
from latdoctor.planning.forecast.open_hours import OpenSeries
from latdoctor.planning.forecast.rate_series import FloatArray, IntArray
from latdoctor.planning.forecast.result import Method
from latdoctor.planning.forecast.upper_quantile import UpperQuantile, rolling_upper, upper_quantile

FIT, CHOOSE = 0.6, 0.8  # shares of the history at which the parts end
MARGIN = 0.02  # by which the error of a less simple method must be lower
FEWEST_SCORED = 10  # forecasts in each part


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Steps at which the first and the second part end, and the origins whose targets are in the last two."""

    fit_end: int
    choose_end: int
    choose: IntArray
    score: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    """One method's forecasts of both parts, the .9 quantile of those of the second, and that of a forecast now."""

    choose: FloatArray
    score: FloatArray
    score_upper: FloatArray
    now: UpperQuantile


@dataclass(frozen=True, slots=True, eq=False)
class Backtest:
    """Every method that was tried, and the chosen one. `latest` predicts with what was learned from all steps."""

    split: Split
    tested: Mapping[Method, Tested]
    chosen: Method
    latest: Predict


def is_too_short(count: int, ahead: int) -> bool:
    """Whether even `count` steps without a gap have too few forecasts to score."""
    return count - int(CHOOSE * count) - ahead < FEWEST_SCORED


def split_of(series: OpenSeries) -> Split | None:
    """None where a part has fewer than FEWEST_SCORED forecasts."""
    count = len(series)
    fit_end, choose_end = int(FIT * count), int(CHOOSE * count)
    targets = series.origins + series.ahead
    choose = series.origins[(targets >= fit_end + series.ahead) & (targets < choose_end)]
    score = series.origins[targets >= choose_end + series.ahead]
    if min(len(choose), len(score), len(known_origins(series, fit_end))) < FEWEST_SCORED:
        return None
    return Split(fit_end, choose_end, choose, score)


def backtest(series: OpenSeries, split: Split, candidates: Candidates) -> Backtest:
    """Test every candidate, choose one, and let it learn from the whole history."""
    origins = np.concatenate([split.choose, split.score])
    actual = series.values[origins + series.ahead]
    first = len(split.choose)
    tested = {}
    for method, learn in candidates.learn.items():
        early = learn(split.fit_end)(split.choose)
        late = learn(split.choose_end)(split.score)
        both = np.concatenate([early, late])
        upper = rolling_upper(origins, series.ahead, actual, both, first)
        tested[method] = Tested(early, late, upper, upper_quantile(actual, both))
    chosen = _chosen(actual[:first], tested)
    return Backtest(split, tested, chosen, candidates.learn[chosen](len(series)))


def _chosen(wanted: FloatArray, tested: Mapping[Method, Tested]) -> Method:
    """The simplest method of those within MARGIN of the lowest error; methods are listed by their simplicity."""
    errors = {method: accuracy.mean_absolute_error(wanted, one.choose) for method, one in tested.items()}
    limit = min(errors.values()) / (1 - MARGIN)
    return next(method for method in Method if method in errors and errors[method] <= limit)
