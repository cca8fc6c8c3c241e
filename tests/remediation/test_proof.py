"""The proof of a change in simulated time: what it needs, what stops it, and how a pending one ends."""

from __future__ import annotations

import math
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from latdoctor.errors import UsageError
from latdoctor.evidence.model import Origin, Reading, Window
from latdoctor.evidence.page_state import PageState
from latdoctor.journal.locks import lock
from latdoctor.journal.state_dir import LOCKS
from latdoctor.remediation import actions, rollback, run_history
from latdoctor.remediation.executor import resume
from latdoctor.remediation.history import History, of_series, since_rise
from latdoctor.remediation.live_proofs import with_live_proofs
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.pending_proof import Prover
from latdoctor.remediation.playbook import Disruption, Verify
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.proof import ERROR, Schedule
from latdoctor.remediation.run_context import RunContext
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Outcome, Reason, Result
from tests.remediation.simulated_service import AT, Service, Setting
from tests.remediation.test_run import AFTER, BEFORE, Killed, Room, furnished

PAGE = "http://memory/metrics"


class Watched(Service):
    """A service whose page shows its process, the mean length of inputs, and a history of ten minutes."""

    remembers = True
    length = 100.0
    started = AT - 86_400
    counted = 1e6
    page = PAGE
    subject = "service"
    more: tuple[Reading, ...] = ()
    without: frozenset[str] = frozenset()

    def observe(self, seconds: float) -> Observation:
        seen = super().observe(seconds)
        window = Window(seen.started, seen.ended)
        readings = [
            *seen.evidence.readings,
            Reading("input.length.mean", "service", self.length, Origin("page"), window),
        ]
        kept = [
            msgspec.structs.replace(one, subject=self.subject) for one in readings if one.signal not in self.without
        ]
        self.counted += 100
        pages = (PageState(self.page, self.started, {"answered_total": self.counted}),)
        evidence = msgspec.structs.replace(seen.evidence, readings=(*kept, *self.more))
        return replace(seen, evidence=evidence, pages=pages)

    def history(self, step: float) -> History:
        if not self.remembers:
            return History()
        rows = {"latency.p99": 3.0, "arrival.rate": 40.0, "input.length.mean": 100.0, "completion.rate": 40.0}
        return History(step, {(name, "service"): (value,) * 120 for name, value in rows.items()}, "simulated")


def once_changed(change: Callable[[Watched], None]) -> Callable[[Service], None]:
    """Does `change` with the first write of a run."""

    def on_write(service: Service) -> None:
        service.on_write = lambda service: None
        assert isinstance(service, Watched)
        change(service)

    return on_write


@pytest.fixture
def service() -> Watched:
    return Watched()


