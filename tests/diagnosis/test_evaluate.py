"""Evaluated findings: several subjects, gaps, and messages."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from latdoctor.conditions.evaluator import Facts
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.evaluate import Provider, judge
from latdoctor.diagnosis.result import Check
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evidence.model import Event, Evidence, Gap, Origin, Reading, Subject
from tests.diagnosis.small_rules import at, cause, written

FINDINGS = """
- {id: deep, message: "{queue.depth} requests wait", when: queue.depth > 10, tier: application, leak: 2%}
- {id: busy-host, message: busy, when: {all: [gpu.utilization < 50%, host.cpu.busy_ratio > 90%]}, tier: infrastructure,
   leak: 2%}
- {id: slow, message: "P99 {latency.p99}, SLO {slo.p99}", when: latency.p99 > slo.p99, kind: symptom, usual: 50%,
   leak: 2%}
- {id: slower, message: slower than usual, when: latency.p99 > 2 x baseline, kind: symptom, usual: 50%,
   leak: 2%}
- {id: launches, message: many, when: trace.kernels > 10, tier: framework, leak: 2%,
   not_applicable_when: server.backend = cpu}
- {id: xid, message: "Xid {log.xid:code} on {log.xid:pci}", when: "count(log.xid, code in [48, 1234567]) > 0",
   tier: infrastructure, leak: 0.1%}
- {id: halves, message: "{host.cpu.busy_ratio} busy", when: {all: [gpu.utilization < 50%, host.cpu.busy_ratio > 90%]},
   tier: infrastructure, leak: 2%}
