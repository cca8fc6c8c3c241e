"""Each method on histories whose best forecast is known, and that none of them sees the future."""

from __future__ import annotations

import numpy as np
import pytest

from latdoctor.planning.forecast import accuracy, candidates
from latdoctor.planning.forecast.backtest import split_of
from latdoctor.planning.forecast.candidates import candidates_for, known_origins
from latdoctor.planning.forecast.open_hours import OpenSeries
from latdoctor.planning.forecast.rate_series import FloatArray
from latdoctor.planning.forecast.result import Method, NotTried
from tests.planning.forecast.series import DAY_STEPS, daily, noisy_days, opened, random_walk


@pytest.fixture(autouse=True)
def _few_training_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_FIRST_STEPS", 150)
    monkeypatch.setattr(candidates, "_FURTHER_STEPS", 10)


def errors(steps: OpenSeries, *without: Method) -> dict[Method, float]:
    """The mean absolute error of each method in the last part."""
    split = split_of(steps)
    assert split is not None
    wanted = steps.values[split.score + steps.ahead]
    return {
        method: accuracy.mean_absolute_error(wanted, learn(split.choose_end)(split.score))
        for method, learn in candidates_for(steps, split.fit_end).learn.items()
        if method not in without
    }


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("days", [1.5, 8])
def test_no_prediction_uses_a_value_after_its_origin(method: Method, days: float) -> None:
    """Of what was learned before the end, and of early origins, which have hardly a past."""
    values = noisy_days(8)[: int(days * DAY_STEPS)]
    end = int(0.6 * len(values))
    origins = np.array([0, 1, 20, end // 2, end - 1])
    predictions = []
    for later in (0.0, 5000.0):
        changed = values.copy()
        changed[end:] += later
        steps = opened(changed)
        learn = candidates_for(steps, end).learn
        if method not in learn:
            assert days < 2
            return
        predictions.append(learn[method](end)(origins))
    assert predictions[0] == pytest.approx(predictions[1], rel=1e-4)


@pytest.mark.parametrize("days", [1.5, 8])
def test_the_features_of_an_origin_know_no_later_value(days: float) -> None:
    values = noisy_days(8)[: int(days * DAY_STEPS)]
    origin = len(values) - 100
    changed = values.copy()
    changed[origin + 1 :] += 5000.0
    first, second = (candidates.features_of(opened(one)) for one in (values, changed))
    for name in ("matrix", "root", "base"):
        before, after = getattr(first, name), getattr(second, name)
        assert before[: origin + 1] == pytest.approx(after[: origin + 1]), name
    assert first.usual[: origin + 4] == pytest.approx(second.usual[: origin + 4])


def test_equal_days_are_forecast_exactly_by_all_that_know_the_day() -> None:
    found = errors(opened(daily(8)), Method.LSTM)
    assert found[Method.SEASONAL_NAIVE] == pytest.approx(0, abs=1e-9)
    assert found[Method.ETS] < 0.5
    assert found[Method.RIDGE] < 1
    assert found[Method.LAST_VALUE] > 3


def test_noise_around_equal_days_is_averaged_out() -> None:
    """The mean absolute deviation of a Poisson count from its mean is what no method can beat."""
    values = noisy_days(10)
    steps = opened(values)
    split = split_of(steps)
    assert split is not None
    best = np.abs(values - daily(10))[split.score + steps.ahead].mean()
    found = errors(steps)
    assert best < found[Method.RIDGE] < 1.1 * best
    assert found[Method.ETS] < 1.1 * best
    assert found[Method.LSTM] < 1.15 * best
    assert found[Method.SEASONAL_NAIVE] > 1.3 * best


def test_no_method_beats_the_last_value_on_a_random_walk() -> None:
    found = errors(opened(random_walk(2400), step=7 * 60.0))
    best = found.pop(Method.LAST_VALUE)
    assert Method.SEASONAL_NAIVE not in found
    assert min(found.values()) > 0.97 * best
    assert found[Method.ETS] < 1.1 * best


def test_a_level_that_moves_slowly_beside_the_daily_course_is_followed() -> None:
    """A day that is half as busy again is seen by its first hours: the profile alone would be far off."""
    level = np.repeat([1.0, 1.5, 0.8, 1.2, 0.7, 1.4, 1.0, 1.6, 0.9, 1.5], DAY_STEPS)
    values = daily(10) * level
    found = errors(opened(values), Method.LSTM)
    assert found[Method.RIDGE] < 0.5 * found[Method.SEASONAL_NAIVE]
    assert found[Method.ETS] < 0.5 * found[Method.SEASONAL_NAIVE]


def test_negative_rates_are_never_forecast() -> None:
    falling = np.maximum(200 - np.arange(1000.0), 0)
    steps = opened(falling, step=7 * 60.0)
    for learn in candidates_for(steps, 600).learn.values():
        assert learn(600)(steps.origins).min() >= 0


def predicted(values: FloatArray) -> FloatArray:
    steps = opened(values)
    end = int(0.8 * len(values))
    return candidates_for(steps, end).learn[Method.LSTM](end)(known_origins(steps, end)[-5:])


def test_the_lstm_gives_the_same_answer_each_time() -> None:
    assert predicted(noisy_days(6)).tolist() == predicted(noisy_days(6)).tolist()


@pytest.mark.parametrize(
    ("module", "method", "reason"),
    [
        ("torch", Method.LSTM, NotTried.TORCH_MISSING),
        ("statsmodels", Method.ETS, NotTried.STATSMODELS_MISSING),
    ],
)
def test_a_method_whose_package_is_missing_is_left_out_with_the_reason(
    module: str, method: Method, reason: NotTried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "find_spec", lambda name: None if name == module else object())
    found = candidates_for(opened(noisy_days(8)), 1500)
    assert found.not_tried == {method: reason}
    assert method not in found.learn


def test_a_short_history_is_not_given_to_methods_that_learn() -> None:
    found = candidates_for(opened(random_walk(120)), 72)
    assert found.learn.keys() == {Method.LAST_VALUE}
    assert found.not_tried == {
        Method.SEASONAL_NAIVE: NotTried.NO_DAILY_SEASON,
        **dict.fromkeys((Method.ETS, Method.RIDGE, Method.LSTM), NotTried.SHORT),
    }