@pytest.fixture
def room(service: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(actions, "ACTIONS", (*actions.ACTIONS, Setting(service)))
    return furnished(service, tmp_path)


def run(room: Room, **context: object) -> Result:
    """One run of the playbook that takes the scheduler which helps."""
    from latdoctor.remediation.executor import execute

    return execute(room.plan(), room.library, world(room, **context))


def world(room: Room, **context: object) -> RunContext:
    assert isinstance(room.service, Watched)
    return replace(room.world, history=room.service.history, **context)


def seconds_after_change(room: Room) -> float:
    return room.service.now - room.service.changed_at


def test_effect_is_proven_within_a_minute_where_a_history_exists(room: Room) -> None:
    result = run(room)
    assert result.outcome is Outcome.VERIFIED, result
    assert 30 <= seconds_after_change(room) <= 60


def test_effect_is_proven_after_the_run_where_no_history_exists(room: Room, service: Watched) -> None:
    service.remembers = False
    result = run(room)
    assert result.outcome is Outcome.VERIFIED, result
    assert 120 <= seconds_after_change(room) <= 360
    assert "proof.pending" in room.kinds
    windows = [run_history.entry_text(one) for one in room.journal.entries() if one.kind == "verify.window"]
    waiting = [text for text in windows if "not yet beyond chance" in text]
    assert waiting
    assert not any("expected <" in text for text in waiting), "a condition that is met is no reason to wait"


def shorter_inputs(service: Watched) -> None:
    service.length = 20.0


def restarted(service: Watched) -> None:
    service.started, service.counted = service.wall(), 0.0


def restarted_unseen(service: Watched) -> None:
    service.counted = 0.0


def another_replica(service: Watched) -> None:
    service.subject = "service-2"


def another_page(service: Watched) -> None:
    service.page = "http://memory:2/metrics"


def less_load(service: Watched) -> None:
    service.rate = 34.0


def much_less_load(service: Watched) -> None:
    service.rate = 8.0


def latency_unknown(service: Watched) -> None:
    service.without = frozenset({"latency.p99"})


def load_unknown(service: Watched) -> None:
    service.without = frozenset({"arrival.rate"})


def length_unknown(service: Watched) -> None:
    service.without = frozenset({"input.length.mean"})


def bad_replica(service: Watched) -> None:
    service.more = (Reading("latency.p99", "service-2", 9.0, Origin("page")),)


def longer_inputs(service: Watched) -> None:
    service.length = 300.0


def relapse(service: Watched) -> None:
    began = service.now
    service.p99 = lambda service: 0.3 if service.now - began < 25 else 3.0


def unread_finding(service: Watched) -> None:
    service.readable = False


OTHER_CHANGES = (
    shorter_inputs,
    restarted,
    another_replica,
    restarted_unseen,
    another_page,
    less_load,
    much_less_load,
    latency_unknown,
    load_unknown,
    length_unknown,
    bad_replica,
    longer_inputs,
    relapse,
    unread_finding,
)


@pytest.mark.parametrize("change", OTHER_CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("remembers", [True, False], ids=["history", "no history"])
def test_nothing_is_verified_where_something_else_changed(
    room: Room, service: Watched, change: Callable[[Watched], None], remembers: bool
) -> None:
    """The latency falls at the same moment, so that without the check of what changed the run would verify."""
    service.remembers = remembers
    service.on_write = once_changed(change)
    result = run(room)
    assert result.outcome is Outcome.ROLLED_BACK, result
    assert service.values == BEFORE


def test_in_a_rush_that_has_just_begun_the_load_is_that_of_the_moment(room: Room, service: Watched) -> None:
    """The history of ten minutes is nearly all of a third of the load, at which nothing can be compared any more."""
    service.rate = 120.0
    result = run(room)
    assert result.outcome is Outcome.VERIFIED, result


def test_a_change_that_restarts_the_server_is_verified_on_its_new_process(room: Room, service: Watched) -> None:
    """The page is that of another process and began to count anew, which any other change must not do."""
    restarts = [msgspec.structs.replace(one, disruption=Disruption.RESTARTS) for one in room.library.playbooks]
    room.library = Library(tuple(restarts))
    service.on_write = once_changed(restarted)
    result = run(room)
    assert result.outcome is Outcome.VERIFIED, result


@pytest.mark.parametrize(("rate", "outcome"), [(1.0, Outcome.VERIFIED), (40.0, Outcome.ROLLED_BACK)])
@pytest.mark.parametrize("remembers", [True, False], ids=["history", "no history"])
def test_nothing_is_verified_where_the_answers_are_no_longer_the_models(
    room: Room, service: Watched, remembers: bool, rate: float, outcome: Outcome
) -> None:
    def fallback(value: float) -> tuple[Reading, ...]:
        rates = {"completion.rate": 40.0, "fallback.rate": value}
        return tuple(Reading(name, "service", one, Origin("page")) for name, one in rates.items())

    def change(service: Watched) -> None:
        service.more = fallback(rate)

    service.remembers, service.more = remembers, fallback(0.0)
    service.on_write = once_changed(change)
    assert run(room).outcome is outcome


@pytest.mark.parametrize("remembers", [True, False], ids=["history", "no history"])
@pytest.mark.parametrize(("answered", "outcome"), [(40.0, Outcome.VERIFIED), (26.0, Outcome.ROLLED_BACK)])
def test_nothing_is_verified_where_requests_are_no_longer_answered(
    room: Room, service: Watched, remembers: bool, answered: float, outcome: Outcome
) -> None:
    """The latency of those that are left falls, and as many arrive as before."""
    service.remembers = remembers
    service.completed = lambda service: 40.0 if service.values == BEFORE else answered
    result = run(room)
    assert result.outcome is outcome, result
    assert service.values == (AFTER if outcome is Outcome.VERIFIED else BEFORE)


def test_service_that_recovers_by_itself_is_refused(room: Room, service: Watched) -> None:
    service.remembers = False
    service.p99 = lambda service: 3.0 * 0.9 ** (service.now / 5)
    service.completed = lambda service: 60.0
    result = run(room)
    assert (result.outcome, result.code) == (Outcome.REFUSED, Reason.RECOVERING)
    assert not service.writes


class Elsewhere:
    """Stands for the process that would go on: remembers that it was started."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def __call__(self, run: str, lock: int) -> int:
        assert lock >= 0
        self.started.append(run)
        return 0


@pytest.fixture
def pending(room: Room, service: Watched) -> RunState:
    """A run that has handed its proof over, and whose successor was killed at once."""
    service.remembers = False
    other = Elsewhere()
    result = run(room, hand_over=other)
    assert (result.outcome, result.outcome.exit_code) == (Outcome.PENDING, 7)
    assert other.started == [result.run]
    assert service.values == AFTER
    (found,) = run_history.runs(room.journal.entries())
    assert found.proof_open
    return found


def recovered(room: Room, found: RunState) -> Result:
    return rollback.recover_run(
        found, lambda target: world(room), lambda run, context: resume(run, room.library, context)
    )


def test_pending_proof_is_completed_by_recovery(room: Room, service: Watched, pending: RunState) -> None:
    result = recovered(room, pending)
    assert result.outcome is Outcome.VERIFIED, result
    assert service.values == AFTER


def test_proof_that_nobody_goes_on_with_is_not_pending(room: Room, service: Watched, pending: RunState) -> None:
    """Neither after its process was killed, nor where that is suspended beyond the deadline."""
    locks, now = room.world.state / LOCKS, service.wall()
    with lock(locks, pending.plan.target.key, pending.id):
        assert with_live_proofs([pending], locks, now) == (pending,)
        assert not with_live_proofs([pending], locks, now + 3600)[0].proof_open
    (killed,) = with_live_proofs([pending], locks, now)
    assert killed.open
    assert not killed.proof_open


@pytest.fixture
def another(room: Room, pending: RunState) -> Iterator[subprocess.Popen[bytes]]:
    """A process that goes on with the proof, whose lock no longer counts: its file was removed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:  # until its input ends
        room.journal.append(pending.id, "proof.prover", Prover.of(process.pid))
        yield process


def reread(room: Room) -> RunState:
    (found,) = run_history.runs(room.journal.entries())
    return found


def test_no_second_process_proves_what_another_does_whose_lock_was_removed(
    room: Room, service: Watched, another: subprocess.Popen[bytes]
) -> None:
    locks = room.world.state / LOCKS
    assert with_live_proofs([reread(room)], locks, service.wall())[0].proof_open
    result = recovered(room, reread(room))
    assert (result.outcome, result.code) == (Outcome.HELD, Reason.STILL_RUNNING)
    assert f"process {another.pid}" in result.reason
    another.communicate()
    assert not with_live_proofs([reread(room)], locks, service.wall())[0].proof_open
    assert recovered(room, reread(room)).outcome is Outcome.VERIFIED


def test_rollback_stops_a_proof_whose_lock_was_removed_and_waits_for_it(
    room: Room, service: Watched, another: subprocess.Popen[bytes]
) -> None:
    found = reread(room)

    def sleep(seconds: float) -> None:
        another.wait()
        service.sleep(seconds)

    waiting = world(room, sleep=sleep)
    result = rollback.roll_back_run(found.id, lambda target: waiting, lambda: run_history.runs(room.journal.entries()))
    assert another.wait() == -signal.SIGTERM
    assert result.outcome is Outcome.ROLLED_BACK
    assert service.values == BEFORE


def test_proof_that_cannot_go_on_is_rolled_back_at_once(room: Room, service: Watched, pending: RunState) -> None:
    def fail(run: RunState, context: RunContext) -> Result:
        raise UsageError("no playbook 'test'")

    result = rollback.recover_run(pending, lambda target: world(room), fail)
    assert result.outcome is Outcome.ROLLED_BACK
    assert "the proof cannot go on: no playbook 'test'" in result.reason
    assert service.values == BEFORE


def test_pending_proof_without_effect_is_rolled_back(room: Room, service: Watched, pending: RunState) -> None:
    service.p99 = lambda service: 3.0
    result = recovered(room, pending)
    assert result.outcome is Outcome.ROLLED_BACK, result
    assert service.values == BEFORE


def test_pending_proof_is_rolled_back_after_its_deadline(room: Room, service: Watched, pending: RunState) -> None:
    service.now += 3600
    result = recovered(room, pending)
    assert result.outcome is Outcome.ROLLED_BACK, result
    assert service.values == BEFORE


def test_pending_proof_of_a_server_that_restarted_is_rolled_back(
    room: Room, service: Watched, pending: RunState
) -> None:
    restarted(service)
    assert recovered(room, pending).outcome is Outcome.ROLLED_BACK


def test_pending_proof_refuses_another_run_on_the_target(room: Room, pending: RunState) -> None:
    result = run(room)
    assert (result.outcome, result.code) == (Outcome.REFUSED, Reason.UNFINISHED_RUN)


def test_pending_proof_that_cannot_be_handed_over_is_rolled_back(room: Room, service: Watched) -> None:
    from latdoctor.errors import OperationError

    def fail(run: str, lock: int) -> int:
        raise OperationError("no process can be started")

    service.remembers = False
    result = run(room, hand_over=fail)
    assert result.outcome is Outcome.ROLLED_BACK
    assert service.values == BEFORE


def test_pending_proof_survives_a_kill_after_any_entry(room: Room, service: Watched, pending: RunState) -> None:
    for number in range(4):
        left = iter(range(number))

        def die(entry: object, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise Killed

        room.hear = die
        with pytest.raises(Killed):
            recovered(room, pending)
    room.hear = lambda entry: None
    assert recovered(room, pending).outcome is Outcome.VERIFIED
    assert service.values == AFTER


@pytest.mark.parametrize(("hold", "until", "every"), [(30.0, 60.0, 5.0), (120.0, 300.0, 30.0), (90.0, 60.0, 5.0)])
def test_all_looks_together_take_the_stated_error(hold: float, until: float, every: float) -> None:
    schedule = Schedule(hold, until, every, ERROR, 0.1)
    taken = sum(schedule.chance(number * 5.0, 5.0) for number in range(1, int(until / 5) + 1))
    assert taken <= ERROR * (1 + 1e-9)
    assert taken == pytest.approx(ERROR if hold <= until else 0.0)


def test_history_begins_after_its_last_long_pause() -> None:
    from latdoctor.evidence.model import Series

    times = (0.0, 5.0, 10.0, 60.0, 65.0, 70.0)
    series = Series("latency.p99", "service", times, (1.0, 2.0, 3.0, 4.0, math.nan, 6.0), Origin("x"))
    assert of_series([series], 5.0, 72.0, "x").values == {("latency.p99", "service"): (4.0, 6.0)}
    assert of_series([series], 5.0, 500.0, "x").values == {}


def test_level_of_an_incident_is_that_since_its_rise() -> None:
    calm = [1.0 + 0.05 * math.sin(number) for number in range(80)]
    assert since_rise([*calm, *(10 * value for value in calm[:20])])[0] == pytest.approx(10, rel=0.2)
    assert len(since_rise(calm)) == len(calm)


def test_verify_needs_longer_where_less_was_observed() -> None:
    verify = Verify(succeed=())
    alone, later = Schedule.of_run(verify, {}, 5.0)
    assert (alone.hold, later.hold, alone.looks) == (120.0, 120.0, 0)
    assert later.error < ERROR


RENAMED = {
    "the place is called otherwise": ({"replica/0@10.0.0.1:8002"}, {"replica/0@chat:8002"}, "replica/0@chat:8002"),
    "it has no place there": ({"replica/0"}, {"replica/0@chat:8002"}, "replica/0@chat:8002"),
    "the same": ({"replica/0@chat:8002"}, {"replica/0@chat:8002"}, "replica/0@chat:8002"),
    "another replica": ({"replica/1@10.0.0.1:8002"}, {"replica/0@chat:8002"}, "replica/1@10.0.0.1:8002"),
    "one of two then": ({"replica/0@a:1", "replica/0@b:1"}, {"replica/0@chat:8002"}, "replica/0@a:1"),
    "one of two now": ({"replica/0@a:1"}, {"replica/0@chat:8002", "replica/0@chat:8003"}, "replica/0@a:1"),
}


@pytest.mark.parametrize(("then", "now", "name"), RENAMED.values(), ids=RENAMED.keys())
def test_history_is_that_of_the_subject_on_the_page(then: set[str], now: set[str], name: str) -> None:
    past = History(5.0, {("latency.p99", subject): (1.0, 2.0) for subject in sorted(then)}, "prometheus:9090")
    renamed = past.named_as(("latency.p99", subject) for subject in now)
    assert ("latency.p99", name) in renamed.values
    assert len(renamed.values) == len(then)
    assert (renamed.step, renamed.source) == (past.step, past.source)
