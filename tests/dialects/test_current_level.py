"""The current level of a quantity: the last value, unless the last ones swing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.dialects.current_level import current_level


@pytest.mark.parametrize(
    ("values", "level", "note"),
    [
        ([5.0], 5.0, "the same in all 1 values"),
        ([0.0, 0.0, 0.0, 140.0], 140.0, "last value; of 4 values the mean is 35, the highest 140"),
        ([300.0, 280.0, 0.0], 0.0, "last value"),
        ([0.0, 300.0, 0.0], 100.0, "mean of the last 3 values"),
        ([2.0, 2.0, 2.0], 2.0, "the same in all 3 values"),
    ],
)
def test_the_last_value_counts_unless_the_last_three_swing(values: list[float], level: float, note: str) -> None:
    found, said = current_level(values, "count")
    assert found == pytest.approx(level)
    assert said.startswith(note)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40))
def test_it_depends_on_no_more_than_the_last_three(values: list[float]) -> None:
    level, _ = current_level(values, "count")
    assert level == current_level(values[-3:], "count")[0]
    assert min(values[-3:]) * (1 - 1e-9) <= level <= max(values[-3:]) * (1 + 1e-9)
