"""The condition language: the meaning of each text, and the errors for invalid texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.conditions.ast import (
    AllOf,
    AnyOf,
    Comparison,
    Constant,
    CountTerm,
    Not,
    Prefer,
    Reference,
    SignalTerm,
    comparisons,
    signals_of,
)
from latdoctor.conditions.parser import parse_condition
from latdoctor.errors import Problem
from latdoctor.strict_yaml import Node
from tests.evidence.builders import condition, read

P99 = SignalTerm("latency.p99")
RELEASED = SignalTerm("batch.released", (("reason", "timeout"),))
XID = CountTerm("log.xid")

COMPARISONS = [
    ("gpu.busy_ratio < 50%", SignalTerm("gpu.busy_ratio"), "<", Constant((0.5,), "50%")),
    ("gpu.busy_ratio < 0.5", SignalTerm("gpu.busy_ratio"), "<", Constant((0.5,), "0.5")),
    ("gpu.busy_ratio <= 95%", SignalTerm("gpu.busy_ratio"), "<=", Constant((0.95,), "95%")),
    ("latency.p99>500ms", P99, ">", Constant((0.5,), "500ms")),
    ("  latency.p99   >=   2 min  ", P99, ">=", Constant((120.0,), "2 min")),
    ("queue.depth > 50", SignalTerm("queue.depth"), ">", Constant((50.0,), "50")),
    ("process.rss > 5GiB", SignalTerm("process.rss"), ">", Constant((5.0 * 2**30,), "5GiB")),
    ("arrival.rate < 60/min", SignalTerm("arrival.rate"), "<", Constant((1.0,), "60/min")),
    ("gpu.temperature_margin <= -1C", SignalTerm("gpu.temperature_margin"), "<=", Constant((-1.0,), "-1C")),
    ("trace.kernels = 20", SignalTerm("trace.kernels"), "=", Constant((20.0,), "20")),
    ("trace.kernels != 0", SignalTerm("trace.kernels"), "!=", Constant((0.0,), "0")),
    ("gpu.row_remap.pending = 1", SignalTerm("gpu.row_remap.pending"), "=", Constant((1.0,), "1")),
    ("batch.size.dip_p < 0.01", SignalTerm("batch.size.dip_p"), "<", Constant((0.01,), "0.01")),
    ("server.backend = cpu", SignalTerm("server.backend"), "=", Constant(("cpu",), "cpu")),
    ("gpu.name in [A100, H 100]", SignalTerm("gpu.name"), "in", Constant(("A100", "H 100"), "[A100, H 100]")),
    ("gpu.pcie.width in [4,8]", SignalTerm("gpu.pcie.width"), "in", Constant((4.0, 8.0), "[4,8]")),
    ("batch.released{reason=timeout} > 1/s", RELEASED, ">", Constant((1.0,), "1/s")),
    ("kv.usage{z=1, a=2} > 1", SignalTerm("kv.usage", (("a", "2"), ("z", "1"))), ">", Constant((1.0,), "1")),
    ("latency.p99 > slo.p99", P99, ">", Reference("slo.p99")),
    ("latency.p99 > 0.8 x slo.p99", P99, ">", Reference("slo.p99", 0.8)),
    ("error.ratio > slo.error_ratio", SignalTerm("error.ratio"), ">", Reference("slo.error_ratio")),
    ("latency.p99 > 1.5 x baseline", P99, ">", Reference("baseline", 1.5)),
    ("latency.p99 > 1.5x baseline", P99, ">", Reference("baseline", 1.5)),
    ("latency.p99 < 0.5 x before", P99, "<", Reference("before", 0.5)),
    ("latency.p99 > baseline", P99, ">", Reference("baseline")),
    ("gpu.count < gpu.count_expected", SignalTerm("gpu.count"), "<", Reference("gpu.count_expected")),
    ("latency.p99 > 4 x latency.p50", P99, ">", Reference("latency.p50", 4.0)),
    ("count(log.xid) > 0", XID, ">", Constant((0.0,), "0")),
    ("count( log.xid ) >= 2", XID, ">=", Constant((2.0,), "2")),
    ("count(log.xid, code in [48, 63]) > 0", CountTerm("log.xid", "code", (48.0, 63.0)), ">", Constant((0.0,), "0")),
    ("count(log.xid, code not in [13]) > 0", CountTerm("log.xid", "code", (13.0,), True), ">", Constant((0.0,), "0")),
    ("count(log.xid, name in [oom]) = 0", CountTerm("log.xid", "name", ("oom",)), "=", Constant((0.0,), "0")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "left", "operator", "right"), COMPARISONS, ids=[row[0] for row in COMPARISONS])
def test_a_comparison_means(text: str, left: object, operator: str, right: object) -> None:
    found = condition(f'"{text}"')
    assert found == Comparison(left, operator, right, text.strip())  # type: ignore[arg-type]  # a row of the table


def test_within_carries_its_tolerance() -> None:
    expected = Comparison(
        SignalTerm("arrival.rate"), "within", Reference("before"), "arrival.rate within 20% of before", tolerance=0.2
    )
    assert condition("arrival.rate within 20% of before") == expected


def test_sure_bounds_are_in_base_units() -> None:
    found = condition("{is: gpu.busy_ratio < 50%, ramp: [70%, 25%]}")
    assert isinstance(found, Comparison)
    assert found.ramp == (0.7, 0.25)
    assert condition("{ramp: [70%, 25%], is: gpu.busy_ratio < 50%}") == found, "the order of keys means nothing"


def test_combinations() -> None:
    one, two = condition("queue.depth > 5"), condition("gpu.busy_ratio < 50%")
    assert condition("{all: [queue.depth > 5, gpu.busy_ratio < 50%]}") == AllOf((one, two))
    assert condition("{any: [queue.depth > 5, gpu.busy_ratio < 50%]}") == AnyOf((one, two))
    assert condition("{not: queue.depth > 5}") == Not(one)
    assert condition("{prefer: queue.depth > 5, otherwise: gpu.busy_ratio < 50%}") == Prefer(one, two)
    assert condition("{otherwise: gpu.busy_ratio < 50%, prefer: queue.depth > 5}") == Prefer(one, two)
    assert condition("{not: {any: [{all: [queue.depth > 5]}]}}") == Not(AnyOf((AllOf((one,)),)))


def test_the_signals_of_a_condition_stand_once_each_in_reading_order() -> None:
    found = condition(
        "{all: [gpu.count < gpu.count_expected, {not: count(log.xid) > 0}, {any: [gpu.count > 1]},"
        " {prefer: latency.p99 > 2 x baseline, otherwise: latency.p99 > slo.p99}]}"
    )
    assert signals_of(found) == ("gpu.count", "gpu.count_expected", "log.xid", "latency.p99")
    assert len(list(comparisons(found))) == 5


@pytest.mark.parametrize(("text", "left"), [(row[0], row[1]) for row in COMPARISONS])
def test_the_left_side_prints_as_it_is_written(text: str, left: object) -> None:
    def bare(written: str) -> str:
        return written.replace(" ", "")

    # Labels print in the order of their names.
    assert bare(text).startswith(bare(str(left))) or "{z=1" in text


BAD = [
    # left side
    ("", "expected a signal on the left"),
    ("50% > queue.depth", "expected a signal on the left"),
    ("> 5", "expected a signal on the left"),
    ("queue.deepness > 5", "'queue.deepness' is not in the signal catalogue"),
    ("queue. > 5", "'queue.' is not in the signal catalogue"),
    ("slo.p99 < 5s", "'slo.p99' is not in the signal catalogue"),
    ("latency > 5s", "latency is a distribution: compare a value of it"),
    ("log.xid > 0", "log.xid is an event: compare a value of it (count("),
    ("count(queue.depth) > 0", "count() takes an event signal, queue.depth is a value"),
    ("count(log.nothing) > 0", "'log.nothing' is not in the signal catalogue"),
    ("count(log.xid, code in [48) > 0", "count(…) reads"),
    ("count(log.xid, code = 48) > 0", "count(…) reads"),
    ("count(log.xid, code in []) > 0", "an empty list"),
    ("batch.released{reason} > 1/s", "a label filter reads {label=value}"),
    ("batch.released{=timeout} > 1/s", "a label filter reads {label=value}"),
    ("batch.released{reason=a, reason=b} > 1/s", "a label filter reads {label=value}"),
    ("batch.released{reason=timeout > 1/s", "expected one of"),
    # operator
    ("queue.depth", "expected one of"),
    ("queue.depth 5", "expected one of"),
    ("queue.depth ~ 5", "expected one of"),
    ("queue.depth is 5", "expected one of"),
    ("queue.depth == 5", "'= 5' is not a quantity"),
    ("queue.depth > 5 and queue.depth < 7", "unknown unit 'and queue.depth < 7'"),
    ("latency.p99 within 20% before", "expected one of"),
    ("latency.p99 within 20ms of before", "'20ms' is not a share"),
    ("latency.p99 within 120% of before", "'120%' is not a share"),
    # right side and its dimension
    ("queue.depth >", "'' is not a quantity"),
    ("latency.p99 > 500", "'500' is a count, latency.p99 is a time"),
    ("latency.p99 > 5GiB", "'5GiB' is a bytes, latency.p99 is a time"),
    ("queue.depth > 50%", "'50%' is a ratio, queue.depth is a count"),
    ("queue.depth > 5 apples", "unknown unit 'apples'"),
    ("queue.depth > many", "'many' is not a quantity"),
    ("queue.depth > nan", "'nan' is not a quantity"),
    ("queue.depth > inf", "'inf' is not a quantity"),
    ("queue.depth > 1e999", "not a finite quantity"),
    ("gpu.row_remap.pending > 50%", "'50%' is a ratio, gpu.row_remap.pending is a count"),
    ("gpu.row_remap.pending = true", "'true' is not a quantity"),
    ("latency.p99 > slo.error_ratio", "slo.error_ratio is a ratio, latency.p99 is a time"),
    ("count(log.xid) > slo.p99", "slo.p99 is a time, log.xid is a count"),
    ("latency.p99 > queue.depth", "latency.p99 and queue.depth cannot be compared (time, count)"),
    ("latency.p99 > latency", "latency.p99 and latency cannot be compared"),
    ("queue.depth > log.xid", "queue.depth and log.xid cannot be compared"),
    ("latency.p99 > 2 x nothing", "after 'N x' expected baseline, before, an slo term or a signal, not 'nothing'"),
    ("latency.p99 > 2 x 500ms", "after 'N x' expected"),
    ("latency.p99 > 1.2.3 x baseline", "'1.2.3' is not a number"),
    ("latency.p99 > 0 x baseline", "a factor is above zero"),
    ("latency.p99 > -2 x baseline", "unknown unit 'x baseline'"),
    # lists
    ("gpu.pcie.width in 4", "`in` takes a list such as [48, 79]"),
    ("gpu.pcie.width in [4", "`in` takes a list such as [48, 79]"),
    ("gpu.pcie.width in []", "an empty list"),
    ("gpu.pcie.width in [4, x]", "'x' is not a quantity"),
    ("latency.p99 in [5]", "'5' is a count, latency.p99 is a time"),
    # texts
    ("server.backend < cpu", "server.backend is a text: compare it with = != or in"),
    ("server.backend >= cpu", "server.backend is a text: compare it with = != or in"),
    ("server.backend within 20% of cpu", "server.backend is a text: compare it with = != or in"),
    ("server.backend = baseline", "server.backend is a text: compare it with = != or in"),
    ("server.backend = server.version", "server.backend is a text: compare it with = != or in"),
    ("server.backend =", "expected a text on the right"),
    # p-values
    ("batch.size.dip_p > 0.01", "batch.size.dip_p is a p-value: it can only be below a limit"),
    ("batch.size.dip_p >= 0.01", "batch.size.dip_p is a p-value: it can only be below a limit"),
    ("batch.size.dip_p = 0.01", "batch.size.dip_p is a p-value: it can only be below a limit"),
    ("batch.size.dip_p in [0.01]", "batch.size.dip_p is a p-value: it can only be below a limit"),
    ("batch.size.dip_p within 5% of 0.01", "batch.size.dip_p is a p-value: it can only be below a limit"),
    ("batch.size.dip_p < 2 x baseline", "batch.size.dip_p is a p-value: it can only be below a limit"),
]  # fmt: skip

BAD_MAPPINGS = [
    ("[queue.depth > 5]", "a condition is a comparison, or one of all, any, not, prefer, is"),
    ("{}", "a condition is a comparison, or one of all, any, not, prefer, is"),
    ("{every: [queue.depth > 5]}", "unknown key 'every'"),
    ("{all: [queue.depth > 5], any: [queue.depth > 6]}", "unknown key 'any'"),
    ("{all: queue.depth > 5}", "'all' takes a list of conditions"),
    ("{any: []}", "'any' takes a list of conditions"),
    ("{not: []}", "a condition is a comparison"),
    ("{not: [queue.depth > 5]}", "a condition is a comparison"),
    ("{prefer: queue.depth > 5}", "lacks 'otherwise'"),
    ("{otherwise: queue.depth > 5}", "unknown key 'otherwise'"),
    ("{prefer: queue.depth > 5, otherwise: queue.depth > 6, else: queue.depth > 7}", "unknown key 'else'"),
    ("{ramp: [1, 2]}", "unknown key 'ramp'"),
    ("{is: queue.depth > 5}", "sure takes two quantities"),
    ("{is: queue.depth > 5, ramp: [1]}", "sure takes two quantities"),
    ("{is: queue.depth > 5, ramp: [1, 6, 9]}", "sure takes two quantities"),
    ("{is: queue.depth > 5, ramp: 6}", "'ramp' must be a list"),
    ("{is: queue.depth > 5, ramp: [1s, 9s]}", "'1s' is a time, queue.depth is a count"),
    ("{is: {any: [queue.depth > 5]}, ramp: [1, 9]}", "expected a signal on the left"),
    ("{is: queue.depth > 5, ramp: [9, 1]}", "must lie between clear and certain"),
    ("{is: queue.depth > 5, ramp: [6, 9]}", "must lie between clear and certain"),
    ("{is: queue.depth > 5, ramp: [1, 5]}", "must lie between clear and certain"),
    ("{is: queue.depth > 5, ramp: [5, 9]}", "must lie between clear and certain"),
    ("{is: gpu.busy_ratio < 50%, ramp: [25%, 70%]}", "must lie between clear and certain"),
    ("{is: gpu.busy_ratio < 50%, ramp: [40%, 25%]}", "must lie between clear and certain"),
    ("{is: queue.depth = 5, ramp: [1, 9]}", "sure goes with < <= > >= and a constant limit"),
    ("{is: latency.p99 > slo.p99, ramp: [1s, 9s]}", "sure goes with < <= > >= and a constant limit"),
    ("{is: latency.p99 > 2 x baseline, ramp: [1s, 9s]}", "sure goes with < <= > >= and a constant limit"),
    ("{is: batch.size.dip_p < 0.01, ramp: [0.1, 0.001]}", "sure does not go with a p-value"),
    ("{is: gpu.row_remap.pending > 0.5, ramp: [0, 1]}", "sure does not go with a flag"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD, ids=[row[0] or "empty" for row in BAD])
def test_a_bad_comparison_is_refused_with_its_text_place_and_reason(text: str, message: str) -> None:
    found, problems = read(f'"{text}"')
    assert found is None
    assert len(problems) == 1
    assert problems[0].where == "rule.yaml:1"
    assert message in problems[0].what
    assert problems[0].what.startswith(repr(text))


@pytest.mark.parametrize(("text", "message"), BAD_MAPPINGS, ids=[row[0] for row in BAD_MAPPINGS])
def test_a_bad_combination_is_refused_with_its_reason(text: str, message: str) -> None:
    _, problems = read(text)
    assert any(message in problem.what for problem in problems), [str(problem) for problem in problems]


def test_all_problems_of_a_condition_are_told_at_once_each_with_its_line() -> None:
    _, problems = read(
        "all:\n"
        "  - queue.deepness > 5\n"
        "  - any:\n"
        "      - latency.p99 > 500\n"
        "      - not: server.backend < cpu\n"
        "  - is: gpu.busy_ratio < 50%\n"
        "    ramp: [25%, 70%]\n"
        "  - prefer: log.xid > 0\n"
        "    otherwise: {every: [queue.depth > 5]}\n"
        "more: 1\n"
    )
    assert [problem.where for problem in problems] == [f"rule.yaml:{line}" for line in (2, 4, 5, 6, 8, 9, 10)]


WORDS = """
queue.depth latency.p99 server.backend batch.size.dip_p gpu.row_remap.pending log.xid count( ) { } [ ] , = != < <= > >=
in not within of x 20% 1.5 500ms baseline before slo.p99 code reason 48 nan 1e999 -1 . é
"""
TOKENS = st.sampled_from(WORDS.split())


@given(st.lists(TOKENS, max_size=9).map(" ".join) | st.lists(TOKENS, max_size=9).map("".join) | st.text(max_size=30))
def test_any_text_is_a_condition_or_a_problem_and_never_an_exception(text: str) -> None:
    problems: list[Problem] = []
    found = parse_condition(Node(text, "here"), problems)
    assert (found is None) == bool(problems)
