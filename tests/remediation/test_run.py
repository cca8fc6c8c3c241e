"""A run in simulated time: every way it can end, and how the target stands then."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from latdoctor.errors import OperationError, UsageError
from latdoctor.evidence.bundle import Bundle, Context
from latdoctor.evidence.model import Window
from latdoctor.http.client import Secret
from latdoctor.journal.entry import JournalEntry, JournalError, Moment
from latdoctor.journal.store import Journal
from latdoctor.remediation import actions, rollback, run_history
from latdoctor.remediation.change import Refused, Unreachable, Value
from latdoctor.remediation.executor import execute
from latdoctor.remediation.planner import Plan, PlanRequest, build_plan
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.run_context import RunContext
from latdoctor.remediation.run_observer import WINDOW
from latdoctor.remediation.run_result import Outcome, Reason, Result, WindowResult
from latdoctor.remediation.target import Access, Target
from tests.remediation import sample_playbooks
from tests.remediation.simulated_service import Service, Setting

BEFORE: dict[str, Value] = {"scheduler": "long-alone", "lanes": False}
AFTER: dict[str, Value] = {"scheduler": "token-budget", "lanes": False}


@dataclass
class Room:
    """A service, its playbooks and a journal of its own."""

    service: Service
    library: Library
    journal: Journal
    state: Path
    stop: Callable[[], str] = lambda: ""
    approved: bool = False
    kinds: list[str] = field(default_factory=list)
    hear: Callable[[JournalEntry], None] = lambda entry: None

    @property
    def world(self) -> RunContext:
        return RunContext(
            journal=self.journal,
            state=self.state,
            access=Access(Target("service", "reference", admin="http://memory"), Secret("hush")),
            observe=self.service.observe,
            save_bundle=lambda bundle, path: None,
            on_entry=self._tell,
            stop_reason=self.stop,
            approved=self.approved,
            now=self.service.wall,
            clock=self.service.clock,
            sleep=self.service.sleep,
        )

    def _tell(self, entry: JournalEntry) -> None:
        self.kinds.append(entry.kind)
        self.hear(entry)

    def plan(self, name: str = "test.scheduler") -> Plan:
        return build_plan(
            PlanRequest(self.library.find(name), {}),
            self.library,
            self.world.access,
            self.service.wall(),
            self.journal.clock(),
        )

    def run(self, name: str = "test.scheduler") -> Result:
        return self.execute(self.plan(name))

    def execute(self, plan: Plan) -> Result:
        return execute(plan, self.library, self.world)

    def rolled_back(self, run: str) -> Result:
        return rollback.roll_back_run(run, lambda target: self.world, lambda: run_history.runs(self.journal.entries()))

    def recovered(self) -> list[Result]:
        open_ones = [run for run in run_history.runs(self.journal.entries()) if run.open]
        return [rollback.recover_run(run, lambda target: self.world) for run in open_ones]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    service = Service()
    monkeypatch.setattr(actions, "ACTIONS", (*actions.ACTIONS, Setting(service)))
    return furnished(service, tmp_path)


def furnished(service: Service, folder: Path, kind: type[Journal] = Journal) -> Room:
    """A room in `folder`. The action on the service has to be known already."""
    state = folder / "state"
    journal = kind.opened(state / "journal.sqlite", clock=lambda: _moment(service))
    return Room(service, sample_playbooks.library(folder / "playbooks"), journal, state)


def _moment(service: Service) -> Moment:
    at = datetime.datetime.fromtimestamp(service.wall(), datetime.UTC)
    return Moment(at.isoformat(timespec="microseconds"), service.now, service.boot)


def test_effective_change_stays(room: Room) -> None:
    result = room.run()
    assert result.outcome is Outcome.VERIFIED, result
    assert room.service.values == AFTER
    assert [(m.signal, m.before, m.after) for m in result.measures][:1] == [("latency.p99", 3.0, 0.3)]


def test_every_change_is_journaled_before_it_is_made(room: Room) -> None:
    seen: list[list[str]] = []
    room.service.on_write = lambda service: seen.append([entry.kind for entry in room.journal.entries()])
    room.run()
    assert seen
    assert all(kinds[-1] == "change.intended" for kinds in seen)


def no_help(service: Service) -> None:
    service.p99 = lambda service: 3.0


def halved_load(service: Service) -> None:
    """The change does nothing; the load halves at once, and with it the latency."""
    service.p99 = lambda service: 3.0 if service.rate > 30 else 0.3

    def halve(service: Service) -> None:
        service.rate = 20.0

    service.on_write = halve


def blind_after(service: Service) -> None:
    def blind(service: Service) -> None:
        service.readable = False

    service.on_write = blind


def nan_after(service: Service) -> None:
    def spoilt(service: Service) -> None:
        service.p99 = lambda service: float("nan")

    service.on_write = spoilt


def errors_after(service: Service) -> None:
    def fail(service: Service) -> None:
        service.error_ratio = 0.2

    service.on_write = fail


def relapses(service: Service) -> None:
    """Well for one window, ill for the next, and so on."""
    service.p99 = lambda service: 0.3 if int(service.now / 5) % 2 else 3.0


CODES = {
    no_help: Reason.NO_IMPROVEMENT,
    halved_load: Reason.INCONCLUSIVE,
    blind_after: Reason.INCONCLUSIVE,
    nan_after: Reason.INCONCLUSIVE,
    errors_after: Reason.ABORT_CONDITION,
    relapses: Reason.NO_IMPROVEMENT,
}


@pytest.mark.parametrize("spoil", CODES)
def test_unverified_change_is_rolled_back(room: Room, spoil: Callable[[Service], None]) -> None:
    spoil(room.service)
    result = room.run()
    assert result.outcome is Outcome.ROLLED_BACK, result
    assert room.service.values == BEFORE
    assert result.reason
    assert result.code is CODES[spoil]
    (run,) = run_history.runs(room.journal.entries())
    assert run.code is run.rollback.code is result.code


def test_abort_condition_rolls_back_at_once(room: Room) -> None:
    errors_after(room.service)
    room.run()
    windows = [kind for kind in room.kinds if kind == "verify.window"]
    assert len(windows) == 1


def restarted(service: Service) -> None:
    service.edit(**BEFORE)


def overruled(service: Service) -> None:
    service.edit(scheduler="single")


@pytest.mark.parametrize(
    ("meddle", "outcome", "stands"),
    [(restarted, Outcome.ROLLED_BACK, "long-alone"), (overruled, Outcome.INCOMPLETE, "single")],
)
@pytest.mark.parametrize("name", ["test.scheduler", "test.whole"])
def test_lost_change_is_not_verified(
    room: Room, name: str, meddle: Callable[[Service], None], outcome: Outcome, stands: str
) -> None:
    """The service restarts or another client changes it during verification, and the SLO is met nevertheless."""

    def meddling(service: Service) -> None:
        if service.values["scheduler"] == "token-budget":
            meddle(service)

    room.service.p99 = lambda service: 0.3 if any("scheduler" in write for write in service.writes) else 3.0
    room.service.on_observe = meddling
    result = room.run(name)
    assert result.outcome is outcome, result
    assert "the change is no longer in effect: " in result.reason
    assert f"scheduler of memory is '{stands}', was set to 'token-budget'" in result.reason
    assert room.service.values["scheduler"] == stands
    assert "verify.passed" not in room.kinds


def test_unreadable_target_is_not_verified(room: Room) -> None:
    def hang(service: Service) -> None:
        service.hangs = bool(service.writes)

    room.service.on_observe = hang
    assert room.run().outcome is Outcome.INCOMPLETE
    assert "verify.passed" not in room.kinds


def test_lost_final_response_is_retried(room: Room) -> None:
    once = iter([True])

    def lose(service: Service) -> None:
        if service.writes and next(once, False):
            raise Unreachable("the connection was closed")

    room.service.on_answer = lose
    assert room.run().outcome is Outcome.VERIFIED
    assert next(once, None) is None


def test_draining_queue_is_awaited(room: Room) -> None:
    room.service.drain = 35.0  # longer than it settles
    result = room.run()
    assert result.outcome is Outcome.VERIFIED, result
    assert room.service.values == AFTER


def blind_for(seconds: float) -> Callable[[Service], None]:
    """A page that cannot be read for a while after the change."""

    def observing(service: Service) -> None:
        if service.writes and service.now < service.changed_at + seconds:
            raise OperationError("the page cannot be read")

    return observing


def test_failed_observation_while_settling_is_tolerated(room: Room) -> None:
    room.service.on_observe = blind_for(6)
    assert room.run().outcome is Outcome.VERIFIED
    assert room.kinds.count("verify.window") > 2  # those that failed are among them


@pytest.mark.parametrize("name", ["test.scheduler", "test.whole"])
def test_three_windows_without_data_end_the_run(room: Room, name: str) -> None:
    room.service.on_observe = blind_for(1000)
    result = room.run(name)
    assert result.outcome is Outcome.ROLLED_BACK
    assert "without data: the page cannot be read" in result.reason
    assert result.seconds < 10 + 2 * 3 * 5
    assert room.service.values == BEFORE


def test_page_without_earlier_signals_has_no_data(room: Room) -> None:
    """As of a server that has stopped: its collectors still say what they did."""

    def blind(service: Service) -> None:
        service.hidden = bool(service.writes)

    room.service.on_observe = blind
    result = room.run()
    assert result.outcome is Outcome.ROLLED_BACK
    assert "without data: none of the signals" in result.reason
    assert result.seconds < 10 + 2 * 3 * 5


def test_ctrl_c_ends_a_change_that_takes_long(room: Room) -> None:
    stopped = [""]

    def contend(service: Service) -> None:
        if not stopped[0]:
            service.version += 1
            stopped[0] = "SIGINT" if service.now > 15 else ""

    room.service.on_write = contend
    room.stop = lambda: stopped[0]
    result = room.run()
    assert "stopped: SIGINT" in result.reason
    assert result.seconds < 10 + 20
    assert room.service.values == BEFORE


def test_lost_write_response_is_resolved_by_reading(room: Room) -> None:
    room.service.loses_replies = 1
    assert room.run().outcome is Outcome.VERIFIED
    assert len(room.service.writes) == 1


@pytest.mark.parametrize("lost", ["readable", "rate"])
def test_unverifiable_change_is_refused(room: Room, lost: str) -> None:
    setattr(room.service, lost, False if lost == "readable" else float("nan"))
    result = room.run()
    assert result.outcome is Outcome.REFUSED, result
    assert room.service.writes == []


def test_a_target_that_refuses_is_left_alone(room: Room) -> None:
    room.service.refuses = True
    result = room.run()
    assert result.outcome in (Outcome.FAILED, Outcome.ROLLED_BACK)
    assert room.service.values == BEFORE


def test_hanging_target_is_incomplete_with_manual_commands(room: Room) -> None:
    plan = room.plan()
    no_help(room.service)

    def hang(service: Service) -> None:
        if len(service.writes) == 1 and service.now > 60:
            service.hangs = True

    room.service.on_observe = hang
    result = execute(plan, room.library, room.world)
    assert result.outcome is Outcome.INCOMPLETE
    assert result.manual == ("set {'scheduler': 'long-alone'}",)
    begun = next(e for e in room.journal.entries() if e.kind == "rollback.begun")
    assert begun
    room.service.hangs = False
    assert [one.outcome for one in room.recovered()] == [Outcome.ROLLED_BACK]
    assert room.service.values == BEFORE


def test_an_edit_between_plan_and_apply_refuses(room: Room) -> None:
    plan = room.plan()
    room.service.edit(scheduler="single")
    assert execute(plan, room.library, room.world).outcome is Outcome.REFUSED
    assert room.service.values["scheduler"] == "single"


@pytest.mark.parametrize("moment", ["on_observe", "on_write"])
def test_same_value_set_by_another_client_is_left(room: Room, moment: str) -> None:
    """During an observation, or between our read and our write."""
    no_help(room.service)
    once = iter([True])

    def edit(service: Service) -> None:
        if next(once, False):
            service.edit(scheduler="token-budget")

    setattr(room.service, moment, edit)
    result = room.run()
    assert result.outcome is Outcome.REFUSED, result
    assert "another client has already set these values" in result.reason
    assert room.service.values == AFTER
    assert room.service.writes == []
    assert room.recovered() == []


def test_same_value_of_another_client_stays_when_the_rest_is_undone(room: Room) -> None:
    def edit(service: Service) -> None:
        if service.values["lanes"] and service.values["scheduler"] == "long-alone":
            service.edit(scheduler="token-budget")

    room.service.on_observe = edit
    room.service.p99 = lambda service: 3.0
    result = room.run("test.whole")
    assert "another client has already set these values" in result.reason
    assert room.service.values["scheduler"] == "token-budget"


def test_edit_of_our_field_by_another_client_is_left(room: Room) -> None:
    no_help(room.service)

    def edit(service: Service) -> None:
        if service.writes and service.values["scheduler"] == "token-budget":
            service.edit(scheduler="single")

    room.service.on_observe = edit
    result = room.run()
    assert result.outcome is Outcome.INCOMPLETE
    assert room.service.values["scheduler"] == "single"
    assert result.manual == ()
    assert result.overwrite == ("set {'scheduler': 'long-alone'}",)
    assert result.next_step == f"latdoctor runs show {result.run}"
    assert room.recovered() == []  # nothing of ours is left, and nothing stands in the way of the next run
    room.service.on_observe = lambda service: None
    room.service.now += 700
    assert "not finished" not in room.run().reason


def test_an_edit_of_another_field_stays(room: Room) -> None:
    no_help(room.service)

    def edit(service: Service) -> None:
        if service.writes and not service.values["lanes"]:
            service.edit(lanes=True)

    room.service.on_observe = edit
    assert room.run().outcome is Outcome.ROLLED_BACK
    assert room.service.values == {"scheduler": "long-alone", "lanes": True}


def test_concurrent_write_to_another_field_is_retried(room: Room) -> None:
    once = iter([True])

    def edit(service: Service) -> None:
        if next(once, False):
            service.edit(lanes=True)

    room.service.on_write = edit
    assert room.run().outcome is Outcome.VERIFIED
    assert room.service.values == {"scheduler": "token-budget", "lanes": True}


@pytest.mark.parametrize("after", range(4))  # number of observations
def test_ctrl_c_rolls_back(room: Room, after: int) -> None:
    observations = iter(range(100))
    stopped = [""]

    def count(service: Service) -> None:
        if next(observations) == after:
            stopped[0] = "SIGINT"

    room.service.on_observe = count
    room.stop = lambda: stopped[0]
    assert room.run().outcome in (Outcome.ROLLED_BACK, Outcome.FAILED)
    assert room.service.values == BEFORE


def test_the_kill_switch(room: Room) -> None:
    room.state.mkdir(exist_ok=True)
    (room.state / "STOP").touch()
    result = room.run()
    assert result.outcome is Outcome.REFUSED
    assert "STOP" in result.reason
    assert result.code is Reason.KILL_SWITCH
    assert room.service.writes == []


def test_kill_switch_during_a_run_rolls_back(room: Room) -> None:
    def throw(service: Service) -> None:
        if service.writes:
            (room.state / "STOP").touch()

    room.service.on_observe = throw
    assert room.run().outcome is Outcome.ROLLED_BACK
    assert room.service.values == BEFORE


def test_cooldown_then_attempts_then_breaker(room: Room) -> None:
    no_help(room.service)
    assert room.run().outcome is Outcome.ROLLED_BACK
    assert room.run().code is Reason.COOLDOWN
    room.service.now += 700
    assert room.run().outcome is Outcome.ROLLED_BACK
    room.service.now += 700
    assert room.run().code is Reason.ATTEMPTS
    assert room.run("test.lanes").outcome is Outcome.ROLLED_BACK
    room.service.now += 700
    result = room.run("test.lanes")
    assert result.outcome is Outcome.REFUSED
    assert result.code is Reason.CIRCUIT_BREAKER
    room.journal.append("", "breaker.reset", {})


def test_nothing_to_change_is_refused(room: Room) -> None:
    room.service.values["scheduler"] = "token-budget"
    assert room.run().outcome is Outcome.REFUSED


def test_run_after_a_killed_run_suggests_recover(room: Room) -> None:
    def die(entry: JournalEntry) -> None:
        if entry.kind == "change.made":
            raise Killed

    with contextlib.suppress(Killed):
        execute(room.plan(), room.library, replace(room.world, on_entry=die))
    result = room.run()
    assert (result.outcome, result.next_step) == (Outcome.REFUSED, "latdoctor recover")
    assert "is not finished" in result.reason


def test_a_playbook_that_changed_since_the_plan(room: Room, tmp_path: Path) -> None:
    plan = room.plan()
    changed = sample_playbooks.library(tmp_path / "other", sample_playbooks.SCHEDULER.replace("20s", "25s"))
    assert execute(plan, changed, room.world).outcome is Outcome.REFUSED


def test_an_old_plan_is_refused(room: Room) -> None:
    plan = room.plan()
    room.service.now += 3700
    assert execute(plan, room.library, room.world).outcome is Outcome.REFUSED


def test_high_risk_needs_approval(room: Room) -> None:
    plan = replace_risk(room.plan(), "high")
    assert execute(plan, room.library, room.world).outcome is Outcome.REFUSED
    room.approved = True
    assert execute(plan, room.library, room.world).outcome is Outcome.VERIFIED


def replace_risk(plan: Plan, risk: str) -> Plan:
    return msgspec.structs.replace(plan, risk=risk)


def test_verified_run_is_rolled_back_on_request(room: Room) -> None:
    done = room.run()
    back = room.rolled_back(done.run)
    assert back.outcome is Outcome.ROLLED_BACK
    assert room.service.values == BEFORE
    again = room.rolled_back(done.run)
    assert again.outcome is Outcome.REFUSED


def test_later_edit_is_left_by_a_requested_rollback(room: Room) -> None:
    done = room.run()
    room.service.edit(scheduler="single")
    back = room.rolled_back(done.run)
    assert (back.outcome, back.manual) == (Outcome.INCOMPLETE, ())
    assert room.recovered() == []
    assert room.service.values["scheduler"] == "single"
    assert room.rolled_back(done.run).outcome is Outcome.REFUSED


def test_later_run_on_the_same_fields_is_rolled_back_first(room: Room, tmp_path: Path) -> None:
    first = room.run()
    other = sample_playbooks.SCHEDULER.replace("test.scheduler", "test.single").replace("token-budget", "single")
    room.library = sample_playbooks.library(tmp_path / "more", sample_playbooks.SCHEDULER, other)
    room.service.p99 = lambda service: {"long-alone": 3.0, "token-budget": 3.0, "single": 0.3}[
        str(service.values["scheduler"])
    ]
    second = room.run("test.single")
    assert second.outcome is Outcome.VERIFIED, second
    entries = len(room.journal.entries())
    refused = room.rolled_back(first.run)
    assert refused.outcome is Outcome.REFUSED
    assert f"run {second.run} has changed the same fields later" in refused.reason
    assert refused.next_step == f"first latdoctor rollback {second.run}"
    assert len(room.journal.entries()) == entries
    for run in (second.run, first.run):
        assert room.rolled_back(run).outcome is Outcome.ROLLED_BACK
    assert room.service.values == BEFORE


def test_unreadable_target_leaves_a_verified_run_unchanged(room: Room) -> None:
    """As with a wrong token."""
    done = room.run()
    entries = len(room.journal.entries())

    def shut(service: Service) -> None:
        raise Refused("401: who are you?")

    room.service.on_answer = shut
    back = room.rolled_back(done.run)
    assert (back.outcome, back.outcome.exit_code) == (Outcome.FAILED, 1)
    assert "401" in back.reason
    assert len(room.journal.entries()) == entries
    room.service.on_answer = lambda service: None
    assert room.rolled_back(done.run).outcome is Outcome.ROLLED_BACK


def test_a_reason_does_not_grow_with_each_recovery(room: Room) -> None:
    no_help(room.service)

    def hang(service: Service) -> None:
        service.hangs = "rollback.begun" in room.kinds

    room.service.on_answer = hang
    first = room.run()
    assert first.outcome is Outcome.INCOMPLETE
    (second,), (third,) = room.recovered(), room.recovered()
    assert len({one.reason.count("NOT rolled back") for one in (first, second, third)}) == 1
    room.service.on_answer = lambda service: None
    room.service.hangs = False
    (last,) = room.recovered()
    assert last.outcome is Outcome.ROLLED_BACK
    assert last.reason.startswith("no improvement")
    assert "NOT rolled back" not in last.reason


def test_recovery_without_access_has_manual_commands(room: Room) -> None:
    plan = room.plan()

    def die(entry: JournalEntry) -> None:
        if entry.kind == "change.made":
            raise Killed

    room.hear = die
    with pytest.raises(Killed):
        room.execute(plan)
    (run,) = run_history.runs(room.journal.entries())

    def no_way(target: Target) -> RunContext:
        raise UsageError("the folder cannot be written")

    ended = rollback.recover_run(run, no_way)
    assert ended.outcome is Outcome.INCOMPLETE
    assert ended.manual == ("set {'scheduler': 'long-alone'}",)


def test_step_without_undo_is_not_undone(room: Room, tmp_path: Path) -> None:
    restart = sample_playbooks.SCHEDULER.replace("undo: restore", "undo: none-needed")
    room.library = sample_playbooks.library(tmp_path / "more", restart)
    no_help(room.service)
    result = room.run()
    assert result.outcome is Outcome.ROLLED_BACK
    assert "nothing to undo" in result.reason
    assert not {"rollback.begun", "undo.intended", "undo.made"} & set(room.kinds)
    assert room.rolled_back(result.run).outcome is Outcome.REFUSED


@pytest.mark.parametrize("why", ["SIGINT", "requested"])
def test_requested_rollbacks_do_not_trip_the_breaker(room: Room, why: str) -> None:
    if why == "SIGINT":
        room.stop = lambda: "SIGINT" if room.kinds[-1:] == ["change.made"] else ""
    for number in range(4):
        room.service.now += 90_000
        result = room.run(("test.scheduler", "test.lanes")[number % 2] if why == "SIGINT" else "test.scheduler")
        if why == "requested":
            assert result.outcome is Outcome.VERIFIED, result
            result = room.rolled_back(result.run)
        assert result.outcome is Outcome.ROLLED_BACK, result
        assert all(run.rolled_back_on_request for run in run_history.runs(room.journal.entries()))


def test_a_run_that_the_operator_stopped_does_not_cool_down(room: Room) -> None:
    """What it would have shown is not known, and the operator may go on at once."""
    room.stop = lambda: "SIGINT" if room.kinds[-1:] == ["change.made"] else ""
    assert room.run().outcome is Outcome.ROLLED_BACK
    room.stop = lambda: ""
    assert room.run().outcome is Outcome.VERIFIED


NOT_HIGHER = sample_playbooks.SCHEDULER.replace("latency.p99 < 0.5 x before", "latency.p99 < 2 x before")


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (NOT_HIGHER, Outcome.VERIFIED),  # its finding is not clear before
        (NOT_HIGHER.replace("[batch-sizes-bimodal clear]", "[arrival.rate > 0/s]"), Outcome.REFUSED),
    ],
)
def test_conditions_that_already_hold_are_refused(room: Room, tmp_path: Path, text: str, outcome: Outcome) -> None:
    room.library = sample_playbooks.library(tmp_path / "more", text)
    result = room.run()
    assert result.outcome is outcome, result
    assert (result.code is Reason.ALREADY_MET) == (outcome is Outcome.REFUSED)
    assert bool(room.service.writes) == (outcome is Outcome.VERIFIED)


@pytest.mark.parametrize(("window", "outcome"), [("15s", Outcome.ROLLED_BACK), ("5s", Outcome.VERIFIED)])
def test_fluctuating_signal_is_not_verified(room: Room, tmp_path: Path, window: str, outcome: Outcome) -> None:
    """A single window would have been the peak, and a change without effect would have passed."""
    text = sample_playbooks.SCHEDULER.replace("[batch-sizes-bimodal clear]", "[arrival.rate > 0/s]")
    room.library = sample_playbooks.library(tmp_path / "more", text.replace("{window: 10s}", f"{{window: {window}}}"))
    room.service.p99 = lambda service: 3.0 if service.now == float(window.rstrip("s")) else 1.2
    result = room.run()
    assert result.outcome is outcome, result


def test_absent_cause_is_refused(room: Room) -> None:
    room.service.p99 = lambda service: 0.9  # so that the finding which the playbook shall clear is clear
    result = room.run()
    assert result.outcome is Outcome.REFUSED
    assert "the cause is not present: batch-sizes-bimodal clear" in result.reason
    assert result.code is Reason.CAUSE_ABSENT
    assert not room.service.writes


def test_a_target_under_another_name_is_the_same_target(room: Room) -> None:
    plan = room.plan()
    other = msgspec.structs.replace(plan, target=msgspec.structs.replace(plan.target, admin="HTTP://Memory:80/"))
    assert room.execute(plan).outcome is Outcome.VERIFIED
    room.service.edit(**BEFORE)
    assert "less than 600 s ago" in room.execute(other).reason


def test_a_journal_that_cannot_be_written_changes_nothing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = room.plan()
    append = room.journal.append

    def full(run: str, kind: str, body: object) -> object:
        if kind == "change.intended":
            raise JournalError("no space left")
        return append(run, kind, body)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "append", lambda self, run, kind, body: full(run, kind, body))
    result = execute(plan, room.library, room.world)
    assert result.outcome is Outcome.FAILED
    assert room.service.writes == []


def test_journal_failure_does_not_prevent_rollback(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = room.plan()
    append = room.journal.append

    def full(run: str, kind: str, body: object) -> object:
        if room.service.writes:
            raise JournalError("no space left")
        return append(run, kind, body)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "append", lambda self, run, kind, body: full(run, kind, body))
    result = execute(plan, room.library, room.world)
    assert result.outcome is Outcome.ROLLED_BACK
    assert "no space left" in result.reason or "no space left" in result.note
    assert room.service.values == BEFORE
    monkeypatch.undo()


def test_a_disk_that_fails_just_after_the_last_entry(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal has the verification, and the run was informed that it has not."""
    plan, append, failed = room.plan(), room.journal.append, False

    def failing(run: str, kind: str, body: object) -> object:
        nonlocal failed
        if not failed:
            entry = append(run, kind, body)  # type: ignore[arg-type]
            failed = kind == "verify.passed"
        if failed:
            raise JournalError("the disk does not keep the journal")
        return entry

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", lambda self, run, kind, body: failing(run, kind, body))
        assert execute(plan, room.library, room.world).outcome is Outcome.ROLLED_BACK
    assert room.service.values == BEFORE
    assert [one.outcome for one in room.recovered()] == [Outcome.ROLLED_BACK]
    assert room.service.values == BEFORE
    assert room.recovered() == []


