"""The limit that a measurement finds, against every rate of a fine grid simulated for hours."""

from __future__ import annotations

import math
from random import Random

import pytest

from latdoctor.planning.capacity.fit import limit
from latdoctor.planning.capacity.level import Level
from latdoctor.planning.capacity.queue_model import Discipline, QueueModel
from latdoctor.planning.capacity.search import SearchSettings, next_rate

SLO = 0.3
SETTINGS = SearchSettings()
SECONDS = 30
GRID = 1.02  # ratio of two rates of the grid
SPEEDS = ((1, 60.0), (2, 100.0), (4, 150.0), (8, 180.0))
MODELS = {
    "sharing": QueueModel(SPEEDS, (0.5, 0.5, 0.5, 2.5), math.inf, Discipline.SHARING),
    "batches": QueueModel(SPEEDS, (0.5, 0.5, 0.5, 2.5), 8, Discipline.BATCHES),
    "one by one": QueueModel(((1, 60.0),), (0.5, 0.5, 0.5, 2.5), 1, Discipline.SHARING),
}


def measured(model: QueueModel, rate: float, rng: Random) -> Level:
    """A level of open-loop load on the simulated server, second by second."""
    server, at, took = model.server(), 0.0, []
    blocks = []
    for second in range(SECONDS):
        done = []
        while (following := at + rng.expovariate(rate)) < second + 1:
            at = following
            done += server.advance(at)
            server.arrive(rng.choice(model.sizes))
        at = float(second + 1)
        done += server.advance(at) if second < SECONDS - 1 else server.advance(math.inf)
        blocks.append((sum(one <= SLO for one in done), len(done)))
        took += done
    took.sort()
    good = sum(good for good, _ in blocks)
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    return Level(rate, SECONDS, len(took), good, 0, p50, p99, tuple(one for one in blocks if one[1]))


def brute_force(model: QueueModel) -> float:
    """The highest rate of the grid at which 99 % of fifty thousand requests are good."""
    rate = model.capacity
    while model.attainment(rate, SLO, seed=1, requests=50_000) < SETTINGS.attainment:
        rate /= GRID
    return rate


@pytest.mark.parametrize("name", MODELS)
def test_measured_limit_is_that_of_a_brute_force_search(name: str) -> None:
    model, found = MODELS[name], []
    for seed in range(3):
        rng, levels = Random(seed), list[Level]()
        while (rate := next_rate(levels, 10.0, SETTINGS)) is not None:
            levels.append(measured(model, rate, rng))
        assert all(one.attainment == one.good / one.requests for one in levels)
        found.append(limit(levels, SETTINGS.attainment, seed).rate)
    assert sorted(found)[1] == pytest.approx(brute_force(model), rel=0.06)
    assert max(found) / min(found) < 1.15
