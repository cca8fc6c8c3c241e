"""The shipped playbooks: sound, judged only by what their target shows, turning only knobs that can be turned live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from latdoctor import case_from_bundle
from latdoctor.conditions.ast import Condition, signals_of
from latdoctor.conditions.evaluator import HOLDS
from latdoctor.detectors import derive
from latdoctor.detectors.catalog import derivable_signals
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.diagnose import Stamp, diagnose
from latdoctor.dialects.loader import shipped as dialects
from latdoctor.errors import UsageError
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence, Origin, Reading, Window
from latdoctor.lab.server.config import ServerConfig, knobs, patched
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.remediation.actions.field_values import parse as as_knob
from latdoctor.remediation.observation import Observation, evaluate_all
from latdoctor.remediation.parameters import format_parameter, parameter_values, substituted
from latdoctor.remediation.playbook import Disruption, Playbook, Risk
from latdoctor.remediation.playbook_library import SYMPTOM_SIGNALS, lint, shipped
from latdoctor.remediation.run_result import WindowStatus
from latdoctor.remediation.verification import already_met, evaluate_window, unverifiable

FIXTURES = Path(__file__).parents[2] / "fixtures" / "incidents"
PLAYBOOKS = shipped().playbooks
# Whose pages are watched: of a replica's target the router's too, where one takes it out of service.
PAGES = {
    "reference": ("reference", "reference-router"),
    "reference-router": ("reference-router",),
    "kubernetes": ("reference", "reference-router"),  # whatever serves there, behind a router or not
}
KUBERNETES = ("container.", "hpa.", "node.", "pod.", "quota.", "workload.")  # signals that the API server shows

each = pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda playbook: playbook.id)


def conditions(playbook: Playbook) -> Iterator[Condition]:
    verify = playbook.verify
    yield from (*playbook.preconditions, *verify.succeed, *verify.mechanism_conditions, *verify.abort)
    yield from (one for one in (verify.load, playbook.settle.until) if one is not None)


def test_shipped_playbooks_pass_lint() -> None:
    rules = rule_loader.shipped()
    found = lint(shipped(), {cause.id: cause.expects for cause in rules.causes}, rules.finding)
    assert [str(problem) for problem in found] == []


def test_rules_and_playbooks_agree() -> None:
    """A cause names the playbooks that address it, the one to try first in front."""
    rules = rule_loader.shipped()
    of_rules = {cause.id: set(cause.playbooks) for cause in rules.causes if cause.playbooks}
    addressed = {name for playbook in PLAYBOOKS for name in playbook.addresses}
    assert of_rules == {name: {one.id for one in shipped().addressing(name)} for name in addressed}
    twice = [cause.id for cause in rules.causes if len(set(cause.playbooks)) < len(cause.playbooks)]
    assert twice == []


def test_playbooks_for_a_cause_come_before_those_for_a_symptom() -> None:
    for cause in rule_loader.shipped().causes:
        treats = [shipped().find(name).treats for name in cause.playbooks if not shipped().find(name).stages]
        assert treats == sorted(treats), cause.id


@cache
def signals_shown(*names: str) -> frozenset[str]:
    """What these pages show, with what is derived from it."""
    read = frozenset(signal for dialect in dialects() if dialect.id in names for signal in dialect.signals)
    return read | frozenset(signal for given in derivable_signals(read).values() for signal in given)


@each
def test_every_condition_uses_signals_of_the_target(playbook: Playbook) -> None:
    for target in playbook.targets:
        seen = signals_shown(*PAGES[target])
        if target == "kubernetes":
            seen |= {name for name in catalogue() if name.startswith(KUBERNETES)}
        unseen = {signal for condition in conditions(playbook) for signal in signals_of(condition)} - seen
        assert unseen == set()
        for name in playbook.verify.cleared_findings:
            # A finding may prefer what only others show; something of it must be there.
            assert seen & set(signals_of(rule_loader.shipped().finding[name].when)), name


@each
def test_playbook_is_documented_and_verifies_user_impact(playbook: Playbook) -> None:
    assert len(playbook.title) <= 70
    assert len(playbook.explanation) > 100
    assert playbook.references
    assert playbook.effect.measured_by.startswith(("latdoctor lab bench", "python -m bench."))
    assert playbook.verify.hold >= 10.0, "one window alone is no proof"
    pain = {
        signal for one in playbook.verify.succeed for signal in signals_of(one) if signal.startswith(SYMPTOM_SIGNALS)
    }
    assert pain, "the verification must include user impact"


def test_playbooks_that_drop_requests_have_more_than_low_risk() -> None:
    """The retry budget has low risk: rejected clients retry."""
    harmless = {one.id for one in PLAYBOOKS if one.risk == Risk.LOW and list(Disruption).index(one.disruption) > 1}
    assert harmless == {"app.governance.retry-budget"}


def settings(playbook: Playbook) -> Iterator[Mapping[str, str]]:
    """The defaults, and each parameter at either end of its range or at each of its choices."""
    needed = {
        one.name: "v1" if one.minimum is None else format_parameter(one, _kept(one.type, one.minimum))
        for one in playbook.parameters
        if one.default is None
    }
    yield needed
    for one in playbook.parameters:
        ends = [format_parameter(one, _kept(one.type, end)) for end in (one.minimum, one.maximum) if end is not None]
        yield from ({**needed, one.name: text} for text in (*ends, *one.choices))


def _kept(kind: str, end: float) -> int | float:
    return int(end) if kind == "integer" else end


@each
def test_every_server_setting_is_live_and_accepts_its_whole_range(playbook: Playbook) -> None:
    live, config = dict(knobs()), ServerConfig()
    for given in settings(playbook):
        values = parameter_values(playbook, given)
        for step in playbook.steps:
            if step.action != "server.config.set":
                continue
            for name, text in substituted(step, playbook, values).items():
                assert live.get(name), f"{name} cannot be turned while the server runs"
                group, _, knob = name.partition(".")
                value = as_knob(name, text, getattr(getattr(config, group), knob))
                assert patched(config, {group: {knob: value}})


@each
def test_every_router_setting_exists(playbook: Playbook) -> None:
    for given in settings(playbook):
        for step in playbook.steps:
            if step.action == "router.config.set":
                asked: dict[str, Any] = substituted(step, playbook, parameter_values(playbook, given))
                assert RouterConfig(**asked)


def test_an_unknown_setting_is_rejected() -> None:
    with pytest.raises(UsageError):
        patched(ServerConfig(), {"batching": {"max_batch": 3}})


RECORDED = [
    ("promo-rush", "promo-rush-sop"),
    ("promo-rush", "app.batching.token-budget"),
    ("promo-rush", "framework.alloc.pool"),
    ("burst", "app.governance.shed-late"),
    ("burst", "app.governance.queue-bound"),
    ("dependency-slow", "app.dependency.bypass"),
]


@cache
def observed(incident: str) -> Observation:
    with opened(FIXTURES / f"{incident}.tar.zst") as bundle:
        evidence, coverage = case_from_bundle.seen(bundle)
        diagnosis = diagnose(
            case_from_bundle.case(bundle, evidence, coverage), rule_loader.shipped(), Stamp("r", "now")
        )
    return Observation(evidence, {check.id: check.status for check in diagnosis.checks}, {}, 0.0, 10.0)


@pytest.mark.parametrize(("incident", "name"), RECORDED)
def test_recorded_incident_has_all_signals_and_is_not_verified(incident: str, name: str) -> None:
    playbook, seen = shipped().find(name), observed(incident)
    assert [evaluate_all(one, seen, seen.values).status for one in playbook.preconditions] == [HOLDS] * len(
        playbook.preconditions
    )
    assert unverifiable(playbook.verify, [seen]) == ()
    assert evaluate_window(playbook.verify, seen, [seen]).status == WindowStatus.FAILURE


def rush(arriving: float, answered: float, p99: float | None, queue: float, status: str) -> Observation:
    """The service in a promotion rush; `status` of the findings that the procedure clears."""
    rows = {"arrival.rate": arriving, "completion.rate": answered, "queue.depth": queue, "error.ratio": 0.0}
    rows |= {} if p99 is None else {"latency.p99": p99}  # as measured, of those that were answered
    origin, window = Origin("page"), Window(0.0, 10.0)
    readings = [Reading(name, "replica/0", value, origin, window) for name, value in rows.items()]
    readings.append(Reading("server.backend", "replica/0", "cpu", origin, window))
    cleared = shipped().find("promo-rush-sop").verify.cleared_findings
    return Observation(derive(Evidence(readings=tuple(readings))), dict.fromkeys(cleared, status), {}, 0.0, 10.0)


ANSWERED_WELL = rush(120.0, 118.0, 0.3, 4.0, "clear")
OUTAGES = {
    "a few answers, which are quick": rush(120.0, 1.3, 0.15, 300.0, "fired"),
    "no answer": rush(120.0, 0.0, None, 300.0, "fired"),
}
outage = pytest.mark.parametrize("before", OUTAGES.values(), ids=OUTAGES.keys())


@outage
def test_the_procedure_of_a_rush_may_run_in_an_outage(before: Observation) -> None:
    playbook = shipped().find("promo-rush-sop")
    assert [evaluate_all(one, before, before.values).status for one in playbook.preconditions] == [HOLDS] * 2
    assert unverifiable(playbook.verify, [before]) == ()
    assert already_met(playbook.verify, [before]) == ""


@outage
@pytest.mark.parametrize(
    ("after", "status"),
    [
        (ANSWERED_WELL, WindowStatus.SUCCESS),
        (rush(120.0, 1.3, 0.15, 300.0, "clear"), WindowStatus.FAILURE),
        (rush(120.0, 118.0, 3.0, 300.0, "clear"), WindowStatus.FAILURE),
    ],
    ids=["answered soon", "still hardly any", "answered late"],
)
def test_an_outage_has_ended_where_requests_are_answered_soon(
    before: Observation, after: Observation, status: WindowStatus
) -> None:
    assert evaluate_window(shipped().find("promo-rush-sop").verify, after, [before]).status == status
