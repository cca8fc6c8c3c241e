"""`latdoctor demo` on a busy machine: the reason and the way on, exit code 1, and no process left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latdoctor.lab import processes, runner
from latdoctor.load import machine_state
from latdoctor.load.summary import LoadProblem, LoadProblemCode
from tests.cli.running import run


def children() -> set[int]:
    """Process ids of the descendants of this process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def quiet_at_first(monkeypatch: pytest.MonkeyPatch, *, later: float) -> None:
    monkeypatch.setattr(machine_state, "busy", lambda: "")
    monkeypatch.setattr(machine_state, "others", lambda *_: later)


def test_on_a_busy_machine_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = "other processes used 80% of the processors (limit 40%)"
    monkeypatch.setattr(machine_state, "busy", lambda: busy)
    monkeypatch.setattr(processes, "Deployment", lambda *_: pytest.fail("a server was started"))
    outcome = run(["demo"])
    assert outcome.code == 1
    assert "the machine is too busy for the demo: other processes used 80%" in " ".join(outcome.err.split())
    assert "--force" in outcome.err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_machine_that_becomes_busy_ends_the_demo_and_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet_at_first(monkeypatch, later=0.6)
    monkeypatch.setattr(runner, "calibrated", lambda *_: 10.0)
    before, state = children(), os.environ.get("LATDOCTOR_STATE")
    outcome = run(["demo"])
    assert outcome.code == 1, outcome.err
    message = " ".join(outcome.err.split())
    assert "too busy for the demo: other processes used 60% of the processors (limit 40%)" in message
    assert children() <= before
    assert os.environ.get("LATDOCTOR_STATE") == state


@pytest.mark.parametrize(
    ("share", "problems", "reason"),
    [
        (0.3, (), "other processes used 30% of the processors (limit 15%)"),
        (
            0.0,
            (LoadProblem(LoadProblemCode.GENERATOR_LATE, "the generator was late", "before"),),
            "the generator was late",
        ),
    ],
)
def test_a_fix_that_a_busy_machine_kept_from_verification_is_no_verdict_on_the_fix(
    share: float, problems: tuple[LoadProblem, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latdoctor.cli.demo import BusyMachine
    from latdoctor.errors import OperationError

    quiet_at_first(monkeypatch, later=share)
    machine = BusyMachine(force=False)
    machine.check()
    with pytest.raises(OperationError, match="too busy for the demo") as raised:
        machine.check_result(problems)
    assert reason in str(raised.value)


def test_with_force_it_is_reported_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from latdoctor.cli.demo import BusyMachine

    quiet_at_first(monkeypatch, later=0.6)
    machine = BusyMachine(force=True)
    machine.check()
    machine.check_result(())
    assert "other processes used 60% of the processors" in " ".join(capsys.readouterr().err.split())
