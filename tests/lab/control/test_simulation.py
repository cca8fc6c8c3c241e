"""The controller in virtual time, with the real scheduler and admission."""

from __future__ import annotations

import pytest
from bench.control import COSTS, best_fixed, evaluated, grid
from bench.control_patterns import LoadPattern, interpolated, read_patterns, requests_of
from bench.control_simulation import FeedbackTuner

OVERLOAD = LoadPattern(rate=((0, 60), (4, 60), (4, 300), (10, 300)))
COST = COSTS["reference"]


def test_the_controller_halves_the_violations_of_an_overload() -> None:
    slo = {"control": {"slo_ms": 300}}
    default = evaluated("default", OVERLOAD, [1], COST, slo)
    on = {"control": {"slo_ms": 300, "mode": "on"}}
    controlled = evaluated("controller", OVERLOAD, [1], COST, on, lambda _: FeedbackTuner())
    assert controlled.mean < default.mean / 1.5
    assert controlled.goodput > 1.5 * default.goodput
    assert controlled.steps >= 1


def test_a_light_load_is_left_alone() -> None:
    on = {"control": {"slo_ms": 300, "mode": "on"}}
    light = LoadPattern(rate=((0, 20), (10, 20)))
    controlled = evaluated("controller", light, [1], COST, on, lambda _: FeedbackTuner())
    assert controlled.mean == 0
    assert controlled.steps <= 4  # admission is armed, and the bound of a batch fitted to the objective


def test_every_pattern_of_the_file_makes_requests() -> None:
    patterns = read_patterns()
    assert len(patterns) == 8
    for pattern in patterns.values():
        assert pattern.seconds <= 120
        assert requests_of(pattern, 1) == requests_of(pattern, 1)


@pytest.mark.parametrize(("second", "value"), [(0, 1), (5, 1.5), (10, 4), (15, 4), (20, 6), (99, 6)])
def test_points_are_joined_by_straight_lines(second: float, value: float) -> None:
    points = ((0.0, 1.0), (10.0, 2.0), (10.0, 4.0), (15.0, 4.0), (20.0, 6.0))
    assert interpolated(points, second) == value


def test_the_best_fixed_setting_is_one_of_the_grid() -> None:
    short = LoadPattern(rate=((0, 250), (2, 250)))
    assert len(grid()) == 32
    assert (
        best_fixed(short, [1, 2], COST).mean <= evaluated("d", short, [1, 2], COST, {"control": {"slo_ms": 300}}).mean
    )
