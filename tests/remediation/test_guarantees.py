"""What a run promises, many times over and with others at work beside it, in simulated time."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.remediation import actions
from latdoctor.remediation.change import Value
from latdoctor.remediation.run_result import Outcome
from latdoctor.remediation.undo import ROLLBACK_TIMEOUT
from tests.remediation.simulated_service import Remembered, Service, Setting
from tests.remediation.test_run import BEFORE, Killed, Room, furnished, no_help

LOUD = ROLLBACK_TIMEOUT + 5  # seconds within which it says that it could not take everything back
AFTER: dict[str, Value] = {"scheduler": "token-budget", "lanes": True}


@pytest.fixture
def room() -> Iterator[Room]:
    with simulated() as made:
        yield made


def lasted(room: Room) -> float:
    """Seconds from the start of the rollback to the end of the run, by its journal."""
    entries = room.journal.entries()
    begun, closed = (next(e for e in entries if e.kind == kind) for kind in ("rollback.begun", "run.closed"))
    return closed.monotonic - begun.monotonic


@pytest.mark.parametrize("seed", range(200))
def test_rollback_takes_at_most_30_s_if_the_target_answers_within_2_s(room: Room, seed: int) -> None:
    """Both changes of a run, each reading and writing as slow as that, replies lost and others writing beside it."""
    chance = random.Random(seed)
    no_help(room.service)
    mishaps = iter(chance.choices(("lost", "edit", ""), (1, 1, 4), k=4))

    def slow(service: Service) -> None:
        service.now += chance.uniform(0.01, 2.0)

    def mishap(service: Service) -> None:
        what = next(mishaps, "")
        service.loses_replies = int(what == "lost")
        if what == "edit":
            service.edit(other=chance.random())

    room.service.on_answer, room.service.on_write = slow, mishap
    result = room.run("test.whole")
    assert result.outcome is Outcome.ROLLED_BACK, result
    assert {name: room.service.values[name] for name in BEFORE} == BEFORE
    assert lasted(room) <= ROLLBACK_TIMEOUT


@pytest.mark.parametrize("seed", range(20))
def test_hanging_target_is_reported_within_35_s(room: Room, seed: int) -> None:
    """From some look after the first change on, or from some exchange during the rollback."""
    chance = random.Random(seed)
    no_help(room.service)
    when = chance.randrange(1, 4 if seed % 2 else 6)
    met = 0

    def hang(service: Service) -> None:
        nonlocal met
        met += "rollback.begun" in room.kinds if seed % 2 else bool(service.writes)
        service.hangs = met >= when

    room.service.on_observe = room.service.on_answer = hang
    result = room.run("test.whole")
    assert result.outcome is Outcome.INCOMPLETE, result
    assert result.outcome.exit_code == 6
    assert result.manual
    assert "NOT rolled back" in result.reason
    assert lasted(room) <= LOUD
    room.service.on_observe = room.service.on_answer = lambda service: None
    room.service.hangs = False
    assert [one.outcome for one in room.recovered()] == [Outcome.ROLLED_BACK]
    assert room.service.values == BEFORE


FIELDS = {"scheduler": ("long-alone", "token-budget", "single"), "lanes": (False, True, "theirs"), "other": (1, 2, 3)}
EDITS = st.one_of(
    *(st.tuples(st.just(name), st.sampled_from(values)) for name, values in FIELDS.items()), st.just(("", None))
)


@dataclass
class Others:
    """Another client that edits at moments chosen by hypothesis, and its last value of each field."""

    edits: list[tuple[str, Value]]
    said: dict[str, Value] = field(default_factory=dict)

    def act(self, service: Service) -> None:
        name, value = self.edits.pop(0) if self.edits else ("", None)
        if name:
            service.edit(**{name: value})
            self.said[name] = value


OURS: dict[str, tuple[Value, Value]] = {name: (BEFORE[name], AFTER[name]) for name in BEFORE}


@settings(max_examples=150)
@given(
    edits=st.lists(EDITS, max_size=14),
    helps=st.booleans(),
    killed=st.one_of(st.none(), st.integers(0, 14)),
    lost=st.integers(0, 2),
)
def test_values_of_other_clients_are_never_overwritten(
    edits: list[tuple[str, Value]], helps: bool, killed: int | None, lost: int
) -> None:
    """Except for values equal to our old or new one, whose origin is unknown."""
    with simulated() as room:
        service, others = room.service, Others(edits)
        plan = room.plan("test.whole")
        service.p99 = lambda service: 0.3 if helps and service.values["scheduler"] != "long-alone" else 3.0
        service.loses_replies = lost
        service.on_answer = service.on_observe = service.on_write = others.act
        service.on_written = must_be_ours
        left = iter(range(1000 if killed is None else killed))

        def die(entry: object) -> None:
            if next(left, None) is None:
                raise Killed

        room.hear = die
        with contextlib.suppress(Killed):
            room.execute(plan)
        room.hear = lambda entry: None
        for _ in range(2):
            room.recovered()
        for name, value in others.said.items():
            if value not in OURS.get(name, ()):
                assert service.values[name] == value


def must_be_ours(service: Service, values: dict[str, Value]) -> None:
    """Before our write: no field that it sets has a value of another client."""
    for name in values:
        assert service.values[name] in OURS[name], (name, service.values[name])


@contextlib.contextmanager
def simulated() -> Iterator[Room]:
    """A room of its own for each example."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        service = Service()
        patch.setattr(actions, "ACTIONS", (*actions.ACTIONS, Setting(service)))
        yield furnished(service, Path(folder), Remembered)
