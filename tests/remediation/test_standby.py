"""Replicas ahead of a forecast, and after it, in simulated time: verified, rolled back, refused, released."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from latdoctor.evidence.model import Evidence, Origin, Reading, Window
from latdoctor.http.client import Secret
from latdoctor.journal.entry import Moment
from latdoctor.journal.store import Journal
from latdoctor.remediation import actions, run_history
from latdoctor.remediation.change import Deadline, State, Values
from latdoctor.remediation.executor import execute
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.planner import PlanRequest, build_plan
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.release import Release, release_of
from latdoctor.remediation.rollback import roll_back_run
from latdoctor.remediation.run_context import RunContext
from latdoctor.remediation.run_result import Outcome, Reason, Result
from latdoctor.remediation.standby import KEPT_AFTER, ForecastRef, too_much_for
from latdoctor.remediation.target import Access, Target
from tests.remediation.sample_playbooks import library
from tests.remediation.simulated_service import AT, InMemory, Remembered, Service, Setting

STANDBY = """
id: test.standby
title: Replicas ahead of a peak
trigger: forecast
targets: [reference]
risk: low
disruption: none
explanation: replicas are there before the load
parameters: {replicas: {type: integer, minimum: 1, maximum: 9, description: how many}}
effect: {description: ready in time, measured_by: tests/remediation}
preconditions: [arrival.rate >= 0/s]
guards: {max_targets: 1, cooldown: 1s, attempts: {count: 99, per: 24h}}
steps:
  - {id: replicas, action: test.replicas, with: {replicas: $replicas}, undo: restore}
settle: {at_most: 60min}
verify:
  succeed:
    - any: [latency.p99 <= slo.p99, latency.p99 < 1.2 x before, arrival.rate > 1.2 x before, arrival.rate < 1/s]
    - any: [error.ratio < 1%, {prefer: error.ratio < 1.1 x before, otherwise: error.ratio < 1%}]
  mechanism: [requests.running >= 0]
  hold: 15s
  within: 60s
"""
RELEASE = STANDBY.replace("test.standby", "test.release").replace("trigger: forecast", "trigger: peak-passed")
PEAK = 1800.0  # seconds after the beginning
FORECAST = ForecastRef(
    source="rates.csv",
    at=AT + PEAK,
    evidence_end=AT,
    replicas=4,
    rate=250.0,
    per_replica=100.0,
    reserve=0.3,
    unit="/s",
    method="ets",
)


class _Replicas(InMemory):
    """Replicas that are ready some time after they were asked for."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.service)
        self._fleet = fleet

    def incomplete(self, deadline: Deadline) -> str:
        ready = self._fleet.ready()
        wanted = self._fleet.service.values["replicas"]
        return "" if ready == wanted else f"{ready} of {wanted} ready"


@dataclass(frozen=True)
class _Scale(Setting):
    fleet: Fleet | None = None
    name: str = "test.replicas"

    def resource(self, access: Access, resource_id: str) -> InMemory:
        assert self.fleet is not None
        return _Replicas(self.fleet)

    def desired_values(self, given: Mapping[str, str], state: State) -> Values:
        assert self.fleet is not None
        choose = min if self.fleet.releasing else max
        return {"replicas": choose(int(state.values["replicas"] or 0), int(given["replicas"]))}


