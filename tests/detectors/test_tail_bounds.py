"""A P99 that no source reports is bounded from below by the quantiles that one does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.detectors.quantiles import quantiles
from latdoctor.detectors.tail_bounds import tail_bounds
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Bucket, Distribution, Evidence, Origin, Reading, Window

ORIGIN = Origin("server/last.prom", "latency")


def reading(signal: str, value: float, bound: str = "", end: float = 20.0) -> Reading:
    return Reading(signal, "model/a", value, ORIGIN, Window(10.0, end), bound=bound)


def bounds(*readings: Reading) -> dict[str, tuple[object, str]]:
    return {one.signal: (one.value, one.bound) for one in tail_bounds(Evidence(readings=readings)).readings}


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param([reading("latency.p50", 3)], {"latency.p99": (3, AT_LEAST)}, id="the-median-alone"),
        pytest.param(
            [reading("latency.p50", 3), reading("latency.p95", 8)], {"latency.p99": (8, AT_LEAST)}, id="the-greater"
        ),
        pytest.param([reading("latency.p95", 8), reading("latency.p99", 9)], {}, id="a-measured-one-stays"),
        pytest.param([reading("latency.p95", 8, AT_LEAST)], {"latency.p99": (8, AT_LEAST)}, id="a-bound-from-below"),
        pytest.param([reading("latency.p95", 8, AT_MOST)], {}, id="a-bound-from-above-says-nothing"),
        pytest.param([reading("latency.p95", math.nan)], {}, id="not-a-number-says-nothing"),
        pytest.param(
            [reading("latency.p95", 2, end=30.0), reading("latency.p95", 8)],
            {"latency.p99": (2, AT_LEAST)},
            id="the-newest-counts",
        ),
        pytest.param([reading("queue.depth", 8)], {}, id="only-quantiles"),
    ],
)
def test_p99_is_no_less_than_the_known_quantiles(
    readings: list[Reading], expected: dict[str, tuple[object, str]]
) -> None:
    assert bounds(*readings) == expected


@given(st.lists(st.tuples(st.sampled_from(["latency.p50", "latency.p95"]), st.floats(0, 1e6)), max_size=6))
def test_a_bound_is_a_value_that_was_reported(values: list[tuple[str, float]]) -> None:
    found = bounds(*(reading(signal, value) for signal, value in values))
    assert all(value in {known for _, known in values} for value, _ in found.values())


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        pytest.param((Bucket(0.0, 2.0, 75),), {}, id="the-first-bucket-says-nothing"),
        pytest.param(
            (Bucket(0.0, 2.0, 30), Bucket(2.0, 4.0, 20)),
            {"latency.p99": (math.nextafter(2, 3), AT_LEAST)},
            id="over-the-lower-end",
        ),
    ],
)
def test_of_a_bucket_only_the_lower_end_is_sure(
    buckets: tuple[Bucket, ...], expected: dict[str, tuple[object, str]]
) -> None:
    evidence = Evidence(distributions=(Distribution("latency", "model/a", buckets, ORIGIN, None, Window(10.0, 20.0)),))
    evidence = Evidence.merge([evidence, quantiles(evidence)])
    assert {one.signal: (one.value, one.bound) for one in tail_bounds(evidence).readings} == expected
