"""A jump of the arrival rate is detected, and noise is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.detectors.arrival_change import MIN_G, arrival_changes, sharpest
from latdoctor.evidence.model import Evidence, Origin, Reading, Series, Window


def jump(rates: list[float], step: float = 1.0) -> float | None:
    times = tuple(1000.0 + step * (number + 1) for number in range(len(rates)))
    series = Series("arrival.rate", "replica/0", times, tuple(rates), Origin("page", "x_total"))
    found = arrival_changes(Evidence(series=(series,))).readings
    return float(found[0].value) if found else None


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([20, 22, 19, 100, 101, 99, 100, 100], 4.92),
        ([20, 21, 20, 100, 100, 20, 20, 20, 20, 20], 4.97),  # a spike that is over
        ([100, 100, 100, 20, 20, 20], 1.0),  # a fall is no jump
        ([60, 66, 58, 61, 70, 55, 62, 64], 1.0),
        (([3, 2, 2, 1, 1] + [0] * 60) * 6, 1.0),  # a few together after each pause
        ([0, 0, 0, 50, 50, 50], 300.0),  # from nothing: half an arrival stands for none
    ],
)
def test_the_sharpest_change(rates: list[float], expected: float) -> None:
    assert jump(rates) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("rates", [[20.0, 100.0, 100.0], [1.0, 1.0, 1.0, 9.0, 9.0], [20.0, math.nan, 90.0, 90.0]])
def test_too_little_data_gives_nothing(rates: list[float]) -> None:
    assert jump(rates) is None


def test_the_length_of_the_steps_does_not_matter() -> None:
    assert jump([20, 20, 80, 80, 80], step=3.0) == pytest.approx(4.0)


def test_chance_brings_hardly_any_change() -> None:
    random = np.random.default_rng(11)
    false = sum(sharpest(list(map(float, random.poisson(60, 10))), [1.0] * 10)[2] > MIN_G for _ in range(2000))
    assert false <= 1


@given(st.lists(st.integers(1, 200), min_size=4, max_size=12), st.integers(2, 5))
def test_more_of_the_same_is_surer(counts: list[int], times: int) -> None:
    lengths = [1.0] * len(counts)
    weak = sharpest([float(count) for count in counts], lengths)[2]
    strong = sharpest([float(count * times) for count in counts], lengths)[2]
    assert strong == pytest.approx(weak * times, rel=1e-6, abs=1e-6)


def of_history(rates: list[float], *, judged: float) -> dict[str, Reading]:
    """Of an hour in steps of 30 s, of which the last `judged` seconds are the window of the reading."""
    times = tuple(3600.0 * 24 - 30 * (len(rates) - 1 - number) for number in range(len(rates)))
    origin, window = Origin("page"), Window(times[-1] - judged, times[-1])
    rate = Reading("arrival.rate", "replica/0", rates[-1], origin, window)
    series = Series("arrival.rate", "replica/0", times, tuple(rates), origin)
    return {one.signal: one for one in arrival_changes(Evidence(readings=(rate,), series=(series,))).readings}


def test_a_burst_before_the_judged_window_is_none() -> None:
    assert of_history([20.0] * 60 + [90.0] * 10 + [20.0] * 50, judged=300)["arrival.jump"].value == 1.0
    assert of_history([20.0] * 60 + [90.0] * 10 + [20.0] * 50, judged=3600)["arrival.jump"].value > 4


def test_a_burst_within_the_judged_window_is_dated_by_the_clock() -> None:
    jump = of_history([20.0] * 116 + [90.0] * 4, judged=300)["arrival.jump"]
    assert jump.value == pytest.approx(4.5)
    assert jump.note == "from 23:58:00 UTC on, and not over after 120 s"
    assert jump.window == Window(3600.0 * 24 - 300, 3600.0 * 24)


def test_existing_readings_are_not_derived_again() -> None:
    times = tuple(float(number) for number in range(1, 9))
    series = Series("arrival.rate", "replica/0", times, (20.0,) * 4 + (90.0,) * 4, Origin("page"))
    once = arrival_changes(Evidence(series=(series,)))
    assert not arrival_changes(Evidence(readings=once.readings, series=(series,))).readings


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([100, 100, 100, 20, 20, 20], 0.2),
        ([100, 100, 100, 0, 0, 0], 0.5 / 300),
        ([100, 101, 99, 30, 28, 100, 100, 102], 0.29),  # a hole
        ([20, 22, 19, 100, 101, 99, 100, 100], 1.0),
        ([20, 21, 20, 100, 100, 20, 20, 20, 20, 20], 1.0),  # after a burst the rate falls: the burst is the change
        ([60, 66, 58, 61, 70, 55, 62, 64], 1.0),
    ],
)
def test_a_fall_is_reported_too(rates: list[float], expected: float) -> None:
    series = Series("arrival.rate", "replica/0", tuple(map(float, range(1, len(rates) + 1))), tuple(rates), Origin("p"))
    found = {one.signal: one.value for one in arrival_changes(Evidence(series=(series,))).readings}
    assert found["arrival.drop"] == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("rates", "stays"),
    [
        pytest.param([20.0] * 10 + [100.0] * 12, 1.0, id="it-lasts-to-the-end"),
        pytest.param([20.0] * 10 + [100.0] * 11 + [40.0], 1.0, id="a-last-step-that-is-not-whole"),
        pytest.param([20.0] * 20 + [100.0] * 5, 0.0, id="it-has-just-begun"),
        pytest.param([20.0] * 10 + [100.0] * 12 + [20.0] * 4, 0.0, id="it-is-over"),
        pytest.param([20.0] * 400 + [100.0] * 15, 0.0, id="short-beside-the-whole-series"),
        pytest.param([20.0] * 10, None, id="no-rise"),
    ],
)
def test_a_rise_that_stays_is_no_spike(rates: list[float], stays: float | None) -> None:
    assert stay(rates) == stays


@pytest.mark.parametrize(
    ("later", "window", "stays"),
    [
        pytest.param(95.0, Window(1008.5, 1020.0), 1.0, id="another-source-shows-it-later"),
        pytest.param(20.0, Window(1008.5, 1020.0), 0.0, id="another-rate"),
        pytest.param(95.0, Window(1004.0, 1020.0), 0.0, id="a-window-that-began-before-the-rise"),
    ],
)
def test_a_later_measurement_continues_a_log(later: float, window: Window, stays: float) -> None:
    page = Reading("arrival.rate", "model/a", later, Origin("page"), window)
    assert stay([20.0] * 6 + [100.0] * 4, page) == stays


def stay(rates: list[float], *others: Reading) -> float | None:
    times = tuple(1001.0 + number for number in range(len(rates)))
    series = Series("arrival.rate", "server/a.log", times, tuple(rates), Origin("log"))
    found = arrival_changes(Evidence(readings=others, series=(series,))).readings
    return next((float(one.value) for one in found if one.signal == "arrival.jump_stays"), None)