- {id: idle, message: idle, when: {all: [gpu.busy_ratio < 50%], given: trace.kernels >= 20}, tier: framework, leak: 2%}
"""


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    return rule_loader.read([written(tmp_path, FINDINGS, {"any.cause": cause("any.cause", expects="{deep: 90%}")})])


def judged(rules: RuleSet, name: str, seen: Evidence, *providers: Provider, **more: dict) -> Check:
    facts = Facts(seen, more.get("slo", {}), more.get("baseline", {}), {})
    return next(check for check in judge(rules, facts, providers) if check.id == name)


def gap(signal: str, subject: str | None) -> Gap:
    return Gap("page", "the field was blank", (signal,), subject)


DEEP = [
    # values per subject, gaps → status, subjects
    ({"a": 60, "b": 60}, (), "fired", {"model/a", "model/b"}),
    ({"a": 60, "b": 1}, (), "fired", {"model/a"}),
    ({"a": 60}, ("model/b",), "fired", {"model/a"}),
    ({"a": 1, "b": 1}, (), "clear", {"model/a", "model/b"}),
    ({"a": 1}, ("model/b",), "not-evaluated", {"model/b"}),
    ({"a": 1, "b": float("nan")}, (), "not-evaluated", {"model/b"}),
    ({}, ("model/b",), "not-evaluated", {"model/b"}),
    ({}, (None,), "not-evaluated", set()),
    ({}, (), "not-evaluated", set()),
    # Nothing is averaged: the mean of these would be clear, and the mean of the second line would fire.
    ({"a": 60, "b": 0, "c": 0, "d": 0, "e": 0, "f": 0, "g": 0}, (), "fired", {"model/a"}),
    ({"a": 9, "b": 9, "c": 9}, (), "clear", {"model/a", "model/b", "model/c"}),
]


@pytest.mark.parametrize(("values", "gaps", "status", "subjects"), DEEP)
@pytest.mark.parametrize("order", [1, -1])
def test_a_finding_over_several_subjects(
    rules: RuleSet, values: dict, gaps: tuple, status: str, subjects: set, order: int
) -> None:
    readings = tuple(at("queue.depth", float(value), f"model/{name}") for name, value in values.items())
    seen = Evidence(readings=readings[::order], gaps=tuple(gap("queue.depth", subject) for subject in gaps))
    found = judged(rules, "deep", seen)
    assert found.status == status
    assert set(found.subjects) == subjects


def test_the_loudest_subject_stands_first_and_lends_its_numbers(rules: RuleSet) -> None:
    readings = (
        at("queue.depth", 12.0, "model/a"),
        at("queue.depth", 14.0, "model/b"),
        at("queue.depth", 11.0, "model/c"),
    )
    found = judged(rules, "deep", Evidence(readings=readings))
    assert found.subjects == ("model/b", "model/a", "model/c")
    assert found.message == "14 requests wait"
    alone = judged(rules, "deep", Evidence(readings=readings[1:2]))
    assert found.ln_lambda == alone.ln_lambda, "the strongest, not the mean and not the sum"


def test_a_clear_finding_weighs_as_its_nearest_subject(rules: RuleSet) -> None:
    near, far = at("queue.depth", 9.0, "model/a"), at("queue.depth", 0.0, "model/b")
    both = judged(rules, "deep", Evidence(readings=(near, far)))
    assert both.ln_lambda == judged(rules, "deep", Evidence(readings=(near,))).ln_lambda < 0


def family(*readings: object, gaps: tuple[Gap, ...] = ()) -> Evidence:
    subjects = (Subject("node/a"), Subject("gpu/0", "node/a"), Subject("gpu/1", "node/a"), Subject("gpu/2", "node/b"))
    return Evidence(subjects=subjects, readings=readings, gaps=gaps)  # type: ignore[arg-type]  # readings of a table


FAMILY = [
    ((at("gpu.utilization", 0.1, "gpu/0"), at("host.cpu.busy_ratio", 0.99, "node/a")), "fired", ("gpu/0",)),
    ((at("gpu.utilization", 0.1, "gpu/2"), at("host.cpu.busy_ratio", 0.99, "node/a")), "not-evaluated", None),
    ((at("gpu.utilization", 0.9, "gpu/0"), at("host.cpu.busy_ratio", 0.99, "node/a")), "clear", ("gpu/0",)),
    ((at("gpu.utilization", 0.9, "gpu/2"), at("host.cpu.busy_ratio", 0.10, "node/a")), "clear", None),
    ((at("host.cpu.busy_ratio", 0.99, "node/a"),), "not-evaluated", ("node/a",)),
    (
        (
            at("gpu.utilization", 0.1, "gpu/0"),
            at("gpu.utilization", 0.9, "gpu/1"),
            at("host.cpu.busy_ratio", 0.99, "node/a"),
        ),
        "fired",
        ("gpu/0",),
    ),
]


@pytest.mark.parametrize(("readings", "status", "subjects"), FAMILY)
def test_subjects_meet_only_through_a_declared_parent(
    rules: RuleSet, readings: tuple, status: str, subjects: tuple | None
) -> None:
    found = judged(rules, "busy-host", family(*readings))
    assert found.status == status
    if subjects is not None:
        assert found.subjects == subjects


def test_a_parents_own_reading_is_judged_beside_its_childrens(rules: RuleSet) -> None:
    """The whole server is slow while the one model that tells its own queue is not."""
    subjects = (Subject("server/s"), Subject("model/a", "server/s"), Subject("model/b", "server/s"))
    loud, quiet = at("queue.depth", 60.0, "server/s"), at("queue.depth", 1.0, "model/a")
    found = judged(rules, "deep", Evidence(subjects=subjects, readings=(loud, quiet)))
    assert (found.status, found.subjects) == ("fired", ("server/s",))
    calm = at("queue.depth", 1.0, "server/s")
    assert judged(rules, "deep", Evidence(subjects=subjects, readings=(calm, quiet))).status == "clear"
    child = judged(rules, "deep", Evidence(subjects=subjects, readings=(calm, at("queue.depth", 60.0))))
    assert (child.status, child.subjects) == ("fired", ("model/a",))


@pytest.mark.parametrize(
    ("readings", "status"),
    [
        ((at("server.backend", "cpu", "server/s"),), "not-applicable"),
        # What was seen is never hidden by what a server says of itself.
        ((at("server.backend", "cpu", "server/s"), at("trace.kernels", 99.0, "trace/t")), "fired"),
        ((at("server.backend", "cpu", "server/s"), at("trace.kernels", 9.0, "trace/t")), "clear"),
        ((at("server.backend", "cpu", "server/s"), at("trace.kernels", float("nan"), "trace/t")), "not-applicable"),
        ((at("server.backend", "cuda", "server/s"),), "not-evaluated"),
        ((at("server.backend", "cuda", "server/s"), at("trace.kernels", 99.0, "trace/t")), "fired"),
        ((at("server.backend", "cpu", "server/s"), at("server.backend", "cuda", "server/t")), "not-evaluated"),
        ((), "not-evaluated"),
    ],
)
def test_not_applicable_takes_positive_proof_everywhere(rules: RuleSet, readings: tuple, status: str) -> None:
    assert judged(rules, "launches", Evidence(readings=readings)).status == status


def test_the_statement_carries_its_numbers(rules: RuleSet) -> None:
    slow = Evidence(readings=(at("latency.p99", 0.75),))
    assert judged(rules, "slow", slow, slo={"slo.p99": 0.5}).message == "P99 750 ms, SLO 500 ms"
    assert judged(rules, "slow", slow, slo={"slo.p99": 1}).message == "P99 750 ms, SLO 1 s"
    assert judged(rules, "slow", slow).message == "slow", "not evaluated: no numbers"


@pytest.mark.parametrize(("code", "shown"), [(48.0, "48"), (48, "48"), (1234567.0, "1234567")])
def test_an_events_fields_are_shown_whole(rules: RuleSet, code: float, shown: str) -> None:
    other = Event("log.xid", "gpu/0", Origin("dmesg.log", "line 1"), {"code": 13.0, "pci": "0000:01"})
    event = Event("log.xid", "gpu/0", Origin("dmesg.log", "line 2"), {"code": code, "pci": "0000:65"})
    seen = Evidence(events=(other, event), looked=(("log.xid", "gpu/0"),))
    assert judged(rules, "xid", seen).message == f"Xid {shown} on 0000:65"
    none = judged(rules, "xid", Evidence(events=(other,), looked=(("log.xid", "gpu/0"),)))
    assert (none.status, none.message) == ("not-applicable", "xid"), "no numbers: there is no Xid to tell of"


def test_a_statement_never_says_unknown(rules: RuleSet) -> None:
    """One half of `all` is clear and the number of the sentence is not known."""
    subjects = (Subject("node/a"), Subject("gpu/0", "node/a"))
    readings = (at("gpu.utilization", 0.9, "gpu/0"), at("host.cpu.busy_ratio", float("nan"), "node/a"))
    found = judged(rules, "halves", Evidence(subjects=subjects, readings=readings))
    assert (found.status, found.message) == ("clear", "halves")


OPEN = ", which leaves open whether it is"
BOUNDS = [
    # the value, its bound, the SLO → status, what is said or why nothing is
    (1.0, "at least", 0.5, "fired", "P99 at least 1 s, SLO 500 ms"),
    (1.0, "at least", 2.0, "not-evaluated", f"latency.p99 is at least 1 s{OPEN} > 2 s (slo.p99)"),
    (1.0, "at most", 2.0, "clear", "P99 at most 1 s, SLO 2 s"),
    (1.0, "at most", 0.5, "not-evaluated", f"latency.p99 is at most 1 s{OPEN} > 500 ms (slo.p99)"),
]


@pytest.mark.parametrize(("value", "bound", "slo", "status", "said"), BOUNDS)
def test_a_bound_fires_or_clears_only_what_it_settles(
    rules: RuleSet, value: float, bound: str, slo: float, status: str, said: str
) -> None:
    seen = Evidence(readings=(Reading("latency.p99", "model/a", value, Origin("page.txt"), bound=bound),))
    found = judged(rules, "slow", seen, slo={"slo.p99": slo})
    assert (found.status, found.reason or found.message) == (status, said)


def test_too_few_samples_leave_a_finding_not_evaluated(rules: RuleSet) -> None:
    few, many = (
        Evidence(readings=(at("gpu.busy_ratio", 0.9, "trace/t"), at("trace.kernels", kernels, "trace/t")))
        for kernels in (1.0, 20.0)
    )
    found = judged(rules, "idle", few)
    assert (found.status, found.reason) == ("not-evaluated", "trace.kernels is 1, and >= 20 is needed to decide")
    assert judged(rules, "idle", many).status == "clear"


PAGE = Provider("prometheus", "--metrics FILE", "1 s", frozenset({"queue.depth"}))
LOG = Provider("logs", "--log FILE", "1 s", frozenset({"queue.depth"}))


@pytest.mark.parametrize(
    ("name", "seen", "providers", "slo", "reason"),
    [
        ("deep", Evidence(), (), {}, "nothing shows queue.depth"),
        ("deep", Evidence(), (PAGE, LOG), {}, "needs --metrics FILE or --log FILE"),
        ("deep", Evidence(gaps=(gap("queue.depth", None),)), (PAGE,), {}, "the field was blank"),
        ("slow", Evidence(readings=(at("latency.p99", 0.75),)), (), {}, "no SLO given (--slo LIMIT)"),
        ("slow", Evidence(), (), {"slo.p99": 1.0}, "nothing shows latency.p99"),
        ("slower", Evidence(readings=(at("latency.p99", 0.75),)), (), {}, "no baseline given (--baseline FILE)"),
        ("xid", Evidence(), (), {}, "nothing shows log.xid"),
    ],
)
def test_why_a_finding_was_not_evaluated(
    rules: RuleSet, name: str, seen: Evidence, providers: tuple, slo: dict, reason: str
) -> None:
    found = judged(rules, name, seen, *providers, slo=slo)
    assert (found.status, found.reason, found.ln_lambda) == ("not-evaluated", reason, 0.0)


def test_a_baseline_of_zero_is_told_apart_from_none(rules: RuleSet) -> None:
    seen = Evidence(readings=(at("latency.p99", 0.75),))
    found = judged(rules, "slower", seen, baseline={("latency.p99", "model/a"): 0.0})
    assert (found.status, found.reason) == ("not-evaluated", "nothing is a multiple of a baseline of zero")


def test_the_number_shown_is_the_number_judged(tmp_path: Path) -> None:
    text = """
