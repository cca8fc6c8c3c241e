"""Samples at any times become one value a step, and what is missing stays missing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from latdoctor.evidence.model import Origin, Series
from latdoctor.planning.forecast import rate_series
from latdoctor.planning.forecast.rate_series import on_grid, within
from tests.planning.forecast.series import MONDAY, series


def at(times: list[float], values: list[float]) -> Series:
    return Series("arrival.rate", "service", tuple(times), tuple(values), Origin("test"))


def test_a_missing_sample_is_a_gap_and_not_a_zero() -> None:
    grid = on_grid([series([1.0, 2.0, math.nan, 4.0])], 900)
    assert grid is not None
    assert (grid.step, grid.missing, len(grid.values)) == (300.0, 1, 4)
    assert np.isnan(grid.values[2])


def test_a_history_of_which_most_samples_are_missing_keeps_its_step() -> None:
    values = np.where(np.random.default_rng(3).random(1000) < 0.7, math.nan, 5.0)
    grid = on_grid([series(values)], 900)
    assert grid is not None
    assert grid.step == 300.0


def test_finer_samples_become_means_of_whole_minutes() -> None:
    grid = on_grid([series(np.arange(16.0), step=15.0)], 900)
    assert grid is not None
    assert (grid.step, grid.start) == (60.0, MONDAY)
    assert grid.values.tolist() == [1.5, 5.5, 9.5, 13.5]


def test_finer_samples_stay_where_less_than_a_minute_ahead_is_forecast() -> None:
    grid = on_grid([series(np.arange(16.0), step=15.0)], 30)
    assert grid is not None
    assert grid.step == 15.0


def test_replicas_are_added_up_where_any_has_a_value() -> None:
    grid = on_grid([series([1.0, 2.0, 3.0]), series([10.0, math.nan, 30.0])], 900)
    assert grid is not None
    assert grid.values.tolist() == [11.0, 2.0, 33.0]


def test_negative_and_infinite_values_are_no_rates() -> None:
    grid = on_grid([series([1.0, -2.0, math.inf, 4.0, 5.0])], 900)
    assert grid is not None
    assert (grid.ignored, grid.missing) == (2, 2)


def test_steps_keep_their_own_minutes() -> None:
    times = [MONDAY + 240 + 300 * place for place in range(5)]
    grid = on_grid([at(times, [1.0, 2.0, 3.0, 4.0, 5.0])], 900)
    assert grid is not None
    assert (grid.start, grid.end) == (times[0], times[-1])


def test_times_that_jitter_fall_into_their_step() -> None:
    times = [MONDAY, MONDAY + 301, MONDAY + 599, MONDAY + 900, MONDAY + 1202]
    grid = on_grid([at(times, [1.0, 2.0, 3.0, 4.0, 5.0])], 900)
    assert grid is not None
    assert grid.values.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("values", [[], [3.0], [math.nan, 4.0], [-1.0, -2.0, -3.0]])
def test_fewer_than_two_samples_are_no_series(values: list[float]) -> None:
    assert on_grid([series(values)], 900) is None


def test_a_sample_of_another_age_does_not_make_a_grid_of_that_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_series, "MOST_STEPS", 50)
    far = [0.0, *(MONDAY + 300.0 * place for place in range(20))]
    grid = on_grid([at(far, [float(place) for place in range(21)])], 900)
    assert grid is not None
    assert (grid.start, len(grid.values)) == (MONDAY, 20)


def test_a_part_of_a_series_has_both_its_ends() -> None:
    kept = within(series([1.0, 2.0, 3.0, 4.0]), MONDAY + 300, MONDAY + 600)
    assert kept.values == (2.0, 3.0)