@dataclass
class Fleet:
    """A service with replicas and runs on it. `starts_in`: seconds until a replica is ready."""

    folder: Path
    service: Service = field(default_factory=lambda: Service(values={"replicas": 2}, rate=100.0))
    starts_in: float = 120.0
    p99: Callable[[Fleet], float] = lambda fleet: 0.2
    errors: Callable[[Fleet], float] = lambda fleet: 0.0
    releasing: bool = False

    def __post_init__(self) -> None:
        self.journal: Journal = Remembered.opened(self.folder / "journal", clock=self._moment)
        self.books: Library = library(self.folder / "playbooks", STANDBY, RELEASE)

    def _moment(self) -> Moment:
        at = datetime.datetime.fromtimestamp(self.service.wall(), datetime.UTC)
        return Moment(at.isoformat(timespec="microseconds"), self.service.now, self.service.boot)

    def ready(self) -> int:
        wanted = int(self.service.values["replicas"] or 0)
        return wanted if self.service.now >= self.service.changed_at + self.starts_in else min(2, wanted)

    @property
    def replicas(self) -> object:
        return self.service.values["replicas"]

    def observe(self, seconds: float) -> Observation:
        began = self.service.wall()
        self.service.now += seconds
        rows = {"latency.p99": self.p99(self), "arrival.rate": self.service.rate, "error.ratio": self.errors(self)}
        rows |= {"requests.running": 1.0}
        window = Window(began, self.service.wall())
        readings = tuple(Reading(name, "service", value, Origin("page"), window) for name, value in rows.items())
        return Observation(Evidence(readings=readings), {}, {"slo.p99": 0.5}, began, self.service.wall())

    @property
    def context(self) -> RunContext:
        return RunContext(
            journal=self.journal,
            state=self.folder,
            access=Access(Target("service", "reference", admin="http://memory"), Secret()),
            observe=self.observe,
            save_bundle=lambda bundle, path: None,
            now=self.service.wall,
            clock=self.service.clock,
            sleep=self.service.sleep,
        )

    def start(self, forecast: ForecastRef | None = FORECAST) -> Result:
        self.releasing = False
        settings = {"replicas": str(forecast.replicas if forecast else 4)}
        return self._run(PlanRequest(self.books.find("test.standby"), settings, forecast=forecast or UNSET))

    def found(self, newer: ForecastRef | None = None) -> Release | Result:
        return release_of(self.journal.entries(), self.context.access, newer, self.service.wall())

    def release(self) -> Result:
        found = self.found()
        assert isinstance(found, Release), found
        self.releasing = True
        settings = {"replicas": str(found.replicas)}
        book = self.books.find("test.release")
        return self._run(PlanRequest(book, settings, forecast=found.forecast, releases=found.run))

    def _run(self, request: PlanRequest) -> Result:
        plan = build_plan(request, self.books, self.context.access, self.service.wall(), self.journal.clock())
        return execute(plan, self.books, self.context)

    def after_peak(self) -> None:
        self.service.now = max(self.service.now, PEAK + KEPT_AFTER + 60)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    one = Fleet(tmp_path)
    monkeypatch.setattr(actions, "ACTIONS", (*actions.ACTIONS, _Scale(one.service, fleet=one)))
    return one


def test_replicas_that_are_ready_in_time_are_verified_although_nothing_was_slow(fleet: Fleet) -> None:
    result = fleet.start()
    assert (result.outcome, result.code) == (Outcome.VERIFIED, Reason.VERIFIED), result.reason
    assert fleet.replicas == 4
    assert fleet.starts_in <= fleet.service.now < PEAK


def test_replicas_that_are_not_ready_at_the_time_of_the_forecast_are_taken_back(fleet: Fleet) -> None:
    """As Pods that no node takes: they are not there, however long they have been asked for."""
    fleet.starts_in = PEAK + 3600
    result = fleet.start()
    assert (result.outcome, result.code) == (Outcome.ROLLED_BACK, Reason.NOT_COMPLETE)
    assert "2 of 4 ready" in result.reason
    assert fleet.replicas == 2
    assert fleet.service.now <= PEAK + 5  # the playbook itself would wait for an hour


@pytest.mark.parametrize(
    ("p99", "errors", "rate", "outcome", "code"),
    [
        (0.2, 0.0, 100.0, Outcome.VERIFIED, Reason.VERIFIED),
        (0.45, 0.0, 100.0, Outcome.VERIFIED, Reason.VERIFIED),  # slower than before, and within the SLO
        (0.9, 0.0, 100.0, Outcome.ROLLED_BACK, Reason.WORSE),
        (0.2, 0.3, 100.0, Outcome.ROLLED_BACK, Reason.WORSE),  # a new replica answers with errors
        (0.9, 0.0, 180.0, Outcome.VERIFIED, Reason.VERIFIED),  # the peak is there: without them it would be worse
        (0.2, 0.3, 180.0, Outcome.ROLLED_BACK, Reason.WORSE),
    ],
)
def test_nothing_may_be_worse_with_them(
    fleet: Fleet, p99: float, errors: float, rate: float, outcome: Outcome, code: Reason
) -> None:
    def changed(fleet: Fleet) -> bool:
        fleet.service.rate = rate if fleet.replicas == 4 else 100.0
        return fleet.replicas == 4

    fleet.p99 = lambda one: p99 if changed(one) else 0.2
    fleet.errors = lambda one: errors if changed(one) else 0.0
    result = fleet.start()
    assert (result.outcome, result.code) == (outcome, code), result.reason
    assert fleet.replicas == (4 if outcome is Outcome.VERIFIED else 2)


def test_one_good_window_between_bad_ones_is_no_proof(fleet: Fleet) -> None:
    turns = iter(range(10_000))
    fleet.p99 = lambda one: 0.2 if one.replicas == 2 or next(turns) % 2 else 0.9
    result = fleet.start()
    assert result.outcome is Outcome.ROLLED_BACK
    assert fleet.replicas == 2


def test_the_number_of_another_client_is_left_as_it_is(fleet: Fleet) -> None:
    def edited(fleet: Fleet) -> float:
        if fleet.replicas == 4:
            fleet.service.edit(replicas=7)
        return 0.2

    fleet.p99 = edited
    result = fleet.start()
    assert result.outcome is not Outcome.VERIFIED
    assert fleet.replicas == 7


