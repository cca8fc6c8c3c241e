"""What is measured in a window, and whether a series rises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.control.load_window import LoadWindow, QueueState
from latdoctor.lab.server.control.trend import FEWEST, trend
from latdoctor.lab.server.schedulers.batch import ReleaseReason


def test_only_the_window_counts() -> None:
    load = LoadWindow()
    for second in range(10):
        load.arrived(second, 100)
        load.answered(second, second / 10)
        load.shed(second)
        load.computed(second, 0.5, 4, ReleaseReason.TOKENS)
    found = load.measure(10.0, 4.0, 0.75, QueueState(3, 1.5))
    assert (found.arrivals, found.offered_tokens, found.answers, found.shed, found.batches) == (3, 300, 3, 3, 3)
    assert (found.late, found.p50, found.p99) == (2, 0.8, 0.9)
    assert (found.busy, found.batch_size, found.bound_by_tokens, found.bound_by_requests) == (0.375, 4.0, 1.0, 0.0)
    assert (found.age(12.0), found.missed, found.finished) == (3.0, 5, 6)


def test_nothing_was_measured() -> None:
    found = LoadWindow().measure(10.0, 4.0, 0.5, QueueState())
    assert (found.newest, found.finished, found.p99, found.busy) == (None, 0, 0.0, 0.0)
    assert found.age(11.0) == float("inf")


@given(st.lists(st.floats(0, 1), min_size=FEWEST, max_size=16, unique=True))
def test_a_series_and_its_reverse_have_opposite_trends(values: list[float]) -> None:
    forward = trend(list(enumerate(values)))
    backward = trend(list(enumerate(reversed(values))))
    assert forward is not None
    assert backward is not None
    assert forward.z == pytest.approx(-backward.z)
    assert forward.slope == pytest.approx(-backward.slope)


@pytest.mark.parametrize(
    ("values", "rises"),
    [
        ([0.1 + 0.01 * at for at in range(12)], True),
        ([0.1, 0.12, 0.09, 0.11, 0.1, 3.0, 0.1, 0.12, 0.1, 0.09, 0.11, 0.1], False),  # one spike
        ([0.1, 0.11] * 6, False),
    ],
)
def test_one_spike_is_no_rise(values: list[float], rises: bool) -> None:
    found = trend(list(enumerate(values)))
    assert found is not None
    assert (found.z > 2.33) is rises


def test_a_rise_is_extrapolated() -> None:
    found = trend([(second, 0.1 + 0.01 * second) for second in range(10)])
    assert found is not None
    assert found.ahead(10) == pytest.approx(0.28)
    assert trend([(0, 0.1)] * (FEWEST - 1)) is None
