"""What is answered for good histories, and what for histories that are no basis."""

from __future__ import annotations

import math

import numpy as np
import pytest

from latdoctor.evidence.model import Series
from latdoctor.planning.forecast import candidates, open_hours
from latdoctor.planning.forecast.forecaster import ForecastRequest, forecast
from latdoctor.planning.forecast.result import Forecast, HistoryNote, Method, NoForecast, NotTried, Standing
from latdoctor.report.forecast import render_text
from tests.cli.test_one_screen import check
from tests.planning.forecast.series import DAY_STEPS, MONDAY, STEP, daily, noisy_days, random_walk, series


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The LSTM has its own tests, and takes seconds."""
    monkeypatch.setattr(candidates, "find_spec", lambda name: None if name == "torch" else object())


def answer(found: Series, ahead: float = 900.0, now: float | None = None, *, counts: bool = False) -> Forecast:
    return forecast([found], ForecastRequest("test", ahead, "/s", counts, now))


def test_a_daily_rise_is_foreseen_where_the_last_value_is_far_too_low() -> None:
    values = noisy_days(9)[: 8 * DAY_STEPS + 60]  # it ends at 5:00, where the rate rises most
    found = answer(series(values), 3600.0)
    assert found.method in (Method.ETS, Method.RIDGE)
    assert found.at == MONDAY + (8 * DAY_STEPS + 59 + 12) * STEP
    expected = daily(9)[8 * DAY_STEPS + 59 + 12]
    assert found.value == pytest.approx(expected, rel=0.08)
    assert found.value is not None
    assert found.last_value is not None
    assert found.last_value < 0.85 * found.value
    assert found.planning_value is not None
    assert found.value < found.planning_value < 1.4 * found.value


def test_the_accuracy_is_that_of_the_chosen_method() -> None:
    found = answer(series(noisy_days(8)))
    (chosen,) = (one for one in found.methods if one.standing is Standing.CHOSEN)
    assert (chosen.method, chosen.mase, chosen.pinball, chosen.coverage) == (
        found.method, found.mase, found.pinball, found.coverage,
    )  # fmt: skip
    assert [one.method for one in found.methods] == list(Method)
    assert found.coverage == pytest.approx(0.9, abs=0.05)
    last = found.methods[0]
    assert (last.method, last.relative_to_last_value) == (Method.LAST_VALUE, 1.0)


def test_the_lstm_is_left_out_with_the_reason_where_torch_is_missing() -> None:
    lstm = answer(series(noisy_days(8))).methods[-1]
    assert (lstm.method, lstm.not_tried, lstm.mase) == (Method.LSTM, NotTried.TORCH_MISSING, None)


def test_the_parts_of_the_split_follow_each_other() -> None:
    split = answer(series(noisy_days(8))).split
    assert split is not None
    assert split.fit.start < split.fit.end < split.choose.start < split.choose.end < split.score.start
    assert split.score.end == MONDAY + (8 * DAY_STEPS - 1) * STEP
    assert split.fit.forecasts == pytest.approx(0.6 * 8 * DAY_STEPS, abs=10)


def test_counts_are_printed_as_rates_and_have_the_same_mase() -> None:
    values = noisy_days(6)
    rates, counts = answer(series(values)), answer(series(values), counts=True)
    assert counts.value is not None
    assert rates.value == pytest.approx(counts.value * STEP, rel=1e-6)
    assert rates.mase == pytest.approx(counts.mase, rel=1e-6)
    assert rates.method is counts.method


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], NoForecast.EMPTY),
        ([5.0], NoForecast.EMPTY),
        (random_walk(40), NoForecast.SHORT),
        ([7.0] * 1000, NoForecast.CONSTANT),
        ([0.0] * 1000, NoForecast.CONSTANT),
        (
            np.where(np.arange(1000) < 600, random_walk(1000), np.where(np.arange(1000) < 800, np.nan, 5.0)),
            NoForecast.GAPS,
        ),
        (np.where(np.random.default_rng(3).random(1000) < 0.7, np.nan, random_walk(1000)), NoForecast.GAPS),
    ],
)
def test_a_history_that_is_no_basis_is_answered_with_the_reason(values: list[float], reason: NoForecast) -> None:
    found = answer(series(values))
    assert (found.no_forecast, found.value, found.planning_value, found.method) == (reason, None, None, None)


ZEROS, NOISE = np.zeros(600), np.random.default_rng(8).poisson(20, 600).astype(float)
DEGENERATE = {
    "zeros, then noise": np.concatenate([ZEROS, NOISE[:264]]),
    "noise, then zeros": np.concatenate([NOISE[:264], ZEROS]),
    "one request": np.concatenate([ZEROS, [100.0], ZEROS]),
    "a first request at the end": np.concatenate([ZEROS, [100.0]]),
    "a step": np.concatenate([ZEROS + 5, ZEROS + 9]),
    "two values": np.random.default_rng(9).integers(0, 2, 864).astype(float),
    "a straight line": np.arange(864.0),
    "growth without an end": np.exp(np.arange(864) / 60),
    "huge values": 1e15 * NOISE,
    "tiny values": 1e-15 * NOISE,
    "a long gap": np.concatenate([NOISE, np.full(50, np.nan), NOISE]),
    "every second day": np.where(np.arange(8 * DAY_STEPS) // DAY_STEPS % 2 == 0, noisy_days(8), np.nan),
    "some minutes a day": np.where(np.arange(60 * DAY_STEPS) % DAY_STEPS < 8, noisy_days(60), np.nan),
}


@pytest.mark.parametrize("ahead", [300.0, 900.0, 4 * 3600.0])
@pytest.mark.parametrize("name", DEGENERATE)
def test_an_odd_history_has_a_finite_forecast_or_a_reason_and_no_warning(name: str, ahead: float) -> None:
    found = answer(series(DEGENERATE[name]), ahead)
    numbers = [found.value, found.planning_value, found.mase, found.pinball, found.coverage]
    assert all(one is None or (math.isfinite(one) and one >= 0) for one in numbers)
    assert (found.value is None) is (found.no_forecast is not None)
    check(render_text(found))


def test_a_closed_time_has_no_forecast_but_the_accuracy_within_opening_hours() -> None:
    open_day = np.full(DAY_STEPS, np.nan)
    open_day[84:252] = daily(1)[84:252]
    noise = np.random.default_rng(4).poisson(20, 8 * DAY_STEPS)
    values = (np.tile(open_day, 8) + noise)[: 7 * DAY_STEPS + 252]
    closed = answer(series(values))
    assert (closed.no_forecast, closed.value) == (NoForecast.CLOSED, None)
    assert closed.mase is not None
    assert HistoryNote.OPEN_HOURS in closed.notes
    earlier = answer(series(values[:-3]))
    assert (earlier.no_forecast, earlier.at) == (None, MONDAY + (7 * DAY_STEPS + 251) * STEP)


def test_a_history_that_ended_too_long_ago_has_no_forecast() -> None:
    found, end = series(noisy_days(6)), MONDAY + (6 * DAY_STEPS - 1) * STEP
    assert answer(found, now=end + 901).no_forecast is NoForecast.STALE
    assert answer(found, now=end + 600).no_forecast is None


def test_a_short_history_says_that_a_daily_rise_is_not_foreseen() -> None:
    found = answer(series(random_walk(400)))
    assert found.no_forecast is None
    assert HistoryNote.NO_DAILY_SEASON in found.notes
    assert found.history is not None
    assert found.history.open_steps_a_day == 0
    assert found.mase_unit_of is Method.LAST_VALUE


@pytest.mark.parametrize(("days", "noted"), [(8, True), (15, False)])
def test_less_than_two_weeks_are_said_not_to_show_the_week(days: int, noted: bool) -> None:
    assert (HistoryNote.NO_WEEKLY_SEASON in answer(series(noisy_days(days))).notes) is noted


def test_gaps_ignored_samples_and_a_longer_time_are_said() -> None:
    values = noisy_days(6)
    values[700:800] = np.nan
    values[900] = -1
    found = answer(series(values), 700.0)
    assert {HistoryNote.GAPS, HistoryNote.IGNORED, HistoryNote.LONGER} <= set(found.notes)
    assert (found.ignored, found.ahead) == (1, 900.0)
    assert found.history is not None
    assert found.history.missing == 101


def test_older_steps_that_were_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_hours, "MOST_STEPS", 1000)
    found = answer(series(noisy_days(6)))
    assert HistoryNote.DROPPED in found.notes
    assert (found.dropped, found.history.steps if found.history else 0) == (6 * DAY_STEPS - 1000, 1000)
