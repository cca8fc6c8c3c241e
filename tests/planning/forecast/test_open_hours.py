"""Nights, weekends and holidays without values are left out; a gap within opening hours is not."""

from __future__ import annotations

import numpy as np
import pytest

from latdoctor.planning.forecast import open_hours
from latdoctor.planning.forecast.rate_series import FloatArray
from tests.planning.forecast.series import DAY_STEPS, daily, opened

OPEN = slice(84, 252)  # 7:00 to 21:00 in steps of 5 minutes


def bank(days: int) -> FloatArray:
    """A value for the number of the day and the step, open 7 to 21 h from Monday to Friday."""
    values = np.full((days, DAY_STEPS), np.nan)
    for day in range(days):
        if day % 7 < 5:
            values[day, OPEN] = 1000 * day + np.arange(DAY_STEPS)[OPEN]
    return values.ravel()


def test_a_day_has_as_many_steps_as_it_is_open() -> None:
    steps = opened(bank(12))
    assert (steps.period, steps.closed) == (168, True)
    assert not np.isnan(steps.values).any()
    assert len(steps) == 10 * 168


def test_the_step_a_day_before_monday_is_on_friday() -> None:
    steps = opened(bank(12))
    monday = 5 * 168 + 10
    assert steps.values[monday] == 7000 + 94
    assert steps.values[monday - steps.period] == 4000 + 94
    assert steps.weekdays.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_every_step_knows_its_place_in_time() -> None:
    values = bank(12)
    steps = opened(values)
    first = int(np.flatnonzero(~np.isnan(values))[0])
    assert values[steps.places + first].tolist() == steps.values.tolist()


def test_a_history_that_begins_at_noon_has_the_right_time_of_day() -> None:
    steps = opened(bank(12)[144:], start=1_790_553_600.0 + 144 * 300)
    assert steps.offset == 144 - 84
    assert (steps.values[0], steps.values[168 - steps.offset]) == (144, 1000 + 84)


def test_a_gap_within_opening_hours_is_filled_with_the_value_before_it_but_not_scored() -> None:
    values = daily(4)
    values[500:510] = np.nan
    steps = opened(values)
    assert not steps.closed
    assert steps.filled[505] == values[499]
    assert not set(range(497, 510)) & set(steps.origins.tolist())


def test_samples_missing_at_random_do_not_close_times_of_day() -> None:
    values = np.where(np.random.default_rng(3).random(4 * DAY_STEPS) < 0.7, np.nan, daily(4))
    steps = opened(values)
    assert (steps.closed, steps.period) == (False, DAY_STEPS)


def test_a_service_that_never_closes_keeps_every_step() -> None:
    steps = opened(daily(4))
    assert (steps.period, len(steps), steps.closed) == (DAY_STEPS, 4 * DAY_STEPS, False)


@pytest.mark.parametrize("count", [100, 2 * DAY_STEPS - 1])
def test_less_than_two_days_have_no_daily_season(count: int) -> None:
    assert opened(daily(3)[:count]).period == 0


def test_a_step_that_does_not_divide_a_day_has_no_daily_season() -> None:
    assert opened(np.arange(5000.0), step=7 * 60.0).period == 0


def test_a_forecast_as_long_as_a_day_has_no_daily_season() -> None:
    assert opened(np.arange(100.0), ahead=3, step=6 * 3600.0).period == 0


def test_only_the_last_steps_of_a_long_history_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_hours, "MOST_STEPS", 500)
    steps = opened(bank(12))
    assert (len(steps), steps.dropped) == (500, 10 * 168 - 500)
    assert steps.values[-1] == 11000 + 251
    assert steps.offset + len(steps) == 3 * 168  # the first of the three days is a part
    assert steps.weekdays.tolist() == [2, 3, 4]
