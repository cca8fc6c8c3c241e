"""Intervals against reference values, and properties of all intervals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.evaluation.statistics import at_most, bootstrap, mean, proportion


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [  # statsmodels.stats.proportion.proportion_confint(right, of, method="wilson")
        (8, 10, 0.4902, 0.9433),
        (0, 60, 0.0, 0.0602),
        (60, 60, 0.9398, 1.0),
        (1, 2, 0.0945, 0.9055),
        (95, 100, 0.8882, 0.9785),
    ],
)
def test_wilson(right: int, of: int, low: float, high: float) -> None:
    found = proportion(right, of)
    assert found.value == right / of
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_empty_sample_has_no_interval() -> None:
    assert proportion(0, 0).value is proportion(0, 0).low is None
    assert at_most(0, 0) is None
    assert bootstrap([], mean).value is None


@pytest.mark.parametrize(("seen", "of", "bound"), [(0, 60, 0.0487), (0, 1, 0.95), (1, 60, 0.0767), (5, 5, 1.0)])
def test_a_rate_is_bounded_from_above(seen: int, of: int, bound: float) -> None:
    """Of none seen that is 1 − 0.05^(1/n); the rule of three says 3/n. One of 60: binom.test of R, one-sided."""
    assert at_most(seen, of) == pytest.approx(bound, abs=2e-4)


@given(st.integers(1, 500).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_every_share_lies_within_its_interval(pair: tuple[int, int]) -> None:
    found = proportion(*pair)
    assert found.low is not None
    assert found.high is not None
    assert found.value is not None
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1


def test_the_bootstrap_is_the_same_every_time_and_holds_the_value() -> None:
    sample = [0.0] * 30 + [1.0] * 70
    found = bootstrap(sample, mean)
    assert found == bootstrap(sample, mean)
    assert found.value == 0.7
    assert found.low == pytest.approx(0.61, abs=0.03)
    assert found.high == pytest.approx(0.79, abs=0.03)
