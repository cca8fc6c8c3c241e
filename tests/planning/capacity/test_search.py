"""The search for the limit on services with a known one."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.planning.capacity.fit import limit
from latdoctor.planning.capacity.level import Level, Trend, trend
from latdoctor.planning.capacity.search import SearchSettings, next_rate

SETTINGS = SearchSettings()
SECONDS = 20


def offered(rate: float, share: float, rng: Random) -> Level:
    """A level of which `share` of the requests are good."""
    blocks = []
    for _ in range(SECONDS):
        count = max(1, round(rate))
        blocks.append((sum(rng.random() < share for _ in range(count)), count))
    good, requests = sum(one for one, _ in blocks), sum(count for _, count in blocks)
    return Level(rate, SECONDS, requests, good, 0, 0.1, 0.4, tuple(blocks))


def searched(share: Callable[[float], float], seed: int, start: float = 5.0) -> list[Level]:
    levels: list[Level] = []
    rng = Random(seed)
    while (rate := next_rate(levels, start, SETTINGS)) is not None:
        levels.append(offered(rate, share(rate), rng))
    return levels


@settings(max_examples=15, deadline=None)
@given(st.floats(8, 900), st.integers(0, 1000))
def test_a_cliff_is_found_within_five_percent(edge: float, seed: int) -> None:
    levels = searched(lambda rate: 0.9995 if rate <= edge else 0.2, seed)
    found = limit(levels, SETTINGS.attainment)
    assert found.rate == pytest.approx(edge, rel=0.06)
    assert found.is_cliff
    assert found.first_failing is not None
    assert found.first_failing > found.rate
    assert len(levels) <= SETTINGS.most_levels


def test_a_slope_is_found_and_called_none() -> None:
    """The share falls from 1 at 50/s to .98 at 100/s, and to a half at 400/s."""

    def share(rate: float) -> float:
        return min(
            1.0, 1 - 0.02 * max(0.0, math.log2(rate / 50)), 1.0 if rate < 100 else 1.46 - 0.24 * math.log2(rate / 25)
        )

    found = limit(searched(share, 1), SETTINGS.attainment)
    assert 55 < found.rate < 90  # .99 is at 70.7
    assert not found.is_cliff


def test_the_interval_contains_the_edge_of_most_searches() -> None:
    edge, inside = 100.0, 0
    for seed in range(20):

        def share(rate: float) -> float:
            return 1 / (1 + math.exp((rate - 1.1 * edge) / (0.1 * edge / math.log(99))))  # .99 at the edge

        low, high = limit(searched(share, seed), SETTINGS.attainment).interval
        inside += low * 0.98 <= edge <= high * 1.02
    assert inside >= 15


def test_a_service_without_a_limit_is_at_least_what_was_offered() -> None:
    levels = searched(lambda _: 1.0, 0, start=1000)
    found = limit(levels, SETTINGS.attainment)
    assert found.first_failing is None
    assert found.rate == max(one.rate for one in levels) == SETTINGS.highest
    assert found.is_cliff is None


def test_a_service_that_never_meets_the_objective_has_no_limit() -> None:
    levels = searched(lambda _: 0.5, 0)
    assert limit(levels, SETTINGS.attainment).rate == 0
    assert min(one.rate for one in levels) == SETTINGS.lowest


def test_a_growing_queue_differs_from_a_noisy_one() -> None:
    rng = Random(3)
    assert trend([5 + rng.random() for _ in range(30)]) is Trend.STEADY
    assert trend([index + rng.random() for index in range(30)]) is Trend.GROWING
    assert trend([0.0] * 30) is Trend.STEADY
    assert trend([1.0, 2.0, 3.0]) is Trend.STEADY  # too few to say
