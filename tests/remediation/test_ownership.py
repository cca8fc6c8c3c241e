"""Whose value it is: every row of the table in docs/remediation.md, "Whose value it is", on a simulated and on the real
reference server. A run is undone by itself, on request, or by a recovery; the rows are the same."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from latdoctor.http.client import Secret
from latdoctor.journal.entry import JournalEntry, JournalError
from latdoctor.journal.store import Journal
from latdoctor.remediation import rollback, run_history, undo
from latdoctor.remediation.actions.process import Process
from latdoctor.remediation.change import Change, Field, Undo
from latdoctor.remediation.executor import execute
from latdoctor.remediation.own_writes import OwnWrites
from latdoctor.remediation.ownership import NotOurs, Snapshot, Write, not_ours
from latdoctor.remediation.planner import PlanRequest, build_plan
from latdoctor.remediation.playbook_library import read_library
from latdoctor.remediation.run_context import RunContext, RunJournal
from latdoctor.remediation.run_history import ChangeLeft, ChangeRef, RollbackStarted, WriteStarted
from latdoctor.remediation.run_result import Outcome, Result
from latdoctor.remediation.target import Access, Target
from tests.crash.mending import entered
from tests.lab.server.running_server import ADMIN, TOKEN, Running
from tests.remediation.actions.action_fixtures import child
from tests.remediation.actions.lossy_proxy import Wire
from tests.remediation.simulated_service import Service
from tests.remediation.test_guarantees import simulated
from tests.remediation.test_run import AFTER, BEFORE, Killed, Room, no_help

AGAIN, RESTARTED = NotOurs.SET_AGAIN, NotOurs.RESTARTED


def snapshot(version: str, document: str = "d1", instance: str = "i1") -> Snapshot:
    return Snapshot(version, document, instance)


def write(before: str, after: str, document: str = "d1", base: str = "d0") -> Write:
    return Write(snapshot(before, base), snapshot(after, document))


OURS = write("v0", "v1")
CHAINS: dict[str, tuple[Write | None, list[Write | None], Snapshot, NotOurs | None]] = {
    "version unchanged": (OURS, [], snapshot("v1"), None),
    "version unchanged, and the process is not known": (OURS, [], snapshot("v1", instance=""), None),
    "another field was set": (OURS, [], snapshot("v2", "d2"), None),
    "the same value was set again": (OURS, [], snapshot("v2"), AGAIN),
    "another process": (OURS, [], snapshot("v9", instance="i2"), RESTARTED),
    "another process with the version of the first": (OURS, [], snapshot("v1", instance="i2"), RESTARTED),
    "another process and another field": (OURS, [], snapshot("v9", "d2", "i2"), RESTARTED),
    "no version is known": (Write(Snapshot(), Snapshot("", "d1", "i1")), [], snapshot("v2"), None),
    "no write is journaled": (None, [], snapshot("v2", instance="i2"), None),
    "later writes of ours explain the version": (
        OURS,
        [write("v1", "v2", "d2"), write("v2", "v3")],
        snapshot("v3"),
        None,
    ),
    "set again before a later write of ours": (OURS, [write("v2", "v3", "d2", "d1")], snapshot("v3", "d2"), AGAIN),
    "set again after a later write of ours": (OURS, [write("v1", "v2", "d2")], snapshot("v3", "d2"), AGAIN),
    "a write of ours whose result is unknown explains the version": (OURS, [None], snapshot("v2"), None),
    "and only what comes before it": (OURS, [None, write("v2", "v3")], snapshot("v4"), AGAIN),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chain_of_versions(name: str) -> None:
    own, later, now, expected = CHAINS[name]
    assert not_ours(own, later, now) is expected


# --- the rows, on a simulated server


@dataclass(frozen=True)
class Row:
    """What happens after our write, and what becomes of our field."""

    happens: Callable[[Service], None]
    stands: str
    why: NotOurs | None = None
    outcome: Outcome = Outcome.ROLLED_BACK


def twice(service: Service) -> None:
    service.edit(other=1)
    service.edit(other=2)


def both(service: Service) -> None:
    service.edit(other=1)
    service.edit(scheduler="token-budget")


def there_and_back(service: Service) -> None:
    service.edit(other=1)
    del service.values["other"]
    service.version += 1


ROWS = {
    "nothing": Row(lambda service: None, "long-alone"),
    "another field is set": Row(twice, "long-alone"),
    "another field, and ours to the same value": Row(both, "long-alone"),  # the same to see as the row above
    "ours is set to the same value": Row(
        lambda service: service.edit(scheduler="token-budget"), "token-budget", AGAIN, Outcome.INCOMPLETE
    ),
    "another field is set and set back": Row(there_and_back, "token-budget", AGAIN, Outcome.INCOMPLETE),
    "ours is set to a third value": Row(
        lambda service: service.edit(scheduler="single"), "single", None, Outcome.INCOMPLETE
    ),
    "ours is set back": Row(lambda service: service.edit(scheduler="long-alone"), "long-alone"),
    "a restart with our value": Row(
        lambda service: service.restart(), "token-budget", RESTARTED, Outcome.INCOMPLETE
    ),
    "a restart with the defaults": Row(lambda service: service.restart(scheduler="long-alone"), "long-alone"),
}  # fmt: skip


@pytest.fixture
def room() -> Iterator[Room]:
    with simulated() as made:
        yield made


def left(journal: Journal) -> list[NotOurs | None]:
    """The codes of what was left as it is."""
    return [msgspec.json.decode(one.body, type=ChangeLeft).code for one in journal.entries(kinds={"undo.left"})]


def by_itself(room: Room, row: Row) -> Result:
    """It happens after the change, and then the run does not help."""
    no_help(room.service)
    once = iter([True])

    def happens(service: Service) -> None:
        if service.writes and next(once, False):
            row.happens(service)

    room.service.on_observe = happens
    return room.run()


def on_request(room: Room, row: Row) -> Result:
    done = room.run()
    assert done.outcome is Outcome.VERIFIED
    row.happens(room.service)
    return room.rolled_back(done.run)


def by_recovery(room: Room, row: Row) -> Result:
    die_at(room, "change.made")
    row.happens(room.service)
    (ended,) = room.recovered()
    return ended


def die_at(room: Room, kind: str, name: str = "test.scheduler") -> None:
    """A run that is killed once the entry of that kind is on disk."""
    plan = room.plan(name)

    def die(entry: JournalEntry) -> None:
        if entry.kind == kind:
            raise Killed

    with contextlib.suppress(Killed):
        execute(plan, room.library, replace(room.world, on_entry=die))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("undo", [by_itself, on_request, by_recovery])
def test_each_row_on_a_simulated_server(room: Room, undo: Callable[[Room, Row], Result], name: str) -> None:
    row = ROWS[name]
    result = undo(room, row)
    assert result.outcome is row.outcome, result
    assert room.service.values["scheduler"] == row.stands
    assert bool(result.overwrite) is (row.outcome is Outcome.INCOMPLETE)
    assert result.manual == ()
    if row.why is not None:
        assert left(room.journal) == [row.why]
        assert f"'token-budget', but {row.why.text}" in result.reason
    writes = len(room.service.writes)
    assert room.recovered() == []  # nothing is open, and nothing is written once more
    assert len(room.service.writes) == writes


def test_restart_during_a_run_with_our_value_is_not_verified(room: Room) -> None:
    once = iter([True])

    def restart(service: Service) -> None:
        if service.writes and next(once, False):
            service.restart()

    room.service.on_observe = restart
    result = room.run()
    assert result.outcome is Outcome.INCOMPLETE, result
    assert "the server behind memory was restarted" in result.reason
    assert "verify.passed" not in room.kinds


def test_runs_of_ours_in_between_are_not_taken_for_another_client(room: Room) -> None:
    """The second run is rolled back, so the document is the same as after the first, with a later version."""
    first = room.run()
    room.service.p99 = lambda service: 3.0
    assert room.run("test.lanes").outcome is Outcome.ROLLED_BACK
    assert room.service.values == AFTER
    assert room.rolled_back(first.run).outcome is Outcome.ROLLED_BACK
    assert room.service.values == BEFORE


def test_values_set_again_are_left_behind_a_run_of_ours(room: Room) -> None:
    first = room.run()
    room.service.edit(scheduler="token-budget")
    room.service.p99 = lambda service: 3.0
    assert room.run("test.lanes").outcome is Outcome.ROLLED_BACK
    assert room.rolled_back(first.run).outcome is Outcome.INCOMPLETE
    assert room.service.values == AFTER


def test_two_changes_of_one_resource_are_both_left(room: Room) -> None:
    no_help(room.service)
    again = iter([True])

    def set_again(service: Service) -> None:
        if service.values["lanes"] and service.values["scheduler"] == "token-budget" and next(again, False):
            service.edit(lanes=True, scheduler="token-budget")

    room.service.on_observe = set_again
    assert room.run("test.whole").outcome is Outcome.INCOMPLETE
    assert left(room.journal) == [AGAIN, AGAIN]
    assert room.service.values == {"scheduler": "token-budget", "lanes": True}


def killed_before(room: Room, kind: str, work: Callable[[], object], stage: int = 0) -> None:
    """`work` is killed when it would journal the entry of that kind about the change of that stage."""
    append = room.journal.append

    def journaled(journal: Journal, run: str, entry: str, body: Any) -> JournalEntry:
        if entry == kind and body.stage == stage:
            raise Killed
        return append(run, entry, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(room.journal), "append", journaled)
        with pytest.raises(Killed):
            work()


def test_write_without_a_journaled_result_is_undone_by_its_value(room: Room) -> None:
    """Nothing distinguishes it from that of another client: the guarantee after a crash comes first."""
    killed_before(room, "change.made", room.run)
    assert room.kinds[-1] == "change.intended"
    room.service.edit(scheduler="token-budget")
    assert [one.outcome for one in room.recovered()] == [Outcome.ROLLED_BACK]
    assert room.service.values == BEFORE


def test_lost_response_is_journaled_as_the_next_read_shows_it(room: Room) -> None:
    room.service.loses_replies = 1
    done = room.run()
    room.service.edit(scheduler="token-budget")
    assert room.rolled_back(done.run).outcome is Outcome.INCOMPLETE
    assert left(room.journal) == [AGAIN]


def test_writes_whose_entries_are_lost_explain_a_new_version(room: Room) -> None:
    """The second change is made and undone, and neither is journaled: the document is then as after the first."""
    killed_before(room, "change.made", lambda: room.run("test.whole"), stage=1)
    killed_before(room, "undo.made", room.recovered, stage=1)
    assert room.service.values == {"scheduler": "long-alone", "lanes": True}
    assert [one.outcome for one in room.recovered()] == [Outcome.ROLLED_BACK]
    assert room.service.values == BEFORE


def test_unreadable_journal_leaves_the_values_to_decide(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(entries: object) -> OwnWrites:
        raise JournalError("entry 3 does not fit")

    no_help(room.service)
    monkeypatch.setattr(OwnWrites, "of", damaged)
    result = room.run()
    assert result.outcome is Outcome.ROLLED_BACK
    assert "the journal could not be read: entry 3 does not fit" in result.reason
    assert room.service.values == BEFORE


def test_setting_of_a_process_that_has_ended_is_left(room: Room) -> None:
    """The next process with that PID is another one, which its start tells."""
    with child() as target:
        setting = f"{Process.of(target)}, cpus"
    change = Change("pin", "process.affinity.set", setting, (Field("cpus", "0-1", "0"),), Undo.RESTORE)
    context = replace(room.world, access=Access(target, Secret("")))
    journal = RunJournal(room.journal, "r1", context.on_entry)
    ended = undo.undo_changes([(ChangeRef(0, 0), change)], RollbackStarted("no improvement"), context, journal)
    assert (ended.outcome, ended.manual, len(ended.overwrite)) == (Outcome.INCOMPLETE, (), 1)
    assert "the process has ended since" in ended.reason
    assert left(room.journal) == [NotOurs.ENDED]


# --- the rows, on the real reference server


@dataclass
class Real:
    """A run on a reference server, which a test may replace by another one."""

    context: RunContext
    wire: Wire
    server: Running
    stack: contextlib.ExitStack

    def verified(self) -> str:
        library = read_library([Path(__file__).parents[1] / "crash" / "playbooks"])
        playbook = library.find("test.two-steps")
        now, moment = self.context.now(), self.context.journal.clock()
        plan = build_plan(PlanRequest(playbook, {}), library, self.context.access, now, moment)
        result = execute(plan, library, self.context)
        assert result.outcome is Outcome.VERIFIED, result
        return result.run

    def rolled_back(self, run: str) -> Result:
        return rollback.roll_back_run(
            run, lambda target: self.context, lambda: run_history.runs(self.context.journal.entries())
        )

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.server.client.get("/admin/config", headers=ADMIN).json()
        return config

    def patch(self, **groups: Any) -> None:
        answer = self.server.client.patch("/admin/config", json=groups, headers={**ADMIN, "if-match": "*"})
        assert answer.status_code == 200

    def restart(self, **groups: Any) -> None:
        """Another process at the same address, with this configuration."""
        self.server = self.stack.enter_context(Running())
        self.wire.route(self.server.url)
        self.patch(**groups)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Running())
        wire = stack.enter_context(Wire(server.url))
        target = Target("lab", "reference", admin=wire.url)
        context = replace(entered(tmp_path / "state", wire.url, helps=True), access=Access(target, Secret(TOKEN)))
        made = Real(context, wire, server, stack)
        made.patch(batching={"scheduler": "long-alone"})
        yield made


OURS_SET = {"batching": {"scheduler": "token-budget"}, "governance": {"lanes": True}}
OLD, NEW = ("long-alone", False), ("token-budget", True)


def real_both(real: Real) -> None:
    real.patch(queue={"max_requests": 17})
    real.patch(**OURS_SET)


def real_there_and_back(real: Real) -> None:
    before = real.config["queue"]["max_requests"]
    real.patch(queue={"max_requests": 17})
    real.patch(queue={"max_requests": before})


# What happens, the codes of what is left as it is, and how our two fields stand then.
REAL_ROWS: dict[str, tuple[Callable[[Real], None], list[NotOurs | None], tuple[str, bool]]] = {
    "nothing": (lambda real: None, [], OLD),
    "another field is set": (lambda real: real.patch(queue={"max_requests": 17}), [], OLD),
    "another field, and ours to the same value": (real_both, [], OLD),
    "ours is set to the same value": (lambda real: real.patch(**OURS_SET), [AGAIN, AGAIN], NEW),
    "another field is set and set back": (real_there_and_back, [AGAIN, AGAIN], NEW),
    "ours is set to a third value": (
        lambda real: real.patch(batching={"scheduler": "count-only"}),
        [None],
        ("count-only", False),
    ),
    "ours is set back": (lambda real: real.patch(batching={"scheduler": "long-alone"}), [], OLD),
    "a restart with our value": (lambda real: real.restart(**OURS_SET), [RESTARTED, RESTARTED], NEW),
    "a restart with the defaults": (lambda real: real.restart(batching={"scheduler": "long-alone"}), [], OLD),
}


@pytest.mark.parametrize("name", REAL_ROWS)
def test_each_row_on_the_reference_server(real: Real, name: str) -> None:
    happens, codes, stands = REAL_ROWS[name]
    run = real.verified()
    happens(real)
    result = real.rolled_back(run)
    assert left(real.context.journal) == codes, result
    assert result.outcome is (Outcome.INCOMPLETE if codes else Outcome.ROLLED_BACK)
    config = real.config
    assert (config["batching"]["scheduler"], config["governance"]["lanes"]) == stands
    assert len(result.overwrite) == len(codes)


def test_run_killed_before_it_journaled_the_response_is_undone_on_the_reference_server(real: Real) -> None:
    append = Journal.append

    def journaled(journal: Journal, run: str, kind: str, body: Any) -> JournalEntry:
        if kind == "change.made":
            raise Killed
        return append(journal, run, kind, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "append", journaled)
        with pytest.raises(Killed):
            real.verified()
    assert real.config["batching"]["scheduler"] == "token-budget"
    (run,) = run_history.runs(real.context.journal.entries())
    assert rollback.recover_run(run, lambda target: real.context).outcome is Outcome.ROLLED_BACK
    assert real.config["batching"]["scheduler"] == "long-alone"


def test_lost_responses_of_the_reference_server_are_journaled_as_read(real: Real) -> None:
    real.wire.lose = 2
    run = real.verified()
    assert real.wire.lose == 0
    assert real.rolled_back(run).outcome is Outcome.ROLLED_BACK
    assert real.config["batching"]["scheduler"] == "long-alone"


def test_each_write_has_an_operation_id_that_is_journaled_and_sent(real: Real) -> None:
    run = real.verified()
    assert real.rolled_back(run).outcome is Outcome.ROLLED_BACK
    entries = real.context.journal.entries(run, kinds={"change.intended", "undo.intended"})
    journaled = [msgspec.json.decode(one.body, type=WriteStarted).operation for one in entries]
    assert journaled[:2] == [f"{run}-0-0", f"{run}-0-1"]
    assert [one.rpartition("-undo-")[0] for one in journaled[2:]] == [f"{run}-0-1", f"{run}-0-0"]
    assert len(set(journaled)) == 4
    sent = [re.search(rb"idempotency-key: (\S+)", one, re.IGNORECASE) for one in real.wire.writes]
    assert [one and one[1].decode() for one in sent] == journaled


def test_duplicate_of_our_write_that_arrives_after_the_undo_changes_nothing(real: Real) -> None:
    """With If-Match: * in place of its version, so that the key alone stops it."""
    run = real.verified()
    request = real.wire.writes[0]
    assert real.rolled_back(run).outcome is Outcome.ROLLED_BACK
    late = re.sub(rb"(?i)if-match: [^\r]*", b"if-match: *", request)
    with socket.create_connection((urlsplit(real.wire.url).hostname, urlsplit(real.wire.url).port)) as connection:
        connection.sendall(late)
        assert b" 200 OK" in connection.makefile("rb").readline()
    assert real.config["batching"]["scheduler"] == "long-alone"
