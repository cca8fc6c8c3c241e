"""The simulation of bench/scaling.py on services whose cost is known."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from bench.scaling import Service, least_free, needed, reactive, simulate


def service(rates: list[float], lead: int = 2, per_replica: float = 10.0) -> Service:
    return Service(np.asarray(rates), 300.0, lead, per_replica)


def test_enough_replicas_serve_every_request_in_time() -> None:
    cost = simulate(service([10.0, 20.0, 30.0]), [1, 2, 3])
    assert (cost.late, cost.late_steps) == (0.0, 0.0)
    assert cost.replica_hours == pytest.approx(6 * 300 / 3600)


def test_a_queue_makes_requests_late_until_it_is_gone() -> None:
    """In the second step a queue of 300 s × 10/s builds up, which takes the free half of the next step."""
    cost = simulate(service([10.0, 30.0, 10.0, 10.0, 10.0, 10.0]), [2] * 6)
    assert cost.late_steps == pytest.approx(2 / 6)
    assert cost.late > 30 / 80


def test_replicas_keep_the_share_free() -> None:
    assert needed(np.array([0.0, 7.0, 7.1, 70.0]), 10.0, 0.3) == [1, 1, 2, 10]


def test_a_reactive_controller_starts_late_by_the_lead_and_stops_at_once_after_its_window() -> None:
    rates = [10.0] * 5 + [40.0] * 6 + [10.0] * 6
    assert reactive(service(rates), 0.0) == [1] * 7 + [4] * 5 + [1] * 5


def test_a_reactive_controller_ignores_changes_within_its_tolerance() -> None:
    assert reactive(service([10.0, 10.5, 9.5, 10.9]), 0.0) == [1, 1, 1, 1]


def test_an_oracle_needs_nothing_free_and_one_that_is_late_needs_more() -> None:
    rates = [10.0, 20.0, 30.0, 40.0, 30.0, 20.0] * 4
    known = service(rates, per_replica=0.01)  # so many that whole replicas make no difference
    assert least_free(known, partial(needed, known.rates, 0.01), 0.001) == 0.0
    behind = np.array([10.0, *rates[:-1]])
    free = least_free(known, partial(needed, behind, 0.01), 0.001)
    assert free is not None
    assert 0.4 < free < 0.55  # from 10 to 20 it must have twice as many as the last rate took
    assert least_free(known, partial(needed, behind / 100, 0.01), 0.001) is None
