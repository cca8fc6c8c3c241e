"""Laws of the measures of accuracy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.planning.forecast import accuracy
from tests.planning.forecast.series import daily, opened, random_walk

VALUES = st.lists(st.floats(0, 1e6), min_size=20, max_size=200)


@given(VALUES, st.integers(1, 5))
def test_the_last_value_has_a_mase_of_one_in_the_part_that_gives_the_unit(values: list[float], ahead: int) -> None:
    steps = opened(np.asarray(values), ahead)
    origins = steps.origins
    error = accuracy.mean_absolute_error(steps.values[origins + ahead], steps.filled[origins])
    assert np.isclose(error, accuracy.naive_error(steps, len(steps)))


def test_the_seasonal_naive_forecast_gives_the_unit_where_a_day_is_known() -> None:
    values = random_walk(6 * 288)
    steps = opened(values)
    assert np.isclose(accuracy.naive_error(steps, len(steps)), np.abs(values[288:] - values[:-288]).mean())


def test_the_unit_knows_only_the_steps_before_its_end() -> None:
    values = random_walk(6 * 288)
    longer = np.concatenate([values, values * 9])
    assert accuracy.naive_error(opened(values), 1000) == accuracy.naive_error(opened(longer), 1000)


def test_equal_days_have_no_naive_error() -> None:
    assert np.isclose(accuracy.naive_error(opened(daily(4)), 4 * 288), 0)


@given(VALUES, st.floats(0.05, 0.95), st.floats(-1e6, 1e6))
def test_no_constant_has_a_lower_pinball_loss_than_the_quantile(
    values: list[float], level: float, other: float
) -> None:
    actual = np.asarray(values)
    best = np.full(len(actual), np.quantile(actual, level, method="inverted_cdf"))
    loss = accuracy.pinball(actual, best, level)
    assert loss <= accuracy.pinball(actual, np.full(len(actual), other), level) * (1 + 1e-9) + 1e-9


@given(VALUES)
def test_pinball_at_one_half_is_half_the_absolute_error(values: list[float]) -> None:
    actual, forecast = np.asarray(values), np.full(len(values), 10.0)
    assert np.isclose(
        accuracy.pinball(actual, forecast, 0.5), accuracy.mean_absolute_error(actual, forecast) / 2, atol=1e-9
    )


@given(VALUES, st.floats(1e-3, 1e3))
def test_accuracy_scales_with_the_unit_of_the_values(values: list[float], factor: float) -> None:
    actual, forecast = np.asarray(values), np.asarray(values[::-1])
    assert np.isclose(accuracy.pinball(actual * factor, forecast * factor), factor * accuracy.pinball(actual, forecast))
    assert accuracy.coverage(actual, actual) == 1.0
