"""When sampled sources look: over the whole window, a bounded number of times, never back in time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.base import sampling_moments, sampling_offsets


class Clock:
    """Each reading of the time costs `cost` seconds, as a slow source does."""

    def __init__(self, cost: float = 0.0) -> None:
        self.time = 1000.0
        self.cost = cost

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += seconds

    def work(self) -> None:
        self.time += self.cost


@given(st.floats(0, 1e6), st.integers(2, 601))
def test_the_window_is_covered_and_the_number_bounded(window: float, most: int):
    planned = sampling_offsets(window, 0.5, most)
    assert planned[0] == 0
    assert planned[-1] == pytest.approx(window)
    assert list(planned) == sorted(planned)
    assert len(planned) <= most
    if most == 601 and 1 <= window <= 300:
        assert all(0.3 <= after - before <= 1 for before, after in pairwise(planned))


@given(st.floats(0, 100), st.floats(0, 30))
def test_a_slow_source_is_sampled_less_often_and_not_for_longer(window: float, cost: float):
    clock = Clock(cost)
    seen = []
    for moment in sampling_moments(clock, window, 0.5, 601):
        seen.append(moment)
        clock.work()
    assert [moment.time for moment in seen] == sorted(moment.time for moment in seen)
    assert seen[0].time == 1000
    assert seen[0].at_end
    assert seen[-1].at_end
    assert sum(moment.at_end for moment in seen) == (1 if window <= 0 else 2)
    assert seen[-1].time <= 1000 + window + cost + 0.5 + 1e-6


def test_a_clock_set_back_does_not_turn_the_order():
    clock = Clock()
    times = []
    for moment in sampling_moments(clock, 4.0, 1.0, 10):
        times.append(moment.time)
        if len(times) == 3:
            clock.time -= 500
    assert times == [1000, 1001, 1002, 1003, 1004]
    assert clock.time == 504