def test_defect_is_raised_after_a_rollback(room: Room) -> None:
    def broken(service: Service) -> None:
        if service.writes:
            raise ZeroDivisionError

    room.service.on_observe = broken
    with pytest.raises(ZeroDivisionError):
        room.run()
    assert room.service.values == BEFORE
    (run,) = run_history.runs(room.journal.entries())
    assert (run.outcome, "ZeroDivisionError" in run.reason) == (Outcome.ROLLED_BACK, True)


def test_stages_and_the_whole_are_verified(room: Room) -> None:
    room.service.p99 = lambda service: 0.3 if service.values == {"scheduler": "token-budget", "lanes": True} else 3.0
    result = room.run("test.whole")
    assert result.outcome is Outcome.VERIFIED, result
    assert room.kinds.count("stage.verified") == 2


def test_worsening_stage_is_undone_and_others_stay(room: Room) -> None:
    room.service.p99 = lambda service: 9.0 if service.values["scheduler"] == "token-budget" else 3.0
    result = room.run("test.whole")
    assert result.outcome is Outcome.PARTLY_ROLLED_BACK
    assert result.next_step == f"latdoctor rollback {result.run}"
    assert room.service.values == {"scheduler": "long-alone", "lanes": True}
    assert "test.lanes" in result.reason
    assert room.rolled_back(result.run).outcome is Outcome.ROLLED_BACK
    assert room.service.values == BEFORE


