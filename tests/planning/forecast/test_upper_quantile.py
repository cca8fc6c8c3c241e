"""The planning figure covers nine of ten values, whatever way the noise grows with the rate."""

from __future__ import annotations

import numpy as np
import pytest

from latdoctor.planning.forecast.accuracy import coverage
from latdoctor.planning.forecast.upper_quantile import RECENT, UpperQuantile, rolling_upper, upper_quantile


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_it_covers_nine_of_ten_at_every_rate_and_finds_how_the_noise_grows(power: float) -> None:
    random = np.random.default_rng(5)
    forecast = random.uniform(10, 1000, 8000)
    actual = np.maximum(forecast + random.normal(0, 1, 8000) * 0.3 * forecast**power, 0)
    assert upper_quantile(actual[:4000], forecast[:4000]).power == power
    later, upper = actual[4000:], rolling_upper(np.arange(8000), 3, actual, forecast, 4000)
    for low, high in ((10, 300), (300, 1000)):
        within = (forecast[4000:] >= low) & (forecast[4000:] < high)
        assert coverage(later[within], upper[within]) == pytest.approx(0.9, abs=0.025)


def test_errors_that_grow_are_followed() -> None:
    random = np.random.default_rng(6)
    forecast = np.full(6000, 500.0)
    actual = forecast + random.normal(0, 1, 6000) * np.repeat([10.0, 10.0, 40.0], 2000)
    upper = rolling_upper(np.arange(6000), 3, actual, forecast, 3000)
    assert coverage(actual[4000 + RECENT :], upper[1000 + RECENT :]) == pytest.approx(0.9, abs=0.025)
    assert coverage(actual[4000 : 4000 + RECENT], upper[1000 : 1000 + RECENT]) < 0.85


def test_a_quantile_knows_no_error_after_its_origin() -> None:
    random = np.random.default_rng(7)
    actual, forecast = random.poisson(100, 1000).astype(float), np.full(1000, 100.0)
    changed = actual.copy()
    changed[800:] += 500
    before, after = (rolling_upper(np.arange(1000), 5, one, forecast, 500) for one in (actual, changed))
    assert before[:305].tolist() == after[:305].tolist()
    assert before[340:].max() < after[340:].min()


def test_few_errors_give_the_largest_of_them() -> None:
    actual = np.array([1.0, 2.0, 3.0, 4.0, 9.0])
    found = upper_quantile(actual, np.full(5, 2.0))
    assert found.of(np.array([2.0])) == pytest.approx([9.0])


def test_it_is_never_negative() -> None:
    assert UpperQuantile(0.0, -50.0, 1e-9).of(np.array([10.0])).tolist() == [0.0]
