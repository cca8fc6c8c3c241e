"""The way back over several resources, and field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from latdoctor.remediation import actions
from latdoctor.remediation.change import Change, Deadline, Field, Receipt, Unreachable, Values
from latdoctor.remediation.run_context import RunJournal
from latdoctor.remediation.run_history import ChangeRef, RollbackStarted, WriteStarted
from latdoctor.remediation.run_result import Outcome
from latdoctor.remediation.undo import ROLLBACK_TIMEOUT, UndoResult, undo_changes
from tests.remediation.simulated_service import InMemory, Service, Setting
from tests.remediation.test_guarantees import simulated
from tests.remediation.test_run import Room

BOTH = (Field("scheduler", "long-alone", "token-budget"), Field("lanes", False, True))


@pytest.fixture
def room() -> Iterator[Room]:
    with simulated() as made:
        yield made


def back(room: Room, *changes: Change) -> UndoResult:
    made = [(ChangeRef(0, number), change) for number, change in enumerate(changes)]
    return undo_changes(
        made, RollbackStarted("no improvement"), room.world, RunJournal(room.journal, "r1", room.world.on_entry)
    )


def test_unresponsive_resource_leaves_time_for_others(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [Service(values={"lanes": True}) for _ in range(3)]
    known = tuple(Setting(service, f"test.{number}", f"place {number}") for number, service in enumerate(places))
    monkeypatch.setattr(actions, "ACTIONS", (*actions.ACTIONS, *known))

    def hang(service: Service) -> None:
        """The clock is the room's."""
        room.service.now += 10
        raise Unreachable("no answer")

    places[0].on_answer = hang
    lanes = (Field("lanes", False, True),)
    ended = back(room, *(Change(f"s{n}", f"test.{n}", f"place {n}", lanes, "restore") for n in range(3)))
    assert ended.outcome is Outcome.INCOMPLETE
    assert [service.values["lanes"] for service in places] == [True, False, False]
    assert ended.manual == ("set {'lanes': False}",)
    assert room.service.now <= ROLLBACK_TIMEOUT + 10


def test_late_resource_is_retried(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    late, well = Service(values={"lanes": True}), Service(values={"lanes": True})
    known = (Setting(late, "test.0", "place 0"), Setting(well, "test.1", "place 1"))
    monkeypatch.setattr(actions, "ACTIONS", (*actions.ACTIONS, *known))

    def hang(service: Service) -> None:
        if not well.writes:
            room.service.now += 10
            raise Unreachable("no answer")

    late.on_answer = hang
    lanes = (Field("lanes", False, True),)
    ended = back(room, *(Change(f"s{n}", f"test.{n}", f"place {n}", lanes, "restore") for n in range(2)))
    assert ended.outcome is Outcome.ROLLED_BACK, ended
    assert late.values == well.values == {"lanes": False}
    intents = [
        msgspec.json.decode(one.body, type=WriteStarted)
        for one in room.journal.entries()[1:-1]
        if one.kind == "undo.intended"
    ]
    assert sorted(one.index for one in intents) == [0, 0, 1]
    assert len({(one.index, one.operation) for one in intents}) == 2  # a retry is the same operation


@pytest.mark.parametrize(
    ("theirs", "outcome", "stands"),
    [
        ("single", Outcome.INCOMPLETE, "single"),
        ("long-alone", Outcome.ROLLED_BACK, "long-alone"),  # another client has restored it already
    ],
)
def test_only_fields_with_our_value_are_restored(room: Room, theirs: str, outcome: Outcome, stands: str) -> None:
    room.service.values = {"scheduler": theirs, "lanes": True}
    ended = back(room, Change("both", "test.set", "memory", BOTH, "restore"))
    assert ended.outcome is outcome, ended
    assert room.service.values == {"scheduler": stands, "lanes": False}
    assert ("undo.left" in room.kinds) == (outcome is Outcome.INCOMPLETE)


def test_irreversible_change_is_reported_once(room: Room) -> None:
    ended = back(room, Change("both", "test.set", "memory", BOTH, "irreversible"))
    assert ended.outcome is Outcome.INCOMPLETE
    assert "irreversible" in ended.manual[0]
    assert {"undo.failed", "undo.left"} <= set(room.kinds)


def test_undo_that_is_confirmed_but_not_done_is_incomplete(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(values={"lanes": True})
    monkeypatch.setattr(actions, "ACTIONS", (*actions.ACTIONS, Setting(service, "test.0", "place 0")))
    monkeypatch.setattr(InMemory, "write", _confirming(InMemory.write))
    ended = back(room, Change("s0", "test.0", "place 0", (Field("lanes", False, True),), "restore"))
    assert ended.outcome is Outcome.INCOMPLETE
    assert "lanes is still True" in ended.reason
    assert ended.manual == ("set {'lanes': False}",)


def _confirming(write: Callable[..., Receipt]) -> Callable[..., Receipt]:
    """Confirms a write that it does not do."""

    def confirm(self: InMemory, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        return write(self, {}, version, deadline, operation)

    return confirm
