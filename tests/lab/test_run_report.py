"""Which causes a run confirms, what spoils it, and whether it came back: the sums, without a server."""

from __future__ import annotations

import msgspec
import pytest

from latdoctor.lab.run_report import (
    CauseEffect,
    LeaveOneOut,
    PhaseReport,
    RunReport,
    ServerLoad,
    confirmed,
    is_recovered,
    recovered,
    truth_file,
    unsteady,
    without_its_cause,
)
from latdoctor.lab.scenario import InjectedCause, Scenario, ScenarioPhase


def _phase(name: str, p99: float | None, requests: int = 100, answered: int = 100, good: int = 100) -> PhaseReport:
    nothing = dict.fromkeys(
        [
            *("p50", "p95", "calls_per_answer", "padding_waste", "batch_size_mean"),
            *("allocations_per_call", "page_faults_per_call", "queue_depth"),
        ]
    )
    counts = {"requests": requests, "answered": answered, "good": good, "refused": 0, "failed": 0, "timed_out": 0}
    return msgspec.convert(
        {"name": name, "p99": p99, "goodput": 1.0, "forward_calls": 1.0, **counts, **nothing}, PhaseReport
    )


def _report(*truth: CauseEffect, p99: float | None = 1.0) -> RunReport:
    return RunReport(
        scenario="x",
        seed=1,
        rate=10.0,
        started=0.0,
        slo=0.5,
        incident="incident",
        phases=(_phase("before", 0.1), _phase("incident", p99)),
        problems=(),
        recovered=None,
        truth=truth,
    )


@pytest.mark.parametrize(("without", "moves"), [(0.1, True), (0.7, True), (0.71, False), (1.2, False), (None, None)])
def test_a_cause_is_true_where_taking_it_away_alone_moves_the_tail(without: float | None, moves: bool | None) -> None:
    report = confirmed(_report(CauseEffect("a"), CauseEffect("b")), [LeaveOneOut("a", without)])
    assert [(one.cause, one.moves) for one in report.truth] == [("a", moves), ("b", None)]
    assert truth_file(report)["truth"] == (["a"] if moves else [])
    assert truth_file(report)["injected"] == [msgspec.to_builtins(one) for one in report.truth]


@pytest.mark.parametrize(
    ("truth", "after", "expected"),
    [
        ((InjectedCause("a"),), True, "after"),
        ((InjectedCause("a"),), False, "before"),
        ((InjectedCause("a", without_retries=True),), True, None),
        ((InjectedCause("a"), InjectedCause("b")), True, None),
        ((), True, None),
    ],
)
def test_single_cause_is_confirmed_by_the_phase_after_or_before(
    truth: tuple[InjectedCause, ...], after: bool, expected: str | None
) -> None:
    scenario = Scenario("x", "x", (ScenarioPhase("before", 1.0), ScenarioPhase("incident", 1.0)), truth=truth)
    phase = without_its_cause(scenario, _phase("before", 0.1), _phase("after", 0.2) if after else None)
    assert (phase and phase.name) == expected


def test_an_incident_without_any_time_confirms_nothing() -> None:
    (one,) = confirmed(_report(CauseEffect("a"), p99=None), [LeaveOneOut("a", 0.1)]).truth
    assert one.moves is None


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (_phase("before", 0.1), None),
        (_phase("before", 0.1, requests=0, answered=0, good=0), None),
        (_phase("before", 0.1, answered=98), "only 98 of 100 requests were answered"),
        (_phase("before", 0.1, good=94), "only 94 of 100 requests were answered within the SLO"),
    ],
)
def test_a_run_without_a_steady_beginning_is_spoiled(before: PhaseReport, reason: str | None) -> None:
    assert [problem.text for problem in unsteady(before)] == ([f"before: {reason}"] if reason else [])


@pytest.mark.parametrize(
    ("before", "after", "back"),
    [(0.1, 0.4, True), (0.1, 0.6, False), (0.4, 0.8, True), (None, 0.1, None), (0.1, None, None)],
)
def test_a_tail_is_back_within_the_slo_or_twice_what_it_was(
    before: float | None, after: float | None, back: bool | None
) -> None:
    assert recovered(_phase("before", before), _phase("after", after), slo=0.5) is back


@pytest.mark.parametrize(
    ("before", "after", "back"),
    [
        (ServerLoad(50.0, 0.03, 2.0), ServerLoad(50.0, 0.049, 2.0), True),
        (ServerLoad(50.0, 0.03, 2.0), ServerLoad(50.0, 0.07, 2.0), False),
        (ServerLoad(50.0, 0.3, 2.0), ServerLoad(50.0, 0.6, 2.0), True),
        (ServerLoad(50.0, 0.03, 2.0), ServerLoad(50.0, 0.03, 11.0), False),
        (ServerLoad(50.0, 0.03, 2.0), ServerLoad(0.0, None, 0.0), True),
    ],
)
def test_a_server_is_back_when_neither_time_nor_queue_says_otherwise(
    before: ServerLoad, after: ServerLoad, back: bool
) -> None:
    assert is_recovered(before, after) is back
