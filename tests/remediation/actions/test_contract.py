"""The contract of every action: planned by reading, applied once, undone, never overwriting other clients."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor import remediation
from latdoctor.remediation import admin_api
from latdoctor.remediation.actions import ACTIONS
from latdoctor.remediation.change import (
    Change,
    ChangeState,
    Conflict,
    Deadline,
    Undo,
    Unreachable,
    WriteOptions,
    ensure,
)
from latdoctor.remediation.ownership import Write
from tests.lab.server.running_server import PATIENCE, TOKEN
from tests.remediation.actions.action_fixtures import SHARED, WORLDS, World

LONG = PATIENCE
SHORT = 0.4  # seconds, where a test waits for nothing to happen


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    yield
    SHARED.close()


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


def bring(world: World, change: Change, to: ChangeState, seconds: float = LONG) -> Write | None:
    return ensure(change, to, world.resource(change), Deadline.after(seconds))


def writes(world: World) -> int:
    return sum(not first.startswith(b"GET") for first in world.wire.seen) if world.wire else 0


def test_every_action_has_a_fixture_and_a_unique_name() -> None:
    names = [one.name for one in ACTIONS]
    # Those on Kubernetes have their own: test_kubernetes.py.
    assert {name.split()[0] for name in WORLDS} == {one.name for one in ACTIONS if "kubernetes" not in one.kinds}
    assert len(names) == len(set(names))
    for one in ACTIONS:
        assert one.kinds <= {"reference", "reference-router", "process", "http", "kubernetes"}
        assert one.undos
        assert one.undos <= set(Undo)


def test_change_is_applied_and_undone(world: World) -> None:
    change = world.planned()
    assert world.values(change) == change.before
    assert bring(world, change, ChangeState.AFTER)
    assert world.values(change) == change.after
    if world.undo == "restore":
        assert bring(world, change, ChangeState.BEFORE)
        assert world.values(change) == change.before


def test_write_is_identified_as_the_next_read_shows_it(world: World) -> None:
    """Version, document and process: else an untouched value would be taken for that of another client."""
    change = world.planned()
    before = world.resource(change).read(Deadline.after(LONG)).snapshot
    write = bring(world, change, ChangeState.AFTER)
    after = world.resource(change).read(Deadline.after(LONG)).snapshot
    assert write is not None
    assert write.before == before
    assert write.after.document == after.document or Undo.IRREVERSIBLE in world.action.undos
    assert write.after.version in (after.version, "")  # empty where the version is a digest of the content
    assert write.after.instance == after.instance


def test_applying_twice_is_idempotent(world: World) -> None:
    change = world.planned()
    for to in (ChangeState.AFTER, ChangeState.BEFORE) if world.undo == "restore" else (ChangeState.AFTER,):
        bring(world, change, to)
        before = writes(world)
        assert not bring(world, change, to)
        assert writes(world) == before


def test_planning_writes_nothing(world: World) -> None:
    world.planned()
    assert writes(world) == 0


def test_values_of_other_clients_are_not_overwritten(world: World) -> None:
    if world.ours is None:
        pytest.skip("it has two values only: whatever others set is before or after")
    change = world.planned()
    world.ours()
    theirs = world.values(change)
    for to in (ChangeState.AFTER, ChangeState.BEFORE):
        with pytest.raises(Conflict) as raised:
            bring(world, change, to)
        assert not raised.value.written
        assert TOKEN not in str(raised.value)
    assert world.values(change) == theirs
    assert writes(world) == 0


def test_concurrent_write_of_another_client_is_not_overwritten(world: World) -> None:
    if world.ours is None or world.wire is None:
        pytest.skip("no concurrent client is possible")
    change = world.planned()
    world.wire.before = world.ours
    if change.caution:
        pytest.skip("without a tag this cannot be seen: the plan says so")
    with pytest.raises(Conflict):
        bring(world, change, ChangeState.AFTER)
    assert world.values(change) not in (change.before, change.after)


def test_other_fields_of_other_clients_stay(world: World) -> None:
    if world.other is None:
        pytest.skip("there is nothing beside it")
    change = world.planned()
    if world.wire is not None and not change.caution:
        world.wire.before = world.other  # between our read and our write
    else:
        world.other()
    assert bring(world, change, ChangeState.AFTER)
    assert world.values(change) == change.after
    assert world.kept()
    if world.undo == "restore":
        bring(world, change, ChangeState.BEFORE)
        assert world.kept()


@pytest.mark.parametrize("to", [ChangeState.AFTER, ChangeState.BEFORE])
def test_lost_response_is_resolved_by_reading(world: World, to: ChangeState) -> None:
    if world.wire is None or (to is ChangeState.BEFORE and world.undo != "restore"):
        pytest.skip("no answer can be lost")
    change = world.planned()
    if to is ChangeState.BEFORE:
        bring(world, change, ChangeState.AFTER)
    world.wire.lose, before = 1, writes(world)
    assert bring(world, change, to)
    assert world.wire.lose == 0
    assert writes(world) == before + 1
    assert world.values(change) == (change.after if to is ChangeState.AFTER else change.before)
    if world.done is not None:
        assert world.done() == 1


def test_retry_of_a_write_names_the_same_operation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request is swallowed, so a read shows that it had no effect, and it is sent again."""
    if world.wire is None:
        pytest.skip("no request can be lost")
    change = world.planned()
    monkeypatch.setattr(admin_api, "TIMEOUT", SHORT)
    world.wire.hang, operation = 1, f"run-{world.name}"
    write = ensure(change, ChangeState.AFTER, world.resource(change), Deadline.after(LONG), WriteOptions(operation))
    assert write is not None
    assert world.values(change) == change.after
    assert len(world.wire.writes) == 2
    assert all(b"\r\nidempotency-key: " + operation.encode() in one.lower() for one in world.wire.writes)


