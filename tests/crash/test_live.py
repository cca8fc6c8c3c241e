"""The real command against a real server: signals, pages that go bad, plans that are not as they were, secrets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.evidence.bundle_files import opened
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.remediation import run_history
from latdoctor.remediation.run_result import Outcome
from tests.crash.command import TOKEN, Command, heard
from tests.crash.killing import PLAYBOOKS
from tests.crash.sweep import told
from tests.crash.target import BEFORE, Target
from tests.waiting import comes_about

CHANGING_SAID, CHANGED_SAID = " changing ", " changed scheduler"  # as lines on stderr begin
CHANGED = {"batching": {"scheduler": "token-budget"}, "governance": {"lanes": False}}


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as running:
        yield running


@pytest.fixture
def command(tmp_path: Path, target: Target) -> Command:
    return Command(tmp_path, target)


def test_verified_change_stays_until_rollback(command: Command) -> None:
    command.remember()
    ended = command.ended(command.remediate("--apply", "--yes", "-o", "json", playbook="test.proven"))
    assert ended.code == 0, ended.err
    assert command.target.seen().config == CHANGED
    (result,) = json.loads(ended.out)["results"]
    back = command.ended(command.line("rollback", result["run"]))
    assert back.code == 0, back.err
    assert "undoing scheduler" in back.err
    assert command.target.seen().config == BEFORE
    whole = command.ended(command.line("runs", "verify"))
    assert whole.code == 0
    assert max(map(len, whole.out.splitlines())) <= 80


def test_pending_proof_outlives_the_command_and_ends_by_rollback(command: Command) -> None:
    """Without a history a proof takes two minutes: the command hands it over, and returns."""
    applied = command.ended(command.remediate("--apply", "--yes", "-o", "json"))
    assert applied.code == 7, applied
    assert command.target.seen().config == CHANGED
    (result,) = json.loads(applied.out)["results"]
    assert result["outcome"] == Outcome.PENDING
    shown = command.ended(command.line("runs", "show", result["run"]))
    assert "proof pending" in shown.out, shown
    refused = command.ended(command.line("recover"))
    (prover,) = set(re.findall(r"kill (\d+)", " ".join((refused.out + refused.err).split())))
    os.kill(int(prover), signal.SIGSTOP)
    back = command.ended(command.line("rollback", result["run"]))
    assert back.code == 0, back
    assert command.target.seen().config == BEFORE
    assert command.ended(command.line("recover")).code == 0


def test_ctrl_c_in_recover_rolls_a_pending_proof_back(command: Command) -> None:
    applied = command.ended(command.remediate("--apply", "--yes", "-o", "json"))
    assert applied.code == 7, applied
    (run,) = run_history.runs(Journal.reading(command.state / JOURNAL).entries())
    assert run.live_prover
    os.kill(run.live_prover.pid, signal.SIGKILL)
    assert comes_about(lambda: run.live_prover is None, 10.0)
    with command.started(command.line("recover")) as process:
        heard(process, "goes on with the proof")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert "SIGINT" in out
    assert command.target.seen().config == BEFORE


def test_a_prover_without_its_playbooks_rolls_back_at_once(command: Command, tmp_path: Path) -> None:
    copied = shutil.copytree(PLAYBOOKS, tmp_path / "playbooks")
    with command.started(command.remediate("--apply", "--yes", playbooks=copied)) as process:
        heard(process, "window:")
        shutil.rmtree(copied)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 7, err

    def ended() -> bool:
        (run,) = run_history.runs(Journal.reading(command.state / JOURNAL).entries())
        return run.outcome is Outcome.ROLLED_BACK and "the proof cannot go on" in run.reason

    assert comes_about(ended, 60.0)
    assert command.target.seen().config == BEFORE


def test_a_prover_without_its_token_says_so_in_the_journal(command: Command) -> None:
    folder = command.folder / "config" / "latdoctor"
    folder.mkdir(mode=0o700, parents=True)
    token = folder / "admin.token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    url = command.target.url
    (folder / "latdoctor.yaml").write_text(
        f"targets: {{chat: {{server: ['{url}'], admin: ['{url}'], admin_token: admin.token}}}}\n"
    )
    line = command.line("remediate", "--playbook", "test.quick", "--playbooks", str(PLAYBOOKS), "--target", "chat")
    with command.started([*line, "--apply", "--yes"]) as process:
        heard(process, "window:")
        token.unlink()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    journal = Journal.reading(command.state / JOURNAL)
    assert comes_about(lambda: bool(journal.entries(kinds=("proof.stopped",))), 60.0)
    (run,) = run_history.runs(journal.entries())
    assert "the token cannot be read" in run.reason
    assert comes_about(lambda: "UNFINISHED" in command.ended(command.line("runs", "show", run.id)).out, 60.0)


# What it has said when the signal comes, and how it then ends: 1 where nothing had been changed.
MOMENTS = {
    "before": ("observing before", signal.SIGTERM, 1),
    "changing": (CHANGING_SAID, signal.SIGTERM, 3),
    "changed": (CHANGED_SAID, signal.SIGINT, 3),
    "verifying": ("window:", signal.SIGTERM, 3),
    "terminal": (CHANGED_SAID, signal.SIGHUP, 3),
}


@pytest.mark.parametrize(("said", "number", "code"), MOMENTS.values(), ids=MOMENTS.keys())
def test_a_signal_takes_everything_back(command: Command, said: str, number: signal.Signals, code: int) -> None:
    command.target.order(helps=False)
    with command.started(command.remediate("--apply", "--yes")) as process:
        heard(process, said)
        process.send_signal(number)
        process.send_signal(number)  # impatient
        out, _ = process.communicate(timeout=60)
    assert process.returncode == code, out
    assert number.name in out
    assert command.target.seen().config == BEFORE
    (run,) = run_history.runs(Journal.reading(command.state / JOURNAL).entries())
    assert not run.open


@pytest.mark.parametrize("page", ["frozen", "nan", "gone"])
def test_a_page_that_goes_bad_is_no_success(command: Command, page: str) -> None:
    with command.started(command.remediate("--apply", "--yes")) as process:
        heard(process, CHANGED_SAID)
        command.target.order(page=page)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 3, out
    assert command.target.seen().config == BEFORE


def test_a_target_that_hangs_ends_loudly_within_35_s(command: Command) -> None:
    with command.started(command.remediate("--apply", "--yes", "-o", "json")) as process:
        heard(process, CHANGED_SAID)
        command.target.hold()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=90)
    assert process.returncode == 6, out
    (result,) = json.loads(out)["results"]
    assert result["outcome"] == "incomplete"
    assert "curl" in result["manual"][0]
    assert "long-alone" in result["manual"][0]
    entries = Journal.reading(command.state / JOURNAL).entries()
    begun, ended = (next(e for e in entries if e.kind == kind) for kind in ("rollback.begun", "run.closed"))
    assert ended.monotonic - begun.monotonic <= 35  # its own promise, by its own journal
    command.target.go_on()
    recovered = command.ended(command.line("recover"))
    assert recovered.code == 0, recovered.err
    assert command.target.seen().config == BEFORE


def test_blocked_terminal_does_not_prevent_rollback(command: Command) -> None:
    """As after Ctrl-S, or where nobody reads the pipe any more: stderr takes no byte."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"." * 4096)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b".")
    os.set_blocking(write, True)
    command.target.order(helps=False)
    try:
        line = command.remediate("--apply", "--yes")
        with subprocess.Popen(
            line, cwd=command.folder, env=command.environment, stdout=subprocess.PIPE, stderr=write
        ) as process:
            command.target.until(lambda seen: seen.config == CHANGED)
            command.target.until(lambda seen: seen.config == BEFORE)
            os.close(read)  # it goes on: nobody reads, and the command ends
            process.communicate(timeout=60)
    finally:
        os.close(write)
    (run,) = run_history.runs(Journal.reading(command.state / JOURNAL).entries())
    assert run.outcome is Outcome.ROLLED_BACK


