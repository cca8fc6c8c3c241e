"""Many who want one target, and one who is late."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.remediation import run_history
from latdoctor.remediation.run_result import Outcome
from tests.crash.killing import PLAYBOOKS
from tests.crash.target import AFTER, BEFORE, Target

COUNT = 50


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as running:
        yield running


def module(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"tests.crash.{name}", *map(str, arguments)]


def test_of_fifty_processes_one_runs(target: Target, tmp_path: Path) -> None:
    state = tmp_path / "state"
    racing = module("racing", state, target.url, PLAYBOOKS, COUNT)
    done = subprocess.run(racing, capture_output=True, text=True, check=True, timeout=100)
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert len(lines) == COUNT, done.stderr
    (winner,) = [pid for pid, outcome, _ in lines if outcome == Outcome.VERIFIED]
    journal = Journal.reading(state / JOURNAL)
    journal.verify()
    (run,) = run_history.runs(journal.entries())
    others = [(outcome, reason) for pid, outcome, reason in lines if pid != winner]
    assert {outcome for outcome, _ in others} == {Outcome.REFUSED}
    # One that comes while the winner has the lock and has not said so yet cannot name it.
    naming = [reason for _, reason in others if f"process {winner}, run {run.id} has locked {target.url}" in reason]
    assert all(reason in naming or "has not identified itself yet" in reason for _, reason in others), others
    assert len(naming) > COUNT // 2
    assert [entry.kind for entry in journal.entries()].count("run.refused") == COUNT - 1
    assert target.seen().config == AFTER
    assert len(target.seen().changes) == 2


def test_a_late_write_of_a_run_that_was_killed_changes_nothing(target: Target, tmp_path: Path) -> None:
    """It lies at the target while its sender is killed and another one recovers; then it comes to its turn."""
    state = tmp_path / "state"
    target.order(late=1)
    with subprocess.Popen(module("mending", "apply", state, target.url, PLAYBOOKS)) as run:
        target.until_one_lies()
        run.kill()
    recovered = subprocess.run(module("mending", "recover", state, target.url, PLAYBOOKS), check=False)
    assert recovered.returncode == Outcome.ROLLED_BACK.exit_code
    target.order(release=True)
    seen = target.until(lambda seen: len(seen.changes) == 2)
    assert [status for _, _, status in seen.changes] == [200, 412]  # of the recovery, then of the one that was late
    assert seen.config == BEFORE
    assert not any(run.open for run in run_history.runs(Journal.reading(state / JOURNAL).entries()))
