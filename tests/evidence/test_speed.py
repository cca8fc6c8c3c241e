"""Faster, slower or the same: which latency decides, and what a change means for users."""

from __future__ import annotations

import pytest

from latdoctor.evidence.diff import Difference
from latdoctor.evidence.speed import Pace, Trend, speed_change, trend

P99 = "latency.p99"


def _one(signal: str, before: float | str | None, after: float | str | None, subject: str = "server/a") -> Difference:
    return Difference(signal, subject, before, after)


@pytest.mark.parametrize(
    ("before", "after", "pace"),
    [(0.1, 0.3, Pace.SLOWER), (0.3, 0.1, Pace.FASTER), (0.1, 0.11, Pace.SAME), (0.1, 0.1, Pace.SAME)],
)
def test_the_pace_is_that_of_the_latency(before: float, after: float, pace: Pace) -> None:
    found = speed_change([_one(P99, before, after)])
    assert (found.pace, found.signal, found.before, found.after) == (pace, P99, before, after)


def test_without_a_latency_in_both_there_is_no_pace() -> None:
    assert speed_change([_one(P99, None, 0.3), _one("queue.depth", 1, 300)]).pace == Pace.UNKNOWN


def test_p99_decides_before_the_mean_and_the_clock_comes_last() -> None:
    several = [_one("gpu.sm_clock", 2e9, 1e9, "gpu/0"), _one("latency.mean", 0.1, 0.1), _one(P99, 0.1, 0.4)]
    assert speed_change(several).signal == P99
    assert speed_change(several[:1]).pace == Pace.SLOWER


def test_where_the_p99_is_the_same_another_latency_of_users_decides() -> None:
    several = [_one(P99, 0.42, 0.42), _one("latency.mean", 0.2, 0.6), _one("compute.time.mean", 0.1, 0.1)]
    assert (speed_change(several).pace, speed_change(several).signal) == (Pace.SLOWER, "latency.mean")
    inside = [_one(P99, 0.42, 0.42), _one("compute.time.mean", 0.1, 0.3)]
    assert (speed_change(inside).pace, speed_change(inside).signal) == (Pace.SAME, P99)


def test_of_several_replicas_the_slowest_decides() -> None:
    found = speed_change([_one(P99, 0.1, 0.1), _one(P99, 0.2, 3.0, "server/b")])
    assert (found.pace, found.subject) == (Pace.SLOWER, "server/b")
    back = speed_change([_one(P99, 0.1, 0.1), _one(P99, 3.0, 0.2, "server/b")])
    assert (back.pace, back.subject) == (Pace.FASTER, "server/b")


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        ("queue.depth", Trend.WORSE),
        ("error.ratio", Trend.WORSE),
        ("ttft.mean", Trend.WORSE),
        ("gpu.temperature", Trend.WORSE),
        ("gpu.temperature_margin", Trend.BETTER),
        ("gpu.sm_clock_ratio", Trend.BETTER),
        ("prefix_cache.hit_ratio", Trend.BETTER),
        ("arrival.rate", Trend.NEUTRAL),
        ("completion.rate", Trend.NEUTRAL),
        ("server.uptime", Trend.NEUTRAL),
    ],
)
def test_what_growth_means(signal: str, expected: Trend) -> None:
    assert trend(_one(signal, 1.0, 2.0)) == expected
    opposite = {Trend.WORSE: Trend.BETTER, Trend.BETTER: Trend.WORSE}.get(expected, expected)
    assert trend(_one(signal, 2.0, 1.0)) == opposite
    assert trend(_one(signal, 2.0, 2.1)) == Trend.NEUTRAL
    assert trend(_one(signal, None, 2.0)) == Trend.NEUTRAL


def test_errors_from_zero_are_worse() -> None:
    assert trend(_one("error.ratio", 0.0, 0.2)) == Trend.WORSE
