"""Values known only by a bound: what they decide, what they leave open, and how that is reported."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN, Known, evaluate, of_ratio, settled, show
from latdoctor.evidence.model import Evidence
from tests.evidence.builders import condition, facts, reading, xid

LEAST, MOST = "at least", "at most"
FALLEN = [xid(79), xid(79)]

SETTLED = [
    # the value, its bound, the comparison → status
    (1.0, LEAST, "latency.p99 > 500ms", HOLDS),
    (1.0, LEAST, "latency.p99 > 1s", UNKNOWN),
    (1.0, LEAST, "latency.p99 > 2s", UNKNOWN),
    (1.0, LEAST, "latency.p99 >= 1s", HOLDS),
    (1.0, LEAST, "latency.p99 >= 2s", UNKNOWN),
    (1.0, LEAST, "latency.p99 < 500ms", FAILS),
    (1.0, LEAST, "latency.p99 < 1s", FAILS),
    (1.0, LEAST, "latency.p99 < 2s", UNKNOWN),
    (1.0, LEAST, "latency.p99 <= 500ms", FAILS),
    (1.0, LEAST, "latency.p99 <= 1s", UNKNOWN),
    (1.0, MOST, "latency.p99 < 2s", HOLDS),
    (1.0, MOST, "latency.p99 < 1s", UNKNOWN),
    (1.0, MOST, "latency.p99 < 500ms", UNKNOWN),
    (1.0, MOST, "latency.p99 <= 1s", HOLDS),
    (1.0, MOST, "latency.p99 > 2s", FAILS),
    (1.0, MOST, "latency.p99 > 1s", FAILS),
    (1.0, MOST, "latency.p99 > 500ms", UNKNOWN),
    (1.0, MOST, "latency.p99 >= 2s", FAILS),
    (1.0, MOST, "latency.p99 >= 1s", UNKNOWN),
    (1.0, LEAST, "latency.p99 = 500ms", FAILS),
    (1.0, LEAST, "latency.p99 != 500ms", HOLDS),
    (1.0, LEAST, "latency.p99 = 1s", UNKNOWN),
    (1.0, LEAST, "latency.p99 != 2s", UNKNOWN),
    (1.0, MOST, "latency.p99 = 2s", FAILS),
    (1.0, LEAST, "latency.p99 within 20% of 500ms", FAILS),
    (1.0, LEAST, "latency.p99 within 20% of 1s", UNKNOWN),
    (1.0, LEAST, "latency.p99 within 20% of 2s", UNKNOWN),
    (1.0, LEAST, "latency.p99 > slo.p99", UNKNOWN),
    (3.0, LEAST, "latency.p99 > slo.p99", HOLDS),
    (3.0, LEAST, "latency.p99 > 2 x baseline", HOLDS),
    (1.5, LEAST, "latency.p99 > 2 x baseline", UNKNOWN),
]


@pytest.mark.parametrize(("value", "bound", "text", "expected"), SETTLED)
def test_a_bound_settles_only_what_it_settles(value: float, bound: str, text: str, expected: str) -> None:
    given_ = facts(
        reading("latency.p99", value, bound=bound),
        slo={"slo.p99": 2.0},
        baseline={("latency.p99", "model/a"): 1.0},
    )
    found = evaluate(condition(f'"{text}"'), "model/a", given_)
    assert found.status == expected
    assert found.ln_lambda >= 0 if expected == HOLDS else found.ln_lambda <= 0
    assert found.status != UNKNOWN or found.ln_lambda == 0
    negated = evaluate(condition(f'{{not: "{text}"}}'), "model/a", given_)
    assert negated.status == {HOLDS: FAILS, FAILS: HOLDS, UNKNOWN: UNKNOWN}[expected]


@pytest.mark.parametrize(("bound", "expected"), [(LEAST, UNKNOWN), (MOST, HOLDS), ("", HOLDS)])
def test_a_limit_may_be_a_bound_too(bound: str, expected: str) -> None:
    given_ = facts(reading("latency.p99", 1.0), reading("latency.p50", 0.2, bound=bound))
    assert evaluate(condition('"latency.p99 > 3 x latency.p50"'), "model/a", given_).status == expected


def test_what_is_left_open_says_why_and_shows_the_bound() -> None:
    found = evaluate(
        condition('"latency.p99 > slo.p99"'),
        "model/a",
        facts(reading("latency.p99", 1.0, bound=LEAST), slo={"slo.p99": 2.0}),
    )
    (atom,) = found.atoms
    assert (atom.shown, atom.bound, atom.status) == ("at least 1 s", LEAST, UNKNOWN)
    assert found.missing == ()
    assert found.unsettled == ("latency.p99 is at least 1 s, which leaves open whether it is > 2 s (slo.p99)",)


@pytest.mark.parametrize(("bound", "shown"), [("", "1 s"), (LEAST, "at least 1 s"), (MOST, "at most 1 s")])
def test_a_bound_is_shown(bound: str, shown: str) -> None:
    assert show("latency.p99", 1.0, bound) == shown


NUMBERS = st.floats(-1e3, 1e3)
TEXTS = st.sampled_from([f"latency.p99 {operator} 1s" for operator in ("<", "<=", ">", ">=", "=", "!=")])
BOUNDS = st.sampled_from(["", LEAST, MOST])


@given(TEXTS, NUMBERS, BOUNDS, NUMBERS, BOUNDS, st.lists(st.floats(0, 1e4), max_size=8))
def test_a_bound_never_contradicts_what_the_value_may_turn_out_to_be(
    text: str, left: float, of_left: str, right: float, of_right: str, steps: list[float]
) -> None:
    """The law behind the table: wherever the real values lie, a settled comparison comes out the same."""
    parsed = condition(f'"{text}"')
    told = settled(parsed, Known((left,), of_left), Known((right,), of_right))
    sign = {"": 0, LEAST: 1, MOST: -1}
    for step in (0.0, *steps):
        for other in (0.0, *steps):
            real = settled(parsed, Known((left + sign[of_left] * step,)), Known((right + sign[of_right] * other,)))
            assert told is None or told == real


RATIOS = [
    ("", "", ""),
    (LEAST, "", LEAST),
    (MOST, "", MOST),
    ("", LEAST, MOST),
    ("", MOST, LEAST),
    (LEAST, MOST, LEAST),
    (MOST, LEAST, MOST),
    (LEAST, LEAST, None),
    (MOST, MOST, None),
]


@pytest.mark.parametrize(("over", "under", "bound"), RATIOS)
def test_the_bound_of_a_ratio(over: str, under: str, bound: str | None) -> None:
    assert of_ratio(over, under) == bound


COUNTS = [
    # looked, clipped, the comparison → status, shown
    (True, False, "count(log.xid, code in [79]) > 1", HOLDS, "2"),
    (True, False, "count(log.xid, code in [79]) > 5", FAILS, "2"),
    (True, False, "count(log.xid, code in [48]) > 0", FAILS, "0"),
    # more happened than was kept, one of each kind at least
    (True, True, "count(log.xid, code in [79]) > 1", HOLDS, "at least 2"),
    (True, True, "count(log.xid, code in [79]) > 5", UNKNOWN, "at least 2"),
    (True, True, "count(log.xid, code in [79]) = 0", FAILS, "at least 2"),
    (True, True, "count(log.xid, code in [48]) > 0", FAILS, "0"),
    # only a part was read
    (False, False, "count(log.xid, code in [79]) > 1", HOLDS, "at least 2"),
    (False, False, "count(log.xid, code in [79]) > 5", UNKNOWN, "at least 2"),
    (False, False, "count(log.xid, code in [48]) > 0", UNKNOWN, "at least 0"),
    (False, False, "count(log.xid, code in [48]) = 0", UNKNOWN, "at least 0"),
]


@pytest.mark.parametrize(("looked", "clipped", "text", "expected", "shown"), COUNTS)
def test_a_count_of_what_was_kept_is_the_least_there_was(
    looked: bool, clipped: bool, text: str, expected: str, shown: str
) -> None:
    node = (("log.xid", "node/a"),)
    given_ = facts(
        parents={"gpu/0": "node/a"},
        events=tuple(FALLEN),
        looked=node if looked else (),
        clipped=node if clipped else (),
    )
    found = evaluate(condition(f'"{text}"'), "gpu/0", given_)
    assert (found.status, found.atoms[0].shown) == (expected, shown)


def test_what_was_clipped_is_kept_when_evidence_is_put_together() -> None:
    one, two = Evidence(clipped=(("log.xid", "node/a"),)), Evidence(clipped=(("log.sxid", "node/b"),))
    assert Evidence.merge([one, two, one]).clipped == (("log.xid", "node/a"), ("log.sxid", "node/b"))


ENOUGH = "{all: [gpu.busy_ratio < 50%], given: trace.kernels >= 20}"


@pytest.mark.parametrize(
    ("busy", "kernels", "expected"),
    [
        (0.1, 600, HOLDS),
        (0.9, 600, FAILS),
        (0.1, 20, HOLDS),
        (0.1, 19, UNKNOWN),
        (0.9, 3, UNKNOWN),
        (0.9, None, UNKNOWN),
        (None, 600, UNKNOWN),
        (math.nan, 1, UNKNOWN),
    ],
)
def test_too_few_samples_tell_nothing(busy: float | None, kernels: float | None, expected: str) -> None:
    values = {"gpu.busy_ratio": busy, "trace.kernels": kernels}
    given_ = facts(*(reading(name, value) for name, value in values.items() if value is not None))
    found = evaluate(condition(ENOUGH), "model/a", given_)
    assert found.status == expected
    plain = evaluate(condition('"gpu.busy_ratio < 50%"'), "model/a", given_)
    assert found.ln_lambda == (plain.ln_lambda if expected != UNKNOWN else 0), "the sample's size adds no weight"


def test_too_few_samples_say_how_many_are_needed() -> None:
    given_ = facts(reading("gpu.busy_ratio", 0.9), reading("trace.kernels", 3.0))
    found = evaluate(condition(ENOUGH), "model/a", given_)
    assert found.unsettled == ("trace.kernels is 3, and >= 20 is needed to decide",)
    assert found.missing == ()