@pytest.mark.parametrize(("completed", "outcome"), [(60.0, Outcome.REFUSED), (44.0, Outcome.VERIFIED)])
def test_recovering_service_is_refused(room: Room, completed: float, outcome: Outcome) -> None:
    """40 requests come in a second, as before the incident; the queue that it left is worked off by itself."""
    room.service.completed = lambda service: completed
    result = room.run()
    assert result.outcome is outcome, result
    if outcome is Outcome.REFUSED:
        assert result.code is Reason.RECOVERING
        assert room.service.values == BEFORE


@dataclass(frozen=True)
class Deep:
    """A stage while a queue stands: 20 requests were completed in a second and 200 waited before, and P99 triples."""

    completed: float
    queue: float
    stays: bool


@pytest.mark.parametrize(
    "deep",
    [
        pytest.param(Deep(30.0, 400.0, stays=True), id="more is completed, the queue grows still"),
        pytest.param(Deep(20.0, 210.0, stays=True), id="as much is completed"),
        pytest.param(Deep(20.0, 400.0, stays=False), id="as much is completed, and the queue grows"),
        pytest.param(Deep(15.0, 200.0, stays=False), id="less is completed"),
        pytest.param(Deep(30.0, 5.0, stays=False), id="no queue stands, and P99 is of what is computed"),
    ],
)
def test_stage_with_a_queue_is_judged_by_the_completion_rate(room: Room, deep: Deep) -> None:
    """P99 is then the waiting time, and rises with the age of the queue."""

    def made(service: Service) -> bool:
        return bool(service.values["lanes"])

    def p99(service: Service) -> float:
        fixed = service.values == {"scheduler": "token-budget", "lanes": True}
        return 0.3 if fixed else 9.0 if made(service) else 3.0

    room.service.p99 = p99
    room.service.completed = lambda service: deep.completed if made(service) else 20.0
    room.service.queue = lambda service: deep.queue if made(service) else 200.0
    result = room.run("test.whole")
    assert result.outcome is (Outcome.VERIFIED if deep.stays else Outcome.ROLLED_BACK), result
    assert room.kinds.count("stage.verified") == (2 if deep.stays else 0)
    assert room.service.values["lanes"] is deep.stays


