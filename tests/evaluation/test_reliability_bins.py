"""Calibration errors by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.evaluation.statistics import Prediction, bins, brier, ece, log_loss


def test_by_hand() -> None:
    said = [Prediction(0.9, right=True)] * 4 + [Prediction(0.9, right=False)]
    assert brier(said) == pytest.approx((4 * 0.01 + 0.81) / 5)
    assert ece(said) == pytest.approx(0.1)
    assert log_loss([Prediction(0.5, right=True)]) == pytest.approx(0.6931, abs=1e-4)


def test_a_sure_error_costs_much_and_not_everything() -> None:
    assert 9 < log_loss([Prediction(1.0, right=False)]) < 10


def test_bins_hold_equally_many() -> None:
    said = [Prediction(number / 100, right=number % 2 == 0) for number in range(100)]
    assert [one.of for one in bins(said)] == [10] * 10
    assert [one.of for one in bins(said[:12])] == [6, 6]
    assert [one.of for one in bins(said[:3])] == [3]


@given(st.lists(st.builds(Prediction, st.floats(0, 1), right=st.booleans()), min_size=1, max_size=80))
def test_what_holds_of_every_answer(said: list[Prediction]) -> None:
    assert 0 <= ece(said) <= 1
    assert 0 <= brier(said) <= 1
    assert sum(one.of for one in bins(said)) == len(said)
    assert ece(said) == pytest.approx(ece(said[::-1]))
    perfect = [Prediction(float(one.right), one.right) for one in said]
    assert brier(perfect) == ece(perfect) == 0
