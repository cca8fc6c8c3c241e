"""The real command line in a process of its own, and what it says while it works."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from latdoctor.incident.events import SAMPLED, ServiceSampled
from latdoctor.journal.entry import Moment
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from tests.crash.killing import PLAYBOOKS
from tests.crash.target import Target

TOKEN = "c4n4ry-0123456789"  # noqa: S105 - guards nothing


def _moment(at: float) -> Moment:
    return Moment(datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="microseconds"), at, "")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Command:
    """`latdoctor` in `folder`, with a state folder there that it has to make itself."""

    folder: Path
    target: Target

    @property
    def state(self) -> Path:
        return self.folder / "kept" / "state"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LATDOCTOR_STATE": str(self.state),
            "LATDOCTOR_ADMIN_TOKEN": TOKEN,
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def remediate(self, *arguments: str, playbooks: Path = PLAYBOOKS, playbook: str = "test.quick") -> list[str]:
        chosen = ["--playbook", playbook] if playbook else []
        where = ["--playbooks", str(playbooks), "--server", self.target.url]
        return self.line("remediate", *chosen, *where, *arguments)

    def remember(self) -> None:
        """Journals what the monitoring of an incident would have sampled in five minutes, every five seconds."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = time.time()
        values = {f"replica/r1@{self.target.url.partition('//')[2]}": {"latency.p99": 4.96, "arrival.rate": 1000.0}}
        times = iter(now - 305 + 5 * number for number in range(62))
        journal = Journal.opened(self.state / JOURNAL, lambda: _moment(next(times)))
        sample = ServiceSampled(seconds=5.0, values=values)
        journal.append_all([("inc-1", SAMPLED, sample) for _ in range(62)])

    @staticmethod
    def line(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "latdoctor", *arguments]

    def started(self, line: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            line,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, line: Sequence[str]) -> Ended:
        with self.started(line) as process:
            out, err = process.communicate(timeout=100)
        return Ended(process.returncode, out, err)


def heard(process: subprocess.Popen[str], word: str) -> str:
    """What it says on stderr, up to the first line with `word`."""
    assert process.stderr
    lines = []
    for line in process.stderr:
        lines.append(line)
        if word in line:
            return "".join(lines)
    raise AssertionError(f"{word!r} was not said: {''.join(lines)}")