def diagnosis(command: Command, path: Path) -> Path:
    """One that names a cause with a playbook, of just now."""
    looked = command.ended(command.line("diagnose", "--server", command.target.url, "--window", "1s", "-o", "json"))
    document = json.loads(looked.out)
    texts = (
        "title",
        "tier",
        "severity",
        "rival",
        "explanation",
        "confirm",
        "remediation",
    )
    lists = ("evidence_for", "evidence_against", "unseen", "contributions")
    document["causes"] = [
        {
            "id": "app.batching.long-alone",
            "status": "stable",
            "owner": "",
            "probability": 0.9,
            "named": True,
            "grounded": True,
            "keep_evidence": False,
            "subjects": ["replica/0"],
            "playbooks": ["test.quick"],
            "confidence": "likely",
            "impact": "hurting",
            **dict.fromkeys(texts, ""),
            **{name: [] for name in lists},
        }
    ]
    path.write_text(json.dumps(document))
    return path


TOUCHING = (
    *("open", "openat", "creat", "mkdir", "mkdirat", "rename", "renameat", "renameat2"),
    *("unlink", "unlinkat", "symlink", "link", "truncate"),
)


@pytest.mark.parametrize("how", ["playbook", "from"])
def test_a_dry_run_writes_nothing_and_changes_nothing(
    command: Command, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "from":
        line = command.remediate("--from", str(diagnosis(command, command.folder / "d.json")), playbook="")
    else:
        line = command.remediate()
    before = sorted(command.folder.rglob("*"))
    monkeypatch.chdir(command.folder)
    calls = told(line, TOUCHING, command.environment)
    assert calls
    assert [call for call in calls if not is_reading(call)] == []
    assert sorted(command.folder.rglob("*")) == before
    seen = command.target.seen()
    assert seen.changes == []
    assert seen.config == BEFORE


def is_reading(call: str) -> bool:
    if " resumed>" in call:  # its beginning, with the flags, is a call of its own
        return True
    if "/dev/null" in call or "/dev/tty" in call:
        return True
    writes = any(flag in call for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"))
    return ("open(" in call or "openat(" in call) and not writes


def test_a_plan_is_executed_as_it_was_approved_or_not_at_all(command: Command, tmp_path: Path) -> None:
    books, plan = tmp_path / "books", tmp_path / "plan.json"
    shutil.copytree(PLAYBOOKS, books)
    saved = command.ended(command.remediate("--save-plan", str(plan), playbooks=books))
    assert saved.code == 0, saved.err

    def applied() -> int:
        line = command.remediate("--plan", str(plan), "--apply", "--yes", playbooks=books, playbook="")
        return command.ended(line).code

    good = plan.read_text()
    for old, new in (
        ("token-budget", "single"),
        ("restore", "none-needed"),
        (command.target.url, "http://127.0.0.1:9"),
    ):
        assert old in good
        plan.write_text(good.replace(old, new, 1))
        assert applied() == 2, old
    plan.write_text(good)
    book = books / "test.quick.yaml"
    written = book.read_text()
    book.write_text(written.replace("hold: 4s", "hold: 3s"))
    assert applied() == 5
    book.write_text(written)
    command.target.edit(governance={"lanes": True})
    assert applied() == 5
    assert command.target.seen().config["batching"] == BEFORE["batching"]
    assert len(command.target.seen().changes) == 1  # the other one's


def test_the_token_is_nowhere(command: Command, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    texts = []
    lines = [
        command.remediate("--save-plan", str(plan)),
        command.remediate("--plan", str(plan), "--apply", "--yes", playbook=""),
        command.remediate("--apply", "--yes", "-o", "json"),
        command.line("runs", "list"),
    ]
    command.target.order(repeats=True)
    for line in lines:
        ended = command.ended(line)
        texts += [ended.out, ended.err]
    runs = run_history.runs(Journal.reading(command.state / JOURNAL).entries())
    assert len(runs) == 2
    for run in runs:
        ended = command.ended(command.line("runs", "show", run.id, "-o", "json"))
        assert ended.code == 0, ended.err
        texts += [ended.out, ended.err]
        with opened(command.state / "runs" / run.id / "before.tar.zst") as bundle:
            texts += [str(artifact) for artifact in bundle.artifacts]
            texts += [artifact.read().decode(errors="replace") for artifact in bundle.artifacts]
    files = [path for path in command.folder.rglob("*") if path.is_file()]
    assert {plan, command.state / JOURNAL} <= set(files)
    texts += [path.read_bytes().decode(errors="replace") for path in files]
    assert any("not with" in text for text in texts)  # the server did repeat it
    assert [text for text in texts if TOKEN in text] == []
