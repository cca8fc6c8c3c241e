"""λ, how strongly a value counts: the formula of each kind of comparison at its anchors, and its laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.conditions.ast import signals_of
from latdoctor.conditions.evaluator import FAILS, HOLDS, evaluate
from tests.evidence.builders import condition, facts, reading, xid


def weight(text: str, value: float | str, **limits: float) -> float:
    """λ of `text` where its signal reads `value`."""
    found = condition(text if text[0] == "{" else f'"{text}"')
    (signal,) = signals_of(found)
    given = facts(
        reading(signal, value),
        slo={"slo.p99": limits["slo"]} if "slo" in limits else {},
        baseline={(signal, "model/a"): limits["baseline"]} if "baseline" in limits else {},
    )
    return math.exp(evaluate(found, "model/a", given).ln_lambda)


THOUSAND, THOUSANDTH = 1000.0, 0.001
SURE_UP = "{is: queue.depth > 50, ramp: [20, 80]}"
SURE_DOWN = "{is: gpu.busy_ratio < 50%, ramp: [70%, 25%]}"

ANCHORS = [
    # λ = 1000^clip(ln(x/limit)/ln 1.5, −1, 1), sign by operator
    ("queue.depth > 50", 50, 1),
    ("queue.depth > 50", 75, THOUSAND),
    ("queue.depth > 50", 750, THOUSAND),
    ("queue.depth > 50", 50 / 1.5, THOUSANDTH),
    ("queue.depth > 50", 5, THOUSANDTH),
    ("queue.depth > 50", 0, THOUSANDTH),
    ("queue.depth > 50", -5, THOUSANDTH),
    ("queue.depth > 50", 50 * 1.5**0.5, THOUSAND**0.5),
    ("queue.depth > 50", 50 / 1.5 ** (1 / 3), 0.1),
    ("queue.depth >= 50", 50, 1),
    ("queue.depth >= 50", 75, THOUSAND),
    ("queue.depth < 50", 50, 1),
    ("queue.depth < 50", 50 / 1.5, THOUSAND),
    ("queue.depth < 50", 0, THOUSAND),
    ("queue.depth < 50", -5, THOUSAND),
    ("queue.depth < 50", 75, THOUSANDTH),
    ("queue.depth <= 50", 75, THOUSANDTH),
    ("gpu.busy_ratio < 50%", 0.25, THOUSAND),
    ("latency.p99 > 1 ms", 0.001, 1),
    # a limit of zero or below has no ratio: simply so or not
    ("queue.depth > 0", 1e-9, THOUSAND),
    ("queue.depth > 0", 0, THOUSANDTH),
    ("queue.depth <= 0", 0, THOUSAND),
    ("gpu.temperature_margin < 0C", -0.1, THOUSAND),
    ("gpu.temperature_margin < -2C", -1.9, THOUSANDTH),
    # simply so or not
    ("queue.depth = 50", 50, THOUSAND),
    ("queue.depth = 50", 51, THOUSANDTH),
    ("queue.depth != 50", 51, THOUSAND),
    ("queue.depth in [49, 50]", 50, THOUSAND),
    ("queue.depth in [49, 50]", 51, THOUSANDTH),
    ("queue.depth within 10% of 50", 55, THOUSAND),
    ("queue.depth within 10% of 50", 55.1, THOUSANDTH),
    ("server.backend = cpu", "cpu", THOUSAND),
    ("server.backend = cpu", "cuda", THOUSANDTH),
    ("gpu.row_remap.pending = 1", 1, THOUSAND),
    ("gpu.row_remap.pending >= 1", 1, THOUSAND),
    ("gpu.row_remap.pending > 0", 1, THOUSAND),
    ("gpu.row_remap.pending < 1", 1, THOUSANDTH),
    # linear between `sure` bounds, to either side of the limit by itself
    (SURE_UP, 50, 1),
    (SURE_UP, 80, THOUSAND),
    (SURE_UP, 99, THOUSAND),
    (SURE_UP, 65, THOUSAND**0.5),
    (SURE_UP, 20, THOUSANDTH),
    (SURE_UP, 0, THOUSANDTH),
    (SURE_UP, 35, THOUSANDTH**0.5),
    (SURE_DOWN, 0.5, 1),
    (SURE_DOWN, 0.25, THOUSAND),
    (SURE_DOWN, 0.079, THOUSAND),
    (SURE_DOWN, 0.375, THOUSAND**0.5),
    (SURE_DOWN, 0.7, THOUSANDTH),
    (SURE_DOWN, 0.919, THOUSANDTH),
    (SURE_DOWN, 0.6, THOUSANDTH**0.5),
    # 1/(−e·p·ln p) below the limit, at most 1000; nothing above
    ("batch.size.dip_p < 0.05", 0.05, 1),
    ("batch.size.dip_p < 0.05", 0.9, 1),
    ("batch.size.dip_p < 0.05", 0.049999, 1 / (-math.e * 0.049999 * math.log(0.049999))),
    ("batch.size.dip_p < 0.05", 0.001, 1 / (-math.e * 0.001 * math.log(0.001))),
    ("batch.size.dip_p < 0.05", 1e-9, THOUSAND),
    ("batch.size.dip_p < 0.05", 0, THOUSAND),
    ("batch.size.dip_p <= 0.5", 0.4, 1),
    ("batch.size.dip_p <= 0.5", 1 / math.e, 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "expected"), ANCHORS)
def test_lambda_at_its_anchors(text: str, value: float | str, expected: float) -> None:
    assert weight(text, value) == pytest.approx(expected, rel=1e-9)
    inner = text if text[0] == "{" else f'"{text}"'
    assert weight(f"{{not: {inner}}}", value) == pytest.approx(1 / expected, rel=1e-9)


def test_lambda_of_a_limit_that_refers_to_something() -> None:
    assert weight("latency.p99 > slo.p99", 0.75, slo=0.5) == pytest.approx(1000)
    assert weight("latency.p99 > 2 x baseline", 0.2, baseline=0.1) == pytest.approx(1)
    assert weight("latency.p99 > 2 x baseline", 0.3, baseline=0.1) == pytest.approx(1000)


def test_lambda_of_a_count() -> None:
    looked = (("log.xid", "gpu/0"),)
    some, none = facts(events=(xid(79.0),), looked=looked), facts(looked=looked)
    for text in ("count(log.xid) > 0", "count(log.xid) >= 1"):
        assert evaluate(condition(text), "gpu/0", none).ln_lambda == pytest.approx(-math.log(1000))
    assert evaluate(condition("count(log.xid) > 0"), "gpu/0", some).ln_lambda == pytest.approx(math.log(1000))


POSITIVE = st.floats(min_value=5e-324, max_value=1.7e308)


@given(st.floats(-1e300, 1.7e308), st.floats(-1e300, 1.7e308), POSITIVE)
def test_lambda_is_monotone_and_within_its_bounds_for_every_finite_value(one: float, two: float, limit: float) -> None:
    low, high = sorted((one, two))
    for operator in ("<", "<=", ">", ">="):
        text = condition(f'"queue.depth {operator} requests.running"')
        below, above = (
            evaluate(text, "model/a", facts(reading("queue.depth", value), reading("requests.running", limit)))
            for value in (low, high)
        )
        ordered = (below.ln_lambda, above.ln_lambda) if operator[0] == ">" else (above.ln_lambda, below.ln_lambda)
        assert ordered[0] <= ordered[1]
        for found in (below, above):
            assert abs(found.ln_lambda) <= math.log(1000)
            assert found.ln_lambda >= 0 if found.status == HOLDS else found.ln_lambda <= 0
            assert found.status in (HOLDS, FAILS)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_lambda_between_sure_bounds_is_monotone(one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert weight(SURE_UP, low) <= weight(SURE_UP, high)
    assert weight(SURE_DOWN, low) >= weight(SURE_DOWN, high)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_smaller_p_value_never_speaks_less(one: float, two: float) -> None:
    low, high = sorted((one, two))
    text = "batch.size.dip_p < 0.05"
    assert 1 <= weight(text, high) <= weight(text, low) <= 1000 * (1 + 1e-12)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_lambda_depends_on_the_ratio_alone(value: float, limit: float, scale: float) -> None:
    text = condition("queue.depth > requests.running")
    plain, scaled = (
        evaluate(text, "m", facts(reading("queue.depth", v, "m"), reading("requests.running", n, "m"))).ln_lambda
        for v, n in ((value, limit), (value * scale, limit * scale))
    )
    assert plain == pytest.approx(scaled, abs=1e-9)