- {id: timeouts, message: "{batch.released} batches by timeout", when: "batch.released{reason=timeout} > 1/s",
   tier: application, leak: 2%}
"""
    rules = rule_loader.read([written(tmp_path, text, {"any.cause": cause("any.cause", expects="{timeouts: 90%}")})])
    total, timeouts = at("batch.released", 9.0), at("batch.released", 4.0)
    labelled = Reading(timeouts.signal, timeouts.subject, 4.0, timeouts.origin, labels=(("reason", "timeout"),))
    assert judged(rules, "timeouts", Evidence(readings=(total, labelled))).message == "4/s batches by timeout"


def test_every_finding_is_judged_once_in_the_order_of_the_rules(rules: RuleSet) -> None:
    checks = judge(rules, Facts(Evidence(), {}, {}, {}), ())
    assert [check.id for check in checks] == sorted(finding.id for finding in rules.findings)
    turned = dataclasses.replace(rules, findings=rules.findings[::-1])
    assert judge(turned, Facts(Evidence(), {}, {}, {}), ()) == checks[::-1]


@pytest.mark.parametrize(
    ("readings", "message"),
    [
        ((at("queue.depth", 60.0),), "60 wait"),
        ((at("queue.depth", 60.0), at("queue.time.mean", 2.0)), "60 wait, 2 s each"),
    ],
)
def test_a_part_in_brackets_is_said_only_where_its_numbers_are_known(
    tmp_path: Path, readings: tuple, message: str
) -> None:
    text = """
- {id: deep, message: "{queue.depth} wait[, {queue.time.mean} each]", when: queue.depth > 10,
   tier: application, leak: 2%}
"""
    rules = rule_loader.read([written(tmp_path, text, {"any.cause": cause("any.cause", expects="{deep: 90%}")})])
    assert judged(rules, "deep", Evidence(readings=readings)).message == message
