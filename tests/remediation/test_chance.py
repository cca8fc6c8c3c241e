"""A shift beyond chance: laws of the statistic, and how often it errs on series that only vary."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.remediation.chance import Samples, effective, shift, student_tail

STEP = 5.0
LEVELS = st.lists(st.floats(0.01, 10.0), min_size=2, max_size=30)


def samples(values: list[float]) -> Samples:
    return Samples(tuple(values), STEP)


def autoregression(rng: random.Random, count: int, correlation: float, spread: float) -> list[float]:
    """Logarithms vary around 0 with the standard deviation `spread`."""
    at, found = rng.gauss(0, spread), []
    for _ in range(count):
        found.append(math.exp(at))
        at = correlation * at + rng.gauss(0, spread * math.sqrt(1 - correlation**2))
    return found


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [(0, 5, 0.5), (12.706, 1, 0.025), (4.303, 2, 0.025), (3.365, 5, 0.01), (2.764, 10, 0.01), (2.457, 30, 0.01)],
)
def test_student_tail_agrees_with_tables(t: float, freedom: int, tail: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(tail, rel=2e-3)


@given(LEVELS, LEVELS, st.floats(0.01, 100))
def test_shift_is_the_same_in_any_unit(before: list[float], after: list[float], factor: float) -> None:
    one = shift(samples(before), samples(after))
    other = shift(samples([x * factor for x in before]), samples([x * factor for x in after]))
    assert one is not None
    assert other is not None
    assert other.factor == pytest.approx(one.factor)
    assert other.p == pytest.approx(one.p, abs=1e-6)
    assert one.least <= one.factor <= one.most


@given(st.integers(1, 200), st.floats(0, 0.98))
def test_windows_alike_count_as_fewer(count: int, correlation: float) -> None:
    assert 1 <= effective(count, correlation) <= count + 1e-9


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_shift_is_unknown_beside_a_value_without_a_logarithm(value: float) -> None:
    assert shift(samples([1.0, 1.0]), samples([value, 1.0])) is None
    assert shift(samples([1.0, value]), samples([1.0, 1.0])) is None
    assert shift(samples([]), samples([1.0])) is None


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_chance_alone_is_rarely_below_its_limit(correlation: float) -> None:
    rng, below = random.Random(7), 0
    for _ in range(1000):
        series = autoregression(rng, 126, correlation, 0.5)
        found = shift(samples(series[:120]), samples(series[120:]))
        assert found is not None
        below += found.factor < 1 and found.p < 0.01
    assert below <= 20


def test_large_effect_is_beyond_chance_after_few_windows() -> None:
    rng = random.Random(7)
    found = shift(
        samples(autoregression(rng, 12, 0.5, 0.2)), samples([x / 8 for x in autoregression(rng, 6, 0.5, 0.2)])
    )
    assert found is not None
    assert found.p < 0.01
    assert found.factor == pytest.approx(1 / 8, rel=0.3)