def test_stages_go_on_in_an_outage(room: Room) -> None:
    """Nothing was answered before, and the first stage alone changes nothing."""

    def fixed(service: Service) -> bool:
        return service.values == {"scheduler": "token-budget", "lanes": True}

    room.service.p99 = lambda service: 0.3 if fixed(service) else 12.0 if service.values["lanes"] else 3.0
    room.service.completed = lambda service: 40.0 if fixed(service) else 0.0
    room.service.queue = lambda service: 5.0 if fixed(service) else 400.0
    result = room.run("test.whole")
    assert room.kinds.count("stage.verified") == 2, result
    assert room.service.values == {"scheduler": "token-budget", "lanes": True}


def test_window_after_a_change_of_a_queue_is_no_reference(room: Room) -> None:
    """Short requests are packed first, and 120 of them are completed in a second; what stays are long ones."""

    def fixed(service: Service) -> bool:
        return service.values == {"scheduler": "token-budget", "lanes": True}

    def p99(service: Service) -> float:
        if room.kinds.count("stage.verified") == 2:
            return 0.3
        return 20.0 if fixed(service) else 9.0 if service.values["lanes"] else 3.0

    room.service.p99 = p99
    room.service.completed = lambda service: 30.0 if fixed(service) else 120.0 if service.values["lanes"] else 20.0
    room.service.queue = lambda service: 200.0
    result = room.run("test.whole")
    assert room.kinds.count("stage.verified") == 2, result


