"""The cost learnt on line, and who is turned away by it."""

from __future__ import annotations

import math
import random

import pytest
from bench.schedulers import MEASURED_FP32, quantile, traffic
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers import build
from latdoctor.lab.server.schedulers.batch import Batch, Work
from latdoctor.lab.server.schedulers.cost_model import Cost, CostModel
from tests.lab.schedulers.samples import batch, seconds, works

SHAPES = ((1, 40), (8, 40), (32, 40), (1, 512), (4, 512), (2, 200))


def taught(cost: Cost, calls: int = 300, noise: float = 0.0, seed: int = 0) -> CostModel:
    model, chance = CostModel(), random.Random(seed)
    for call in range(calls):
        size, longest = SHAPES[call % len(SHAPES)]
        model.observe(batch(*[longest] * size), cost.seconds(size, longest) * math.exp(chance.gauss(0, noise)))
    return model


def predicted(model: CostModel, size: int, longest: int) -> float:
    assert model.cost is not None
    return model.cost.seconds(size, longest)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_cost_is_learnt_from_calls(noise: float) -> None:
    model = taught(MEASURED_FP32, noise=noise)
    for size, longest in [*SHAPES, (16, 48), (8, 300)]:
        real = MEASURED_FP32.seconds(size, longest)
        assert predicted(model, size, longest) == pytest.approx(real, rel=0.02 + noise)
    assert model.error_ratio is not None
    assert model.error_ratio < 0.01 + 1.5 * noise


def test_from_one_shape_the_time_is_taken_to_grow_with_the_tokens() -> None:
    model = CostModel()
    model.observe(batch(40), 0.004)
    assert predicted(model, 1, 40) == pytest.approx(0.004, rel=0.02)
    assert predicted(model, 4, 40) == pytest.approx(0.016, rel=0.1)
    assert predicted(model, 1, 400) == pytest.approx(0.040, rel=0.1)


def test_a_machine_that_became_slower_is_learnt_anew() -> None:
    model = taught(MEASURED_FP32)
    for _ in range(100):
        for size, longest in SHAPES:
            model.observe(batch(*[longest] * size), 3 * MEASURED_FP32.seconds(size, longest))
    assert predicted(model, 8, 40) == pytest.approx(3 * MEASURED_FP32.seconds(8, 40), rel=0.05)


def test_one_call_held_up_by_a_neighbour_weighs_little() -> None:
    model = taught(MEASURED_FP32)
    model.observe(batch(40), 5.0)
    assert predicted(model, 1, 40) == pytest.approx(MEASURED_FP32.seconds(1, 40), rel=0.1)


SECONDS = st.floats(1e-5, 100)
CALLS = st.lists(st.tuples(st.integers(1, 64), st.integers(1, 4096), SECONDS), min_size=1, max_size=40)


@given(CALLS)
def test_no_cost_is_negative_and_more_is_never_cheaper(calls: list[tuple[int, int, float]]) -> None:
    model = CostModel()
    for size, longest, took in calls:
        model.observe(batch(*[longest] * size), took)
        cost = model.cost
        assert cost is not None
        assert min(cost.fixed, cost.per_token, cost.per_token_pair) >= 0
        assert 0 < cost.seconds(1, 1) <= cost.seconds(2, 1) <= cost.seconds(2, 700) < math.inf


@pytest.mark.parametrize("took", [0.0, -1.0, math.nan, math.inf])
def test_a_duration_that_cannot_be_teaches_nothing(took: float) -> None:
    model = CostModel()
    model.observe(batch(40), took)
    assert model.cost is None
    assert model.error_ratio is None


def test_the_wait_is_what_runs_and_what_waits() -> None:
    model = taught(Cost(0.0, 1e-4, 0.0))
    assert CostModel().predicted_wait(0.0, works(40)) is None
    assert model.predicted_wait(0.0, []) == 0
    assert model.predicted_wait(0.0, works(40, 60)) == pytest.approx(0.01, rel=0.01)
    model.started(batch(100), 5.0)
    assert model.predicted_wait(5.004, works(40, 60)) == pytest.approx(0.016, rel=0.01)
    assert model.predicted_wait(9.0, works(40, 60)) == pytest.approx(0.01, rel=0.01)  # overdue: any moment now
    model.finished(5.01)
    assert model._running is None
    assert model.predicted_wait(5.01, []) == 0


