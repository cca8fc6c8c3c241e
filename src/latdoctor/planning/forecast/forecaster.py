"""From a history to a forecast: the usable steps, the choice of a method, the value and its .9 quantile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from latdoctor.evidence.model import Series
from latdoctor.planning.forecast import accuracy
from latdoctor.planning.forecast.backtest import Backtest, Split, backtest, is_too_short, split_of
from latdoctor.planning.forecast.candidates import Candidates, candidates_for, known_origins
from latdoctor.planning.forecast.open_hours import DAY, OpenSeries, open_series
from latdoctor.planning.forecast.rate_series import IntArray, RateSeries, on_grid
from latdoctor.planning.forecast.result import (
    BacktestPart,
    BacktestSplit,
    Forecast,
    HistoryNote,
    HistorySpan,
    Method,
    MethodScore,
    NoForecast,
    Standing,
)

LONGEST_AHEAD = 4 * 3600.0  # seconds
MOST_MISSING = 0.5  # share of the steps without a value from which a history is no basis
_NOTED_MISSING = 0.02
_WEEKS = 2  # from which the days of the week are known


@dataclass(frozen=True, slots=True)
class ForecastRequest:
    """What is asked: `ahead` seconds after the end of the history; `counts`: values are per step and become rates.

    `now`: where the target must not be past then.
    """

    source: str
    ahead: float
    unit: str = ""
    counts: bool = False
    now: float | None = None


def forecast(found: Sequence[Series], request: ForecastRequest) -> Forecast:
    """The forecast, or an answer that says why there is none."""
    empty = Forecast(source=request.source, unit=request.unit, ahead=request.ahead)
    series = on_grid(found, request.ahead)
    if series is None:
        return structs.replace(empty, no_forecast=NoForecast.EMPTY)
    if request.counts:
        series = replace(series, values=series.values / series.step)
    ahead = max(1, math.ceil(request.ahead / series.step - 1e-6))
    steps = open_series(series, ahead)
    answer = structs.replace(
        empty,
        ahead=ahead * series.step,
        history=_span(series, steps),
        at=series.end + ahead * series.step,
        last_value=float(series.values[-1]),
        notes=tuple(_notes(series, steps, ahead, request)),
        ignored=series.ignored,
        dropped=steps.dropped,
    )
    refusal = _unusable(series, steps, answer, request)
    split = split_of(steps)
    if split is None:
        lacking = NoForecast.SHORT if is_too_short(len(steps), ahead) else NoForecast.GAPS
        return structs.replace(answer, no_forecast=refusal or lacking)
    if refusal not in (None, NoForecast.CLOSED):
        return structs.replace(answer, no_forecast=refusal)
    answer = structs.replace(answer, no_forecast=refusal)
    candidates = candidates_for(steps, split.fit_end)
    return _answered(answer, series, steps, backtest(steps, split, candidates), candidates)


def _unusable(series: RateSeries, steps: OpenSeries, answer: Forecast, request: ForecastRequest) -> NoForecast | None:
    if request.now is not None and answer.at is not None and answer.at <= request.now:
        return NoForecast.STALE
    if np.isnan(steps.values).mean() > MOST_MISSING:
        return NoForecast.GAPS
    if float(np.nanmax(steps.values)) == float(np.nanmin(steps.values)):
        return NoForecast.CONSTANT
    if steps.closed and not _open_at(series, steps, steps.ahead):
        return NoForecast.CLOSED
    return None


def _open_at(series: RateSeries, steps: OpenSeries, ahead: int) -> bool:
    """Whether the step `ahead` after the end is the open step that methods forecast: no closing time is between."""
    if steps.places[-1] != len(series.values) - 1:
        return False
    per_day = round(DAY / series.step)
    slot = (steps.offset + len(steps) - 1) % steps.period
    if slot + ahead < steps.period:
        last, target = (round((series.end + step * series.step) % DAY / series.step) % per_day for step in (0, ahead))
        return target - last == ahead and steps.open_slots[slot + ahead] - steps.open_slots[slot] == ahead
    return steps.period == per_day


def _span(series: RateSeries, steps: OpenSeries) -> HistorySpan:
    return HistorySpan(
        series.start, series.end, series.step, len(steps), int(np.isnan(steps.values).sum()), steps.period
    )


def _notes(series: RateSeries, steps: OpenSeries, ahead: int, request: ForecastRequest) -> Iterator[HistoryNote]:
    if not steps.period:
        yield HistoryNote.NO_DAILY_SEASON
    elif len(steps) < _WEEKS * 7 * steps.period:
        yield HistoryNote.NO_WEEKLY_SEASON
    if steps.closed:
        yield HistoryNote.OPEN_HOURS
    if np.isnan(steps.values).mean() > _NOTED_MISSING:
        yield HistoryNote.GAPS
    if series.ignored:
        yield HistoryNote.IGNORED
    if steps.dropped:
        yield HistoryNote.DROPPED
    if ahead * series.step > request.ahead * 1.01:
        yield HistoryNote.LONGER


def _answered(
    answer: Forecast, series: RateSeries, steps: OpenSeries, found: Backtest, candidates: Candidates
) -> Forecast:
    unit = accuracy.naive_error(steps, found.split.choose_end)
    scores = _scores(steps, found, candidates, unit)
    own = next(one for one in scores if one.method is found.chosen)
    if answer.no_forecast is None:
        value = found.latest(np.array([len(steps) - 1]))
        planning = found.tested[found.chosen].now.of(value)
        answer = structs.replace(answer, value=float(value[0]), planning_value=float(planning[0]))
    return structs.replace(
        answer,
        method=found.chosen,
        mase=own.mase,
        pinball=own.pinball,
        coverage=own.coverage,
        mase_unit=unit if math.isfinite(unit) else None,
        mase_unit_of=Method.SEASONAL_NAIVE if steps.period else Method.LAST_VALUE,
        split=_split(series, steps, found.split),
        methods=tuple(scores),
    )


def _scores(steps: OpenSeries, found: Backtest, candidates: Candidates, unit: float) -> list[MethodScore]:
    """The scores of every method, the simplest first."""
    wanted = [steps.values[origins + steps.ahead] for origins in (found.split.choose, found.split.score)]
    last = accuracy.mean_absolute_error(wanted[1], found.tested[Method.LAST_VALUE].score)
    scores = []
    for method in Method:
        if method in candidates.not_tried:
            scores.append(MethodScore(method, Standing.NOT_TRIED, candidates.not_tried[method]))
            continue
        one = found.tested[method]
        error = accuracy.mean_absolute_error(wanted[1], one.score)
        scores.append(
            MethodScore(
                method,
                Standing.CHOSEN if method is found.chosen else Standing.NOT_BETTER,
                choose_mase=_ratio(accuracy.mean_absolute_error(wanted[0], one.choose), unit),
                mase=_ratio(error, unit),
                pinball=accuracy.pinball(wanted[1], one.score_upper),
                coverage=accuracy.coverage(wanted[1], one.score_upper),
                relative_to_last_value=_ratio(error, last),
            )
        )
    return scores


def _ratio(error: float, unit: float) -> float | None:
    return error / unit if unit > 0 and math.isfinite(unit) else None


def _split(series: RateSeries, steps: OpenSeries, split: Split) -> BacktestSplit:
    fit = known_origins(steps, split.fit_end)
    return BacktestSplit(*(_part(series, steps, origins) for origins in (fit, split.choose, split.score)))


def _part(series: RateSeries, steps: OpenSeries, origins: IntArray) -> BacktestPart:
    first, last = (steps.places[place + steps.ahead] for place in (origins[0], origins[-1]))
    return BacktestPart(series.time_of(int(first)), series.time_of(int(last)), len(origins))
