"""Incidents that are mended: which there are, what counts, what comes out of it, and one that is really played."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from latdoctor import case_from_bundle
from latdoctor.case_from_bundle import remedy_of
from latdoctor.diagnosis.diagnose import Stamp, diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_loader import shipped as shipped_rules
from latdoctor.errors import UsageError
from latdoctor.evaluation.ground_truth import TimeRange
from latdoctor.evaluation.remediation import report as page
from latdoctor.evaluation.remediation import run_specs as listed
from latdoctor.evaluation.remediation import runner
from latdoctor.evaluation.remediation import simulated_operator as user
from latdoctor.evaluation.remediation.run_record import (
    IncidentTimes,
    RemediationOutcome,
    RemediationReport,
    SaturatedRates,
    SloAlarm,
    is_incident,
    spoiled,
    within,
)
from latdoctor.evaluation.remediation.run_specs import (
    QUICK,
    PlaybookChoice,
    RemediationRunSpec,
    planned_runs,
    remediable_scenarios,
    sliced_load,
    unattended_scenario,
)
from latdoctor.evaluation.remediation.scores import RemediationAttempt, RemediationStore, score
from latdoctor.evaluation.remediation.simulated_operator import SelectedPlaybook, ServiceAccess, SimulatedOperator
from latdoctor.evaluation.store import record
from latdoctor.evidence.bundle_files import opened
from latdoctor.lab.run_report import PhaseReport
from latdoctor.lab.scenario import LoadSettings, Scenario, ScenarioPhase, find
from latdoctor.load.arrivals import Poisson
from latdoctor.load.latencies import Latencies
from latdoctor.load.openloop import Progress
from latdoctor.load.plan import MAX_PHASES, LoadPhase, LoadPlan
from latdoctor.load.summary import (
    GeneratorHealth,
    LoadProblem,
    LoadProblemCode,
    LoadResult,
    PhaseResult,
    RequestCounts,
    summary,
)
from latdoctor.remediation import proof
from latdoctor.remediation.playbook_library import shipped

ROOT = Path(__file__).parents[2]


# --- which runs there are


def test_the_quick_runs_come_first_and_every_run_has_a_name_of_its_own() -> None:
    whole = planned_runs(shipped())
    assert whole[: len(QUICK)] == planned_runs(shipped(), quick=True)
    assert [cell.scenario for cell in planned_runs(shipped(), quick=True)] == list(QUICK)
    assert len({cell.run for cell in whole}) == len(whole)


def test_every_addressed_fault_has_a_run() -> None:
    played = {cell.scenario for cell in planned_runs(shipped()) if cell.kind is PlaybookChoice.DIAGNOSED}
    assert played == set(remediable_scenarios(shipped()))
    assert {"promo-rush", "threads", "bad-rollout"} <= played
    assert not {"no-fault", "busy", "gc-pauses"} & played


@pytest.mark.parametrize(("scenario", "playbook"), listed.WRONG_PLAYBOOKS)
def test_a_wrong_playbook_addresses_nothing_that_is_wrong_there(scenario: str, playbook: str) -> None:
    causes = {ground_truth.cause for ground_truth in find(scenario).causes}
    assert not causes & set(shipped().find(playbook).addresses)


@pytest.mark.parametrize("name", remediable_scenarios(shipped()))
def test_unattended_incident_continues_at_its_rate(name: str) -> None:
    scenario = unattended_scenario(name)
    assert scenario.phases[-1].name == "incident"
    assert scenario.phases[-1].config == find(name).incident.config
    for fault in scenario.incident.faults:
        lifetime = fault.toxic.lifetime if hasattr(fault, "toxic") else getattr(fault, "lifetime", None)
        assert lifetime in (None, listed.LIFETIME)
    plan = sliced_load(scenario.plan(10.0, 1))
    assert len(plan.phases) == MAX_PHASES
    assert msgspec.json.decode(msgspec.json.encode(plan), type=LoadPlan) == plan
    first = scenario.plan(10.0, 1).phases[-1].arrivals.expected(1.0)
    assert plan.phases[-1].arrivals == Poisson(first)
    assert plan.phases[-1].mix == scenario.incident.mix


# --- what a run is measured by


def whole(name: str, start: float, p99: float, *, answered: int = 100, late: float = 0.001) -> PhaseResult:
    counts = RequestCounts(requests=100, answered=answered, attempts=100, good=answered if p99 <= 0.5 else 0)
    return PhaseResult(name, start, summary(4.0, counts, Latencies([p99] * 100), {"200": answered}, late), {})


def loaded(*phases: PhaseResult, problems: tuple[LoadProblem, ...] = ()) -> LoadResult:
    plan = LoadPlan(tuple(LoadPhase(phase.name, 4.0, Poisson(25.0)) for phase in phases))
    total = phases[0].whole
    return LoadResult(
        plan, "", "", 0.0, 20.0, 0, total, {}, phases, (), GeneratorHealth(0.0, 0.0, 0.0, 0.1, 9), problems
    )


FIGURES = PhaseReport(
    name="before", requests=100, answered=100, refused=0, failed=0, timed_out=0, good=100, p50=0.05, p95=0.1, p99=0.2,
    goodput=20.0, forward_calls=50.0, calls_per_answer=0.5, padding_waste=0.0, batch_size_mean=2.0,
    allocations_per_call=None, page_faults_per_call=10.0, queue_depth=0.0,
)  # fmt: skip
ILL = msgspec.structs.replace(
    FIGURES, name="incident", good=20, p99=4.0, goodput=4.0, calls_per_answer=1.0, page_faults_per_call=900.0
)
AFTER = msgspec.structs.replace(FIGURES, name="after", p99=0.4, page_faults_per_call=9.0)


def test_only_whole_slices_within_a_time_are_merged() -> None:
    result = loaded(whole("before", 0.0, 0.1), whole("incident", 4.0, 2.0), whole("incident-2", 8.0, 6.0))
    merged = within(result, TimeRange(4.0, 12.0))
    assert merged is not None
    assert merged.counts.requests == 200
    assert merged.p99 == pytest.approx(6.0, rel=0.01)
    alone = within(result, TimeRange(4.5, 12.0))
    assert alone is not None
    assert alone.counts.requests == 100
    assert within(result, TimeRange(9.0, 12.0)) is None


@pytest.mark.parametrize(
    ("reported", "before", "incident", "others", "reasons"),
    [
        ((), FIGURES, ILL, 0.02, []),
        ((), FIGURES, ILL, None, []),
        ((LoadProblem(LoadProblemCode.STOPPED, "stopped"),), FIGURES, ILL, 0.0, []),
        ((LoadProblem(LoadProblemCode.GENERATOR_LATE, "late", "incident-2"),), FIGURES, ILL, 0.0, []),
        ((LoadProblem(LoadProblemCode.GENERATOR_LATE, "late", "incident"),), FIGURES, ILL, 0.0, ["incident: "]),
        ((LoadProblem(LoadProblemCode.GENERATOR_BUSY, "used 90% of a core"),), FIGURES, ILL, 0.0, ["90%"]),
        ((), FIGURES, ILL, 0.4, ["40%"]),
        ((), msgspec.structs.replace(FIGURES, good=50), ILL, 0.0, ["only 50 of 100"]),
        ((), FIGURES, FIGURES, 0.0, ["no effect"]),
    ],
)
def test_run_is_spoiled_regardless_of_its_outcome(
    reported: tuple[LoadProblem, ...],
    before: PhaseReport,
    incident: PhaseReport,
    others: float | None,
    reasons: list[str],
) -> None:
    phases = (whole("before", 0.0, 0.1), whole("incident", 4.0, 2.0), whole("incident-2", 8.0, 6.0))
    found = list(spoiled(loaded(*phases, problems=reported), [TimeRange(0.0, 7.9)], before, incident, others))
    assert len(found) == len(reasons)
    assert all(part in one for part, one in zip(reasons, found, strict=True))


def test_a_fault_that_slows_nothing_is_not_expected_to() -> None:
    phases = (whole("before", 0.0, 0.1), whole("incident", 4.0, 0.1))
    assert not list(spoiled(loaded(*phases), [TimeRange(0.0, 7.9)], FIGURES, FIGURES, 0.0, slows=False))


def test_requests_that_are_lost_are_an_incident_without_a_tail() -> None:
    assert is_incident(FIGURES, msgspec.structs.replace(FIGURES, answered=80))
    assert not is_incident(FIGURES, msgspec.structs.replace(FIGURES, p99=0.25))
    assert not is_incident(FIGURES, msgspec.structs.replace(FIGURES, p99=None))


def test_the_alarm_rings_at_the_first_window_of_the_incident_over_the_slo() -> None:
    alarm = SloAlarm(slo=0.5, begins=12.0)

    def progress(elapsed: float, p99: float | None) -> Progress:
        return Progress(elapsed, 180.0, "x", 1, 1, 0, 0, 0.0, None, p99)

    for one in (progress(10.0, 3.0), progress(15.0, 0.4), progress(20.0, None)):
        alarm.on_progress(one)
    assert not alarm.fired.is_set()
    alarm.on_progress(progress(25.0, 0.6))
    alarm.on_progress(progress(30.0, 0.6))
    assert alarm.over == 8.0
    assert alarm.fired.is_set()


# --- what an operator does


def diagnosed(name: str) -> Diagnosis:
    from latdoctor.case_from_bundle import case, seen

    with opened(ROOT / "fixtures" / "incidents" / name) as bundle:
        return diagnose(case(bundle, *seen(bundle)), shipped_rules(), Stamp("x", ""))


def operator(tmp_path: Path, *servers: str, router: str = "") -> SimulatedOperator:
    place = ServiceAccess(servers or ("http://127.0.0.1:1",), router, "secret", "v1", "int8", 0.5)
    return SimulatedOperator(place, shipped_rules(), shipped(), tmp_path)


def test_the_playbook_of_the_first_named_cause_is_taken(tmp_path: Path) -> None:
    selected = operator(tmp_path).select_playbook(diagnosed("dependency-slow.tar.zst"))
    assert selected is not None
    assert selected.because is not None
    assert selected.because.cause == "app.dependency.slow"
    assert selected.playbook.id == "app.dependency.timeout"


def test_cause_without_playbook_selects_none(tmp_path: Path) -> None:
    assert operator(tmp_path).select_playbook(diagnosed("gc-pauses.tar.zst")) is None
    assert operator(tmp_path).select_playbook(diagnosed("no-fault.tar.zst")) is None


def test_fixed_playbook_is_selected_only_if_it_addresses_a_named_cause(tmp_path: Path) -> None:
    found = diagnosed("dependency-slow.tar.zst")
    selected = operator(tmp_path).select_playbook(found, "app.dependency.bypass")
    assert selected is not None
    assert selected.playbook.id == "app.dependency.bypass"
    assert operator(tmp_path).select_playbook(found, "promo-rush-sop") is None


def test_common_playbook_of_several_possible_causes_is_selected() -> None:
    found = diagnosed("dependency-slow.tar.zst")
    first, second = (
        msgspec.structs.replace(found.causes[0], id=name, named=False, probability=0.4, playbooks=playbooks)
        for name, playbooks in (("a", ("x", "both")), ("b", ("both", "y")))
    )
    answer = msgspec.structs.replace(found.answer, kind="one-of", causes=("a", "b"))
    either = msgspec.structs.replace(found, causes=(first, second), answer=answer)
    remedy = remedy_of(either)
    assert remedy is not None
    assert (remedy[0], remedy[1].cause, remedy[1].probability) == ("both", "a", 0.8)
    apart = msgspec.structs.replace(either, causes=(first, msgspec.structs.replace(second, playbooks=("y",))))
    assert remedy_of(apart) is None


def test_replica_named_by_the_diagnosis_is_changed(tmp_path: Path) -> None:
    who = operator(tmp_path, "http://a:1", "http://b:2", router="http://r:3")
    book = shipped().find("framework.model.previous-version")
    assert who._target(SelectedPlaybook(book, None, ("1",))) == "http://b:2"
    assert who._settings(SelectedPlaybook(book, None, ("1",))) == {"version": "v1"}
    assert who._settings(SelectedPlaybook(shipped().find("framework.precision.restore"), None)) == {"precision": "int8"}
    assert who._target(SelectedPlaybook(shipped().find("app.balance.even"), None, ("0", "1"))) == "http://r:3"
    assert who._settings(SelectedPlaybook(shipped().find("infra.replica.replace"), None, ("1",))) == {"replica": "1"}
    for replicas in ((), ("0", "1"), ("7",), ("x",)):
        with pytest.raises(UsageError, match="name the replica"):
            who._target(SelectedPlaybook(book, None, replicas))
    assert user._replicas(("replica/1@127.0.0.1:8080", "server", "replica/1", "gpu/0")) == ("1",)


# --- what comes of it


def report(
    kind: PlaybookChoice,
    scenario: str,
    outcome: RemediationOutcome,
    *,
    cause: str = "",
    playbook: str = "",
    restored: bool | None = None,
) -> RemediationReport:
    causes = tuple(ground_truth.cause for ground_truth in find(scenario).causes)
    first = SaturatedRates(100.0, 1.0, 900.0, None), SaturatedRates(170.0, 0.25, 9.0, None)
    return RemediationReport(
        run=RemediationRunSpec(kind, scenario, playbook).run,
        kind=kind,
        scenario=scenario,
        seed=1,
        rate=100.0,
        slo=0.5,
        causes=causes,
        named=(cause,) if cause else (),
        cause=cause,
        playbook=playbook,
        outcome=outcome,
        reason="it has not helped: a | b" if outcome == "rolled-back" else outcome,
        before=FIGURES,
        incident=ILL,
        after=AFTER if outcome == "verified" else None,
        moments=IncidentTimes(over=3.0, noticed=8.0, verified=45.0 if outcome == "verified" else None),
        restored=restored,
        saturated=first if scenario == "promo-rush" else None,
    )


RUNS = (
    report(
        PlaybookChoice.GIVEN,
        "promo-rush",
        RemediationOutcome.VERIFIED,
        cause="app.batching.long-alone",
        playbook="app.batching.token-budget",
    ),
    report(PlaybookChoice.DIAGNOSED, "threads", RemediationOutcome.VERIFIED, cause="infra.cpu.contention"),
    report(
        PlaybookChoice.DIAGNOSED,
        "leak",
        RemediationOutcome.ROLLED_BACK,
        cause="framework.alloc.leak",
        playbook="framework.alloc.more-room",
    ),
    report(PlaybookChoice.DIAGNOSED, "overload", RemediationOutcome.NOTHING_NAMED),
    report(
        PlaybookChoice.WRONG,
        "loop-block",
        RemediationOutcome.ROLLED_BACK,
        playbook="app.batching.by-complexity",
        restored=True,
    ),
    report(
        PlaybookChoice.WRONG,
        "burst",
        RemediationOutcome.VERIFIED,
        playbook="app.batching.by-complexity",
        restored=False,
    ),
    report(PlaybookChoice.WRONG, "alloc-storm", RemediationOutcome.REFUSED, playbook="app.governance.lanes"),
)


def test_verified_run_counts_only_if_an_injected_cause_was_acted_on() -> None:
    scores = score(RUNS, spoiled_tries=2, given_up=1)
    assert (scores.right.right, scores.right.of) == (2, 4)
    assert (scores.verified.right, scores.verified.of) == (1, 2)
    assert (scores.wrong_refused.right, scores.wrong_refused.of) == (2, 3)
    assert (scores.wrong_restored.right, scores.wrong_restored.of) == (2, 2)
    assert scores.outcomes == {"nothing-named": 1, "rolled-back": 1, "verified": 2}
    (rush,) = scores.rush
    assert rush.p99_down == pytest.approx(0.9)
    assert rush.goodput_times == pytest.approx(5.0)
    assert rush.calls_down == pytest.approx(0.5)
    assert rush.calls_down_saturated == pytest.approx(0.75)
    assert rush.capacity_times == pytest.approx(1.7)
    assert rush.faults_down == pytest.approx(0.99)
    assert rush.allocations_down is None
    assert rush.to_verified == pytest.approx(42.0)


def test_tables_have_every_run_and_the_reason_of_unverified_ones() -> None:
    tables = {table.name: table for table in page.tables(score(RUNS))}
    threads = next(row for row in tables["remediation-incidents"].rows if row[0] == "threads")
    assert threads[3:5] == ("infra.cpu.contention", "no")
    assert ("leak", "rolled-back", "it has not helped: a | b") in tables["remediation-not-verified"].rows
    rush = tables["promo-rush"].csv()
    assert "−75 %" in rush
    assert "× 5.0" in rush
    assert tables["wrong-playbooks"].rows[0][:4] == ("loop-block", "app.batching.by-complexity", "rolled-back", "yes")
    assert "promo-rush" in page.summary(score(RUNS))
    assert "Missing: x, y." in page.summary(score(RUNS, missing=("x", "y")))


def test_runs_are_resumed_and_a_spoiled_one_is_repeated(tmp_path: Path) -> None:
    store, wanted = RemediationStore(tmp_path), planned_runs(shipped(), quick=True)
    script = [("late",), (), (), ()]
    played = list[str]()

    def attempt(cell: RemediationRunSpec, say: Callable[[str], None]) -> RemediationAttempt:
        played.append(cell.scenario)
        made = report(cell.kind, cell.scenario, RemediationOutcome.VERIFIED)
        return RemediationAttempt(msgspec.structs.replace(made, spoiled=script.pop(0)), None)

    assert record(store, wanted, attempt, print, most=1) == 2
    assert record(store, wanted, attempt, print) == 0
    assert played == [QUICK[0], *QUICK]
    assert store.report(wanted[0].run).tries == 2
    assert store.losses(store.runs()) == (1, 0)
    assert store.runs() == tuple(sorted(cell.run for cell in wanted))


# --- one that is really played


def test_incident_on_a_real_server_is_remediated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batcher that waits for company: it is looked at, a playbook is run, and the clients are better off."""
    from latdoctor.lab.faults.injection import ConfigureFault

    scenario = Scenario(
        id="waits-too-long",
        title="short",
        phases=(
            ScenarioPhase("before", 5.0),
            ScenarioPhase("incident", 5.0, faults=(ConfigureFault({"batching": {"max_wait_ms": 900.0}}),)),
        ),
        server={"model": {"layers": "1", "width": "64"}},
        load=LoadSettings(rate=12.0, slo=0.5),
        truth=("app.batching.waits-too-long",),
    )
    monkeypatch.setattr(listed, "shipped_scenario", lambda name: scenario)
    monkeypatch.setattr(listed, "BEFORE_SECONDS", 5.0)
    monkeypatch.setattr(user, "OBSERVATION", 3.0)
    monkeypatch.setattr(runner, "AFTER", 4.0)
    # Every improvement counts as proven at once: what is tested is the runner, and a proof without a history takes
    # minutes.
    monkeypatch.setattr(proof, "_NEEDED", ((0.0, 10.0),))
    monkeypatch.setattr(proof.Schedule, "chance", lambda *_: 1.0)
    attempt = runner.attempt(RemediationRunSpec(PlaybookChoice.DIAGNOSED, "waits-too-long"), print)
    made = attempt.report
    assert made.named == ("app.batching.waits-too-long",)
    assert made.outcome == "verified", made.reason
    assert made.before.p99 is not None
    assert made.incident.p99 is not None
    assert made.after is not None
    assert made.after.p99 is not None
    assert made.after.p99 < made.incident.p99
    assert made.moments.to_verified is not None
    store = RemediationStore(tmp_path)
    store.keep(attempt)
    assert store.report(made.run).outcome == "verified"
    with opened(store.observation(made.run)) as look:
        evidence, coverage = case_from_bundle.seen(look)
        again = diagnose(case_from_bundle.case(look, evidence, coverage), shipped_rules(), Stamp("again", ""))
    assert again.answer.causes == made.named
