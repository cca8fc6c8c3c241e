"""Scenarios: the shipped ones are valid, invalid ones are refused, and one is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.errors import DefinitionError, UsageError
from latdoctor.lab.admin_client import typed_knobs
from latdoctor.lab.faults.injection import AgentFault, ConfigureFault
from latdoctor.lab.metrics_snapshot import MetricsDelta, MetricsPage, MetricsSnapshot
from latdoctor.lab.runner import PhaseStart, RunObserver, confirm_causes, run_scenario
from latdoctor.lab.scenario import (
    INCIDENT,
    USUAL,
    InjectedCause,
    LoadSettings,
    PhaseOverride,
    Scenario,
    ScenarioPhase,
    find,
    graded,
    names,
    overridden,
    read,
    without,
)
from latdoctor.lab.server.config import patched
from latdoctor.load.mix import Mix
from latdoctor.load.plan import RetryKind, RetryPolicy


@pytest.mark.parametrize("name", names())
def test_every_shipped_scenario_has_an_incident_and_names_causes_of_the_catalogue(name: str) -> None:
    scenario = find(name)
    assert INCIDENT in {phase.name for phase in scenario.phases}
    assert "before" in {phase.name for phase in scenario.phases}
    causes = {truth.cause for truth in scenario.causes}
    assert causes <= set(shipped().cause), "a truth that no rule could name"


def test_server_configuration_does_not_contain_the_injected_cause() -> None:
    for name in names():
        scenario = find(name)
        config_text = repr(scenario.config())
        assert not any(truth.cause in config_text for truth in scenario.causes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id: x\ntitle: t\nphases: []\n", "length >= 1"),
        ("id: x\ntitle: t\nphases:\n  - {name: a, seconds: 1}\nserver: {batching: {no_such: 1}}\n", "no_such"),
        ("id: x\ntitle: t\nphases:\n  - {name: a, seconds: -1}\n", "> 0"),
        ("id: y\ntitle: t\nphases:\n  - {name: a, seconds: 1}\n", "differs from the file's name"),
        ("id: x\ntitle: t\nphases:\n  - {name: a, seconds: 1, faults: [{kind: magic}]}\n", "magic"),
        ("id: x\ntitle: t\nphases:\n  - {name: a, seconds: 1}\nunknown: 1\n", "unknown"),
        (
            "id: x\ntitle: t\nphases:\n  - {name: a, seconds: 1}\ntruth: [{cause: c, without: {b: {rate: 1}}}]\n",
            "unknown phase 'b'",
        ),
    ],
)
def test_a_bad_scenario_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(DefinitionError) as refused:
        read(path)
    assert message in str(refused.value)
    assert "x.yaml:" in str(refused.value)


def test_an_unknown_scenario_is_a_usage_error_that_lists_the_known() -> None:
    with pytest.raises(UsageError) as refused:
        find("no-such")
    assert "promo-rush" in refused.value.next_step


def test_settings_take_the_place_of_a_scenarios_own() -> None:
    changed = overridden(find("promo-rush"), iter([("load.rate", "80"), ("server.batching.max_batch_requests", "7")]))
    assert changed.load.rate == 80
    assert changed.config().batching.max_batch_requests == 7
    with pytest.raises(UsageError):
        overridden(find("promo-rush"), iter([("load.rate", "much")]))


@pytest.mark.parametrize("name", names())
def test_every_severity_makes_another_scenario_of_the_same_truth(name: str) -> None:
    usual = find(name)
    assert graded(usual, USUAL) == usual
    for severity in usual.severities:
        other = graded(usual, severity)
        assert other.phases != usual.phases or other.load != usual.load
        assert [truth.cause for truth in other.causes] == [truth.cause for truth in usual.causes]
    assert set(usual.severities) == ({"mild", "severe"} if usual.truth else set())


@pytest.mark.parametrize("name", names())
def test_what_a_severity_turns_can_be_turned(name: str) -> None:
    for severity in find(name).severities:
        scenario = graded(find(name), severity)
        for fault in scenario.incident.faults:
            if isinstance(fault, ConfigureFault):
                assert patched(scenario.config(), fault.knobs, strict=False) != scenario.config()


def test_a_severity_that_a_scenario_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        graded(find("burst"), "deadly")
    assert "mild" in refused.value.next_step


def test_a_setting_reaches_into_a_phase_by_its_name_and_into_a_fault_by_its_number() -> None:
    changed = overridden(find("gc-pauses"), iter([("phases.incident.faults.0.strength", "7")]))
    (fault,) = changed.incident.faults
    assert isinstance(fault, AgentFault)
    assert fault.strength == 7
    for path in ("phases.nowhere.rate", "phases.incident.faults.5.strength", "phases.incident"):
        with pytest.raises(UsageError):
            overridden(find("gc-pauses"), iter([(path, "7")]))


def test_knobs_are_typed_for_the_admin_interface() -> None:
    assert typed_knobs({"batching": {"max_wait_ms": "400"}, "memory": {"glibc": "returning"}}) == {
        "batching": {"max_wait_ms": 400.0},
        "memory": {"glibc": "returning"},
    }


def test_without_a_cause_only_what_it_names_is_done_otherwise() -> None:
    fault, other = ConfigureFault({"memory": {"glibc": "returning"}}), AgentFault("leak")
    scenario = Scenario(
        id="x",
        title="x",
        phases=(
            ScenarioPhase("before", 1.0),
            ScenarioPhase(INCIDENT, 2.0, faults=(fault, other)),
            ScenarioPhase("after", 3.0),
        ),
        load=LoadSettings(retry=RetryPolicy(RetryKind.IMMEDIATE)),
        truth=(
            InjectedCause("a", {INCIDENT: PhaseOverride(faults=(other,))}),
            InjectedCause("b", without_retries=True),
        ),
    )
    first, second = (without(scenario, truth) for truth in scenario.causes)
    assert [phase.name for phase in first.phases] == ["before", INCIDENT]
    assert first.incident.faults == (other,)
    assert first.load == scenario.load
    assert second.incident == scenario.incident
    assert second.load.retry.kind == "none"


def _look(**servers: dict[str, float]) -> MetricsSnapshot:
    return MetricsSnapshot({address: MetricsPage(values) for address, values in servers.items()})


def test_delta_has_rises_and_means_and_none_for_a_constant_divisor() -> None:
    first = _look(a={"calls": 10.0, "faults": 100.0, "h_sum": 5.0, "h_count": 10.0})
    last = _look(a={"calls": 14.0, "faults": 900.0, "h_sum": 7.0, "h_count": 14.0})
    between = MetricsDelta(first, last)
    assert between.per("faults", "calls") == 200.0
    assert between.mean("h") == 0.5
    assert between.per("faults", "nothing") is None
    assert between.now("nothing") is None
    assert between.waste is None


@pytest.mark.parametrize(
    ("first", "last", "rise"),
    [
        pytest.param({"a": 10.0, "b": 5.0}, {"a": 12.0, "b": 6.0}, 3.0, id="over all servers"),
        pytest.param(
            {"a": 10.0, "b": 500.0}, {"a": 12.0, "b": 7.0}, 9.0, id="a process begun anew counts from nothing"
        ),
        pytest.param({"a": 10.0, "b": 500.0}, {"a": 12.0}, 2.0, id="a server that is gone is not counted"),
        pytest.param({"a": 10.0}, {"a": 12.0, "b": 4.0}, 6.0, id="a server that came counts from nothing"),
    ],
)
def test_a_rise_is_that_of_all_servers(first: dict[str, float], last: dict[str, float], rise: float) -> None:
    def snapshot(values: dict[str, float]) -> MetricsSnapshot:
        return _look(**{name: {"calls": value} for name, value in values.items()})

    assert MetricsDelta(snapshot(first), snapshot(last)).rise("calls") == rise


def test_scenario_runs_on_a_real_server() -> None:
    """A server, a load of a few seconds, a knob changed and restored, a disturbance injected and removed."""
    mix = Mix(long_share=0.0)
    faults = (ConfigureFault({"batching": {"scheduler": "single"}}), AgentFault("slow-preprocess", 0.02, 30.0))
    scenario = Scenario(
        id="short",
        title="short",
        phases=(
            ScenarioPhase("before", 1.5, mix=mix),
            ScenarioPhase(INCIDENT, 1.5, mix=mix, faults=faults),
            ScenarioPhase("after", 1.5, mix=mix),
        ),
        server={"model": {"layers": "1", "width": "64"}},
        load=LoadSettings(rate=20.0, slo=5.0),
        truth=(InjectedCause("app.preprocess.slow", {INCIDENT: PhaseOverride(faults=(faults[0],))}),),
    )
    stages: list[PhaseStart] = []
    report = run_scenario(scenario, 1, RunObserver(on_phase=stages.append))
    assert [stage.phase for stage in stages] == ["before", INCIDENT, "after"]
    assert all(phase.answered == phase.requests > 0 for phase in report.phases)
    incident = report.phase(INCIDENT)
    assert incident.calls_per_answer == pytest.approx(1.0, abs=0.2)
    assert incident.p50 is not None
    before = report.phase("before")
    assert before.p50 is not None
    assert incident.p50 > before.p50 + 0.005
    assert [one.moves for one in report.truth] == [None]
    (tried,) = confirm_causes(scenario, report).truth
    assert tried.cause == "app.preprocess.slow"
    assert tried.p99_without is not None
