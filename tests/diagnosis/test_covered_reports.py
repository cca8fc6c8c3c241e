"""No check is clear of what its own search found, whatever events a text has."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.conditions.ast import CountTerm, comparisons
from latdoctor.conditions.evaluator import Facts
from latdoctor.diagnosis import noisy_or, rule_loader
from latdoctor.diagnosis.codes import CheckStatus, ReasonCode
from latdoctor.diagnosis.evaluate import judge
from latdoctor.diagnosis.result import Check
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evidence.model import Event, Evidence, Origin, Subject, Value

XIDS = (13, 31, 43, 45, 48, 63, 74, 79, 94, 109, 119, 137, 154)
CUDA = (2, 100, 214, 220, 700, 704, 719, 802)
DCGM = ("NVLINK_DOWN", "CLOCKS_EVENT_THERMAL", "FALLEN_OFF_BUS", "PCIE_WIDTH", "SOMETHING_NEW")
GPUS = ("gpu/0", "gpu/1")


@cache
def rules() -> RuleSet:
    return rule_loader.shipped()


def event(signal: str, subject: str, number: int, fields: dict[str, Value]) -> Event:
    return Event(signal, subject, Origin("logs/x", f"line {number}"), fields, None, f"{signal} {number}")


@st.composite
def texts(draw: st.DrawFn) -> Evidence:
    """The events of a log, and whether it was searched for each signal."""
    xids = draw(st.lists(st.tuples(st.sampled_from(XIDS), st.sampled_from(GPUS)), max_size=4))
    calls = draw(st.lists(st.tuples(st.sampled_from(CUDA), st.booleans()), max_size=3))
    named = draw(st.lists(st.sampled_from(DCGM), max_size=3))
    fatal = draw(st.lists(st.sampled_from(["fatal", "non-fatal"]), max_size=2))
    events = [event("log.xid", gpu, n, {"code": float(code), "action": ""}) for n, (code, gpu) in enumerate(xids)]
    events += [
        event("log.cuda_error", "node/a", n, {"code": float(code), "secondary": float(later), "name": f"error {code}"})
        for n, (code, later) in enumerate(calls)
    ]
    events += [event("log.dcgm_error", "node/a", n, {"name": name}) for n, name in enumerate(named)]
    events += [event("log.sxid", "node/a", n, {"severity": word}) for n, word in enumerate(fatal)]
    searched = draw(st.sets(st.sampled_from(["log.xid", "log.cuda_error", "log.dcgm_error", "log.sxid"])))
    looked = [(signal, subject) for signal in sorted(searched) for subject in ("node/a", *GPUS)]
    subjects = (Subject("node/a"), *(Subject(gpu, parent="node/a") for gpu in GPUS))
    return Evidence(subjects=subjects, events=tuple(events), looked=tuple(looked))


def checks_of(evidence: Evidence) -> tuple[Check, ...]:
    return judge(rules(), Facts(evidence, {}, {}, {}), ())


def families(check: Check) -> set[str]:
    condition = rules().finding[check.id].when
    return {one.left.signal for one in comparisons(condition) if isinstance(one.left, CountTerm)}


@given(texts())
def test_a_clear_check_counts_nothing_that_was_found(evidence: Evidence) -> None:
    found = {one.signal for one in evidence.events}
    for check in checks_of(evidence):
        if check.status == CheckStatus.CLEAR:
            assert not families(check) & found, check.id
        if any(reason.code == ReasonCode.COVERED for reason in check.reasons):
            assert check.status == CheckStatus.NOT_APPLICABLE
            assert families(check) & found


@given(texts())
def test_the_ranking_weighs_a_covered_check_as_one_that_does_not_hold(evidence: Evidence) -> None:
    checks = checks_of(evidence)
    for one in noisy_or.Network.of(rules(), checks).observations:
        check = next(check for check in checks if check.id == one.finding.id)
        assert (one.ln_lambda > 0) == (check.status == CheckStatus.FIRED)


@pytest.mark.parametrize(
    ("signal", "codes", "check", "owner"),
    [
        ("log.cuda_error", (704,), "cuda-calls-fail", "of a kind that this check leaves out"),
        ("log.cuda_error", (214,), "cuda-calls-fail", "covered by cuda-reports-memory-error"),
        ("log.cuda_error", (2,), "cuda-calls-fail", "covered by cuda-out-of-memory"),
        ("log.xid", (79,), "gpu-xid", "covered by gpu-fell-off-bus"),
        ("log.xid", (79, 154), "gpu-xid", "covered by gpu-fell-off-bus"),
        ("log.xid", (48,), "gpu-xid", "covered by gpu-ecc-xid"),
    ],
)
def test_the_reason_names_what_was_found_and_who_judges_it(
    signal: str, codes: tuple[int, ...], check: str, owner: str
) -> None:
    events = tuple(
        event(signal, "gpu/0", n, {"code": float(code), "secondary": 0.0, "action": ""}) for n, code in enumerate(codes)
    )
    seen = Evidence(subjects=(Subject("gpu/0"),), events=events, looked=((signal, "gpu/0"),))
    found = next(one for one in checks_of(seen) if one.id == check)
    assert found.status == CheckStatus.NOT_APPLICABLE
    assert owner in found.reason
    assert all(str(code) in found.reason for code in codes)
