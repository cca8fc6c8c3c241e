"""The queueing model against formulas of queueing theory."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.load.latencies import quantile
from latdoctor.planning.capacity.queue_model import (
    SHARES,
    ClosedLevel,
    Discipline,
    LimitSearch,
    QueueModel,
    closed_latencies,
    fit_model,
)
from latdoctor.planning.capacity.simulated_server import BatchServer

SPEED = 100.0  # requests per second of one processor
EXPONENTIAL = tuple(-math.log((index + 0.5) / 2000) for index in range(2000))  # quantiles with a mean of one
SAME = (1.0,)


def one_processor(sizes: tuple[float, ...], width: float) -> QueueModel:
    return QueueModel(((1, SPEED),), sizes, width)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_plain_queue_has_the_quantiles_of_mm1(load: float) -> None:
    took = one_processor(EXPONENTIAL, 1).latencies(load * SPEED, requests=30_000)
    for share in (0.5, 0.9, 0.99):
        expected = -math.log(1 - share) / (SPEED * (1 - load))
        assert quantile(took, share) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_shared_processor_has_the_mean_of_mm1_and_of_md1_alike(load: float) -> None:
    for sizes in (EXPONENTIAL, SAME):  # processor sharing depends on the mean size only
        took = one_processor(sizes, math.inf).latencies(load * SPEED, requests=30_000)
        assert sum(took) / len(took) == pytest.approx(1 / (SPEED * (1 - load)), rel=0.1)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_equal_requests_wait_half_as_long_as_random_ones(load: float) -> None:
    took = one_processor(SAME, 1).latencies(load * SPEED, requests=30_000)
    expected = (1 + load / (2 * (1 - load))) / SPEED  # Pollaczek-Khinchine
    assert sum(took) / len(took) == pytest.approx(expected, rel=0.05)


def test_several_processors_have_the_waiting_of_erlang_c() -> None:
    count, load = 4, 0.8
    model = QueueModel(tuple((n, n * SPEED) for n in range(1, count + 1)), EXPONENTIAL, count)
    took = model.latencies(load * count * SPEED, requests=30_000)
    offered = load * count
    blocked = offered**count / math.factorial(count) / (1 - load)
    waits = blocked / (sum(offered**k / math.factorial(k) for k in range(count)) + blocked)
    expected = 1 / SPEED + waits / (count * SPEED * (1 - load))
    assert sum(took) / len(took) == pytest.approx(expected, rel=0.07)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.05, 0.5), st.sampled_from([1.0, 3.0, math.inf]))
def test_a_looser_objective_allows_no_lower_rate(slo: float, width: float) -> None:
    model = one_processor(EXPONENTIAL, width)
    strict, loose = (model.limit(within, 0.99, LimitSearch(requests=1000)) for within in (slo, slo * 1.5))
    assert strict <= loose * 1.001
    assert loose <= SPEED * 1.05


@pytest.mark.parametrize("discipline", Discipline)
def test_batches_and_sharing_answer_as_many_requests_under_overload(discipline: Discipline) -> None:
    server = QueueModel(((1, SPEED), (4, 2 * SPEED)), SAME, 4, discipline).server()
    for _ in range(400):
        server.arrive(1.0)
    took = server.advance(math.inf)
    assert len(took) == 400
    assert max(took) == pytest.approx(400 / (2 * SPEED), rel=0.02)


def test_batch_takes_what_waits_and_lets_the_others_wait() -> None:
    server = BatchServer(math.inf, lambda count: 1.0 * count)  # each batch takes a second
    server.arrive(1.0)
    assert server.advance(0.5) == []
    for _ in range(3):
        server.arrive(1.0)
    assert server.complete() == [1.0]
    assert server.complete() == [1.5, 1.5, 1.5]
    assert server.advance(9.0) == []


@pytest.mark.parametrize(
    ("width", "discipline"),
    [(1.0, Discipline.SHARING), *product((4.0, math.inf), Discipline)],
)
def test_width_and_discipline_are_found_again_from_closed_loops(width: float, discipline: Discipline) -> None:
    speeds = ((1, 50.0), (2, 90.0), (4, 160.0), (8, 170.0), (16, 170.0))
    sizes = tuple(Random(1).choices([0.5, 4.0], weights=[0.85, 0.15], k=200))
    mean = sum(sizes) / len(sizes)
    true = QueueModel(speeds, tuple(one / mean for one in sizes), width, discipline)
    closed = []
    for in_flight, rate in speeds:
        took = sorted(closed_latencies(true, in_flight))
        closed.append(ClosedLevel(in_flight, rate, tuple(quantile(took, share) or 0 for share in SHARES)))
    found = fit_model(closed, sizes)
    assert found.discipline is discipline
    assert found.width == width or (
        width == math.inf and found.width >= 8
    )  # of 8 and more the closed loops show the same
    assert found.attainment(140, 0.3) == pytest.approx(true.attainment(140, 0.3), abs=0.02)


def test_nothing_measured_gives_no_model() -> None:
    with pytest.raises(ValueError, match="closed loop"):
        fit_model([], [0.1])
