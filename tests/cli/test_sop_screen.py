"""`sop watch` on a terminal, and as a process that is told to end."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.running import run

PATIENCE = 60.0  # seconds: only a hang is a failure
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A code that moves the cursor begins a row as a line end does: two screens may come in one read,
# and what stands in the last row of one is not beside the first row of the other.
_ROW_ENDS = re.compile(r"[\r\n]|\x1b\[[0-9;?]*[A-Zhl]")


@pytest.fixture(autouse=True)
def _incident(apart: Path) -> None:
    assert run(["sop", "start", "--title", "P99 is 3 s", "--began", "2min"]).code == 0


def _started(stdout: int, **more: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40", **more}
    command = [sys.executable, "-m", "latdoctor", "sop", "watch"]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)


def _until(descriptor: int, wanted: bytes, times: int = 1) -> str:
    seen, end = b"", time.monotonic() + PATIENCE
    while seen.count(wanted) < times:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        assert ready, seen
        seen += os.read(descriptor, 65536)
    return seen.decode()


@pytest.mark.parametrize("colour", [True, False], ids=["colour", "NO_COLOR"])
def test_the_whole_screen_counts_down_until_ctrl_c(colour: bool) -> None:
    ours, theirs = pty.openpty()
    process = _started(theirs, **({} if colour else {"NO_COLOR": "1"}))
    os.close(theirs)
    shown = _until(ours, b"overdue by", 2)
    process.send_signal(signal.SIGINT)
    shown += _until(ours, b"Next    latdoctor diagnose")  # what stays when the screen is given back
    _, err = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert process.returncode == 3, err
    assert b"Traceback" not in err
    assert "\x1b[?1049h" in shown, "a screen of its own, which leaves what stood there before"
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)) is colour
    rows = [_CODES.sub("", row) for row in _ROW_ENDS.split(shown)]
    assert max(len(row.rstrip()) for row in rows) <= 80
    assert any("Alert confirmed is overdue by 1:0" in row for row in rows)


def test_in_a_pipe_it_ends_by_sigterm_and_with_its_incident() -> None:
    process = _started(subprocess.PIPE)
    assert process.stdout is not None
    assert b"confirmed late" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    process = _started(subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert run(["sop", "close"]).code == 0
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