@pytest.mark.parametrize(
    ("answers", "window"),
    [
        pytest.param(40.0, 5.0, id="two hundred in five seconds"),
        pytest.param(22.0, 6.0, id="hardly more than a hundred, and a window may have fewer"),
        pytest.param(16.0, 8.0, id="fewer than a hundred"),
        pytest.param(6.3, 20.0, id="a slow service"),
    ],
)
def test_windows_are_longer_at_a_low_request_rate(room: Room, answers: float, window: float) -> None:
    """A P99 needs a hundred answers, before as after."""
    room.service.answers = answers
    result = room.run()
    assert result.outcome is Outcome.VERIFIED, result
    proofs = [
        msgspec.json.decode(entry.body, type=WindowResult) for entry in room.journal.entries(kinds={"verify.window"})
    ]
    assert {one.ended - one.started for one in proofs} == {window}
    assert ("before.longer" in room.kinds) is (window > WINDOW), "the reason is reported"


@pytest.mark.parametrize(
    ("answers", "windows"),
    [
        pytest.param((12.5, 8.2), [10.0, 16.0], id="a queue grows"),
        pytest.param((16.0, 8.0, 5.5), [8.0, 16.0, 20.0], id="and grows"),
        pytest.param((16.0, 13.0), [8.0], id="enough, if not with as many to spare"),
        pytest.param((16.0, 1.0), [8.0, 20.0], id="no answers any more"),
    ],
)
def test_windows_grow_with_a_falling_request_rate(room: Room, answers: tuple[float, ...], windows: list[float]) -> None:
    """As many each second in each look; what is fixed answers as before the rush."""
    coming = iter(answers)

    def observing(service: Service) -> None:
        service.answers = 40.0 if service.writes else next(coming, answers[-1])

    room.service.on_observe = observing
    result = room.run()
    assert result.outcome is (Outcome.VERIFIED if answers[-1] > 5 else Outcome.REFUSED), result
    longer = [msgspec.json.decode(entry.body) for entry in room.journal.entries(kinds={"before.longer"})]
    assert longer == [{"seconds": window, "usual": WINDOW} for window in windows]