@pytest.mark.parametrize(
    ("forecast", "code"),
    [(None, Reason.NO_FORECAST), (AT - 60.0, Reason.EVIDENCE_OUTDATED)],
    ids=["none", "past"],
)
def test_without_a_forecast_of_a_time_to_come_nothing_is_begun(
    fleet: Fleet, forecast: float | None, code: Reason
) -> None:
    result = fleet.start(None if forecast is None else _at(forecast))
    assert (result.outcome, result.code) == (Outcome.REFUSED, code)
    assert fleet.replicas == 2


def _at(at: float, **more: object) -> ForecastRef:
    return replace(FORECAST, at=at, **more)


def test_enough_replicas_are_never_made_fewer(fleet: Fleet) -> None:
    fleet.service.values["replicas"] = 6
    result = fleet.start()
    assert (result.outcome, result.code) == (Outcome.REFUSED, Reason.NO_CHANGE)
    assert fleet.replicas == 6


def test_after_the_peak_they_are_given_back_to_the_number_before_and_only_once(fleet: Fleet) -> None:
    fleet.start()
    early = fleet.release()
    assert (early.outcome, early.code) == (Outcome.REFUSED, Reason.NOT_YET)
    fleet.after_peak()
    result = fleet.release()
    assert (result.outcome, fleet.replicas) == (Outcome.VERIFIED, 2), result.reason
    again = fleet.found()
    assert isinstance(again, Result)
    assert again.outcome is Outcome.PLANNED


def test_the_load_is_judged_as_it_will_be_for_those_that_stay(fleet: Fleet) -> None:
    """45/s for each of 4 looks idle; 90/s for each of 2 is beyond the 70/s that one may carry."""
    fleet.start()
    fleet.after_peak()
    fleet.service.rate = 180.0
    result = fleet.release()
    assert (result.outcome, result.code) == (Outcome.REFUSED, Reason.LOAD_TOO_HIGH)
    assert "90/s for each of 2" in result.reason
    fleet.service.rate, fleet.service.now = 130.0, fleet.service.now + 600
    assert fleet.release().outcome is Outcome.VERIFIED


def test_replicas_come_back_where_the_service_gets_worse_without_them(fleet: Fleet) -> None:
    fleet.start()
    fleet.after_peak()
    fleet.p99 = lambda one: 0.9 if one.replicas == 2 else 0.2
    result = fleet.release()
    assert (result.outcome, result.code) == (Outcome.ROLLED_BACK, Reason.WORSE)
    assert fleet.replicas == 4
    assert isinstance(fleet.found(), Release)  # a later attempt is possible


def test_a_newer_forecast_that_needs_them_keeps_them(fleet: Fleet) -> None:
    """Else they would be started again at once: 2 to 4 to 2 to 4."""
    fleet.start()
    fleet.after_peak()
    kept = fleet.found(_at(fleet.service.wall() + 900, replicas=3))
    assert isinstance(kept, Result)
    assert kept.code is Reason.LOAD_TOO_HIGH
    assert isinstance(fleet.found(_at(fleet.service.wall() + 900, replicas=2)), Release)


@pytest.mark.parametrize("number", [3, 4], ids=["another", "the same again"])
def test_a_number_that_an_operator_has_set_since_stays(fleet: Fleet, number: int) -> None:
    fleet.start()
    fleet.after_peak()
    fleet.service.edit(replicas=number)
    found = fleet.found()
    assert isinstance(found, Result)
    assert (found.outcome, found.code) == (Outcome.REFUSED, Reason.MODIFIED_BY_OTHER_CLIENT)


def test_two_peaks_in_a_row_are_given_back_to_what_was_before_the_first(fleet: Fleet) -> None:
    fleet.start()
    fleet.service.now += 60
    assert fleet.start(_at(AT + PEAK + 600, replicas=6)).outcome is Outcome.VERIFIED
    assert fleet.replicas == 6
    fleet.service.now = PEAK + 600 + KEPT_AFTER + 60
    found = fleet.found()
    assert isinstance(found, Release)
    assert found.replicas == 2
    assert fleet.release().outcome is Outcome.VERIFIED
    assert fleet.replicas == 2


def test_a_standby_run_can_be_rolled_back_by_hand(fleet: Fleet) -> None:
    run = fleet.start().run
    back = roll_back_run(run, lambda _: fleet.context, lambda: run_history.runs(fleet.journal.entries()))
    assert back.outcome is Outcome.ROLLED_BACK
    assert fleet.replicas == 2
    assert isinstance(fleet.found(), Result)


def test_a_load_in_another_unit_or_unmeasured_is_too_much() -> None:
    window = Observation(Evidence(), {}, {}, 0.0, 5.0)
    assert too_much_for(FORECAST, 2, [window]) == "the rate of arrivals is not measured"
    assert "per second" in too_much_for(_at(AT, unit=""), 2, [window])
