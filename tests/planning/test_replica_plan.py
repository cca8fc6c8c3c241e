"""Replicas for a planning figure, and when they must be started."""

from __future__ import annotations

import pytest

from latdoctor.planning.forecast.result import Forecast
from latdoctor.planning.replica_plan import ReplicaCapacity, replica_plan

AT = 1_790_000_000.0


def planned(figure: float | None, running: int | None = None) -> object:
    found = Forecast(source="test", unit="/s", ahead=900.0, at=AT, planning_value=figure)
    plan = replica_plan(found, ReplicaCapacity(100.0, 0.3, running, 120.0))
    return plan and (plan.replicas, plan.start, plan.start_by)


@pytest.mark.parametrize(("figure", "replicas"), [(0.0, 1), (69.9, 1), (70.0, 1), (70.1, 2), (140.0, 2), (701.0, 11)])
def test_every_replica_keeps_its_reserve(figure: float, replicas: int) -> None:
    assert planned(figure) == (replicas, None, AT - 120)


def test_a_start_is_due_a_start_up_before_the_target() -> None:
    assert planned(300.0, running=3) == (5, 2, AT - 120)


@pytest.mark.parametrize(("running", "start"), [(5, 0), (8, -3)])
def test_enough_replicas_need_no_start(running: int, start: int) -> None:
    assert planned(300.0, running=running) == (5, start, None)


def test_without_a_forecast_there_is_no_plan() -> None:
    assert planned(None) is None