def test_too_few_answers_are_refused_with_the_reason(room: Room) -> None:
    room.service.answers = 5.0
    result = room.run()
    assert result.outcome is Outcome.REFUSED, result
    assert "25 observed, 100 are needed (observed for 5 s)" in result.reason
    assert room.service.writes == []
    assert room.service.now == pytest.approx(10.0), "no wait for an inconclusive observation"


def test_observation_before_a_refusal_can_be_diagnosed(room: Room) -> None:
    room.service.answers, room.service.bundle = 5.0, Bundle(Context("service"), Window(0.0, 1.0))
    result = room.run()
    assert result.outcome is Outcome.REFUSED
    assert result.next_step == f"latdoctor diagnose {room.state}/runs/{result.run}/before.tar.zst"


def test_conflict_suggests_no_diagnosis_of_the_old_observation(room: Room) -> None:
    room.service.bundle = Bundle(Context("service"), Window(0.0, 1.0))
    room.service.on_write = lambda service: service.edit(scheduler="token-budget")
    result = room.run()
    assert result.outcome is Outcome.REFUSED, result
    assert result.next_step == ""


def test_unverified_whole_is_undone_completely(room: Room) -> None:
    no_help(room.service)
    assert room.run("test.whole").outcome is Outcome.ROLLED_BACK
    assert room.service.values == BEFORE


class Killed(BaseException):
    """Like SIGKILL: nothing of ours runs after it."""


@pytest.mark.parametrize("name", ["test.scheduler", "test.whole"])
def test_killed_after_any_entry_and_recovered(room: Room, name: str) -> None:
    """Between any two entries of the journal; `tests/crash` kills real processes at each system call."""
    room.service.p99 = lambda service: 0.3 if service.values["scheduler"] == "token-budget" else 3.0
    whole = room.run(name)
    entries = len(room.journal.entries())
    assert whole.outcome is Outcome.VERIFIED
    done = dict(room.service.values)
    for number in range(entries - 1):
        room.service.values = dict(BEFORE)
        room.service.version += 1
        room.service.now += 200_000  # beyond cooldown and attempts
        plan = room.plan(name)
        left = iter(range(number))

        def die(entry: object, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Killed

        with contextlib.suppress(Killed):
            execute(plan, room.library, replace(room.world, on_entry=die))
        room.recovered()
        assert room.service.values in (BEFORE, done), number
        assert not [run for run in run_history.runs(room.journal.entries()) if run.open]
        assert room.recovered() == []