def test_a_queue_needs_as_many_calls_as_its_batches() -> None:
    model = CostModel()
    for size in (8, 8, 4) * 20:
        model.observe(batch(*[10] * size), 0.1 + 1e-6 * size)
    model.observe(batch(10), 0.1)
    wait = model.predicted_wait(0.0, works(*[10] * 120))
    assert wait == pytest.approx(0.1 * 120 / 6, rel=0.2)


def test_an_abandoned_batch_teaches_nothing() -> None:
    model = CostModel()
    model.started(batch(40), 0.0)
    model.abandoned()
    model.finished(60.0)
    assert model.cost is None


def test_the_prediction_nears_the_time_that_a_real_queue_takes() -> None:
    model, scheduler, now = CostModel(), build(BatchingConfig()), 0.0
    queue = traffic(0, 400, 0.15, seed=3)
    for part in (queue[:200], queue[200:]):
        for work in part:
            scheduler.add(work)
        start, guess = now, model.predicted_wait(now, scheduler.pending)
        while found := scheduler.take(now):
            model.started(found, now)
            now += seconds(found)
            model.finished(now)
    assert guess == pytest.approx(now - start, rel=0.25)


def due(tokens: int, deadline: float | None) -> Work:
    return Work(999, tokens, 0.0, deadline)


def test_a_request_that_would_be_late_is_refused_with_a_retry_after() -> None:
    model = taught(Cost(0.0, 1e-3, 0.0))
    queue = works(1000, 2000)  # three seconds
    assert model.admission(due(100, 3.2), 0.0, queue).admitted
    late = model.admission(due(100, 1.0), 0.0, queue)
    assert not late.admitted
    assert late.predicted == pytest.approx(3.1, rel=0.01)
    assert late.retry_after == 3  # 2.1 s too late
    assert model.admission(due(100, None), 0.0, queue).admitted
    assert CostModel().admission(due(100, 1.0), 0.0, queue).admitted  # nothing is known


def test_an_idle_server_lets_in_whatever_it_believes() -> None:
    model = taught(Cost(10.0, 0.0, 0.0))
    assert model.admission(due(40, 1.0), 0.0, []).admitted
    model.started(batch(40), 0.0)
    assert not model.admission(due(40, 1.0), 0.0, []).admitted


def served(rate: float, deadline: float, slow_until: float) -> tuple[list[float], int, int]:
    """Latencies of those let in, and how many were turned away before and after `slow_until` (calls ten times dear)."""
    model, scheduler = CostModel(), build(BatchingConfig())
    latencies: list[float] = []
    refused = [0, 0]
    free = 0.0
    running: Batch | None = None
    for work in traffic(rate, 4000, 0.15, seed=1):
        while free <= work.arrived:
            if running is not None:
                model.finished(free)
                latencies += [free - done.arrived for done in running.works]
            running = scheduler.take(free)
            if running is None:
                break
            model.started(running, free)
            free += seconds(running) * (10 if free < slow_until else 1)
        work = Work(work.id, work.tokens, work.arrived, work.arrived + deadline)  # noqa: PLW2901 (the same, with a deadline)
        if model.admission(work, work.arrived, scheduler.pending).admitted:
            scheduler.add(work)
        else:
            refused[work.arrived >= slow_until + 5] += 1
        free = max(free, work.arrived) if running is None else free
    return latencies, refused[0], refused[1]


def test_shedding_by_deadline_keeps_the_latency_under_overload() -> None:
    latencies, early, late = served(rate=250, deadline=0.5, slow_until=0.0)
    assert early + late > 400
    assert quantile(iter(latencies), 0.5) < 0.5
    assert quantile(iter(latencies), 0.95) < 2 * 0.5


def test_shedding_stops_once_a_slow_time_is_over() -> None:
    _, slow, after = served(rate=60, deadline=0.5, slow_until=10.0)
    assert slow > 100
    assert after == 0
