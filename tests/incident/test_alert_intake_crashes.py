"""An intake that is killed at any system call: what was answered is there, and sent again nothing is doubled."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from latdoctor.incident import events
from latdoctor.incident.state import decode_body, incidents_in
from latdoctor.journal.store import Journal
from tests.crash.sweep import KILLED, killed_at, points

TAKING = Path(__file__).with_name("intake_process.py")
WRITES = ("write", "pwrite64", "ftruncate", "fsync", "fdatasync", "unlink", "rename", "mkdir")
ALERTS = 3


def command(folder: Path) -> list[str]:
    return [sys.executable, str(TAKING), str(folder / "state"), str(ALERTS)]


def known(folder: Path) -> Counter[str]:
    """By fingerprint, how often it was journaled; all in one incident."""
    found = incidents_in(Journal.reading(folder / "state" / "journal.sqlite").entries())
    assert len(found) <= 1
    told = (decode_body(entry, events.AlertsReceived) for one in found for entry in one.of(events.ALERTED))
    return Counter(alert.fingerprint for piece in told for alert in piece.alerts)


def test_killed_at_any_call(tmp_path: Path) -> None:
    swept = points(command(tmp_path / "whole"), WRITES)
    assert swept > 40
    seen: set[int] = set()
    for k in range(1, swept + 1, 5):
        folder = tmp_path / str(k)
        ended = killed_at(command(folder), k, WRITES)
        assert ended.returncode == KILLED
        answered = ended.stdout.split()
        if (folder / "state" / "journal.sqlite").exists():
            assert set(answered) <= set(known(folder))
        seen.add(len(answered))
        subprocess.run(command(folder), check=True, capture_output=True)  # the sender tries again
        assert known(folder) == {str(number): 1 for number in range(ALERTS)}
    assert seen == {0, 1, 2}