@pytest.mark.parametrize("first", [b"", b"GET"])
def test_hanging_server_is_unreachable_within_the_deadline(world: World, first: bytes) -> None:
    if world.wire is None:
        pytest.skip("nothing can hang")
    change = world.planned()
    world.wire.hang = 1000
    if first:
        world.wire.spoil = lambda line: line.startswith(first)
    with pytest.raises(Unreachable) as raised:
        bring(world, change, ChangeState.AFTER, SHORT)
    assert TOKEN not in str(raised.value) + repr(raised.value)


def test_manual_command_has_the_same_effect(world: World) -> None:
    change = world.planned()
    wanted = change.after
    if world.undo == "restore":
        bring(world, change, ChangeState.AFTER)
        wanted = change.before
    command = world.resource(change).manual_command(wanted)
    assert TOKEN not in command
    assert "\n" not in command
    environment = {**os.environ, "LATDOCTOR_ADMIN_TOKEN": TOKEN, "no_proxy": "*"}
    done = subprocess.run(["/bin/bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "running" in wanted:  # a signal is on its way
        deadline = Deadline.after(LONG)
        while world.values(change) != wanted:
            assert deadline.pause(0.01)
    assert world.values(change) == wanted


def test_arguments_are_checked_without_a_target(world: World) -> None:
    assert list(world.action.check_arguments({**world.given, "nonsense!": "1"}))


def test_no_action_uses_a_shell_or_code_from_data() -> None:
    """Nor anything else that runs what it is given."""
    forbidden_modules = {"subprocess", "pickle", "marshal", "shelve", "ctypes", "importlib", "runpy", "code", "pty"}
    forbidden_names = {"eval", "exec", "compile", "__import__", "system", "popen", "fork", "forkpty"}
    folder = Path(remediation.__file__).parent
    files = [*sorted((folder / "actions").rglob("*.py")), folder / "admin_api.py"]
    assert len(files) > len(ACTIONS) // 2
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name.partition(".")[0] for alias in node.names} & forbidden_modules, file
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in forbidden_modules, file
            elif isinstance(node, ast.Call):
                called = node.func
                name = called.id if isinstance(called, ast.Name) else ""
                name = called.attr if isinstance(called, ast.Attribute) and _is_os(called) else name
                assert name not in forbidden_names, file
                assert not name.startswith(("spawn", "posix_spawn", "execv", "execl")), file


def _is_os(called: ast.Attribute) -> bool:
    return isinstance(called.value, ast.Name) and called.value.id == "os"
