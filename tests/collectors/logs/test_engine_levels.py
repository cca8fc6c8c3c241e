"""Levels of an engine's quantities: what counts as a change, and what stands still."""

from __future__ import annotations

import random

import pytest

from latdoctor.collectors.logs.engine_levels import stall
from latdoctor.detectors.level_change import SHAPES, worsening


@pytest.mark.parametrize(
    ("signal", "values", "first"),
    [
        ("queue.depth", [0, 0, 0, 12, 15, 14], 3),
        ("kv.usage", [0.74, 0.86, 0.998, 0.999], 2),
        ("output.token_rate", [1200, 1180, 1210, 400, 390, 420], 3),
        ("prefix_cache.hit_ratio", [0.8, 0.82, 0.1, 0.12], 2),
        ("queue.time.mean", [0.001, 0.002, 9.0, 8.0], 2),
    ],
)
def test_a_step_in_a_few_lines_is_dated(signal: str, values: list[float], first: int) -> None:
    found = worsening(signal, values)
    assert found is not None
    assert (found.first, found.last) == (first, len(values) - 1)


@pytest.mark.parametrize(
    ("signal", "values"),
    [
        ("queue.depth", [0, 1, 0, 1, 1, 1]),  # one waiting request is none
        ("queue.depth", [9, 9, 9, 0, 0, 0]),  # better, not worse
        ("kv.usage", [0.10, 0.11, 0.4, 0.41]),  # half empty
        ("output.token_rate", [400, 390, 1200, 1250]),
        ("queue.depth", [0, 9, 0]),  # too few
        ("server.host_cpu", [0.1, 0.1, 0.9, 0.9]),  # its direction means nothing here
    ],
)
def test_what_is_no_change_for_the_worse_is_none(signal: str, values: list[float]) -> None:
    assert worsening(signal, values) is None


@pytest.mark.parametrize("signal", sorted(SHAPES))
def test_noise_is_seldom_taken_for_a_change(signal: str) -> None:
    rng = random.Random(7)
    scale = 0.9 if signal in ("kv.usage", "prefix_cache.hit_ratio") else 40.0
    curves = [[scale * rng.uniform(0.8, 1.0) for _ in range(60)] for _ in range(200)]
    assert sum(worsening(signal, values) is not None for values in curves) <= 2


def test_a_long_log_is_dated_where_it_rises_and_ends_where_it_falls() -> None:
    rng = random.Random(3)
    values = [rng.choice((0.0, 1.0)) for _ in range(60)] + [20.0 + rng.random() for _ in range(30)] + [0.0] * 30
    found = worsening("queue.depth", values)
    assert found is not None
    assert (found.first, found.last) == (60, 89)


def test_a_queue_that_grows_and_never_empties_is_dated_where_it_began() -> None:
    found = worsening("queue.depth", [0, 1, 0, 0, 1, 0, *range(3, 60)])
    assert found is not None
    assert (found.first, found.last, found.before) == (6, 62, 0)


def test_an_engine_stalls_if_requests_run_and_no_token_is_computed() -> None:
    found = stall([4, 5, 5, 5, 5], [900, 0, 0, 0, 0], [10, 0, 0, 0, 0])
    assert found is not None
    assert (found.first, found.last, found.before, found.after) == (1, 4, 900, 0)


@pytest.mark.parametrize(
    ("running", "generated", "prompts"),
    [
        ([0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]),  # idle
        ([1, 1, 1, 1], [0, 0, 0, 0], [900, 800, 900, 850]),  # long prompts
        ([1, 1, 1, 1], [9, 0, 0, 8], [0, 0, 0, 0]),  # for two lines only
    ],
)
def test_an_engine_that_is_idle_or_reads_prompts_does_not_stall(
    running: list[float], generated: list[float], prompts: list[float]
) -> None:
    assert stall(running, generated, prompts) is None
