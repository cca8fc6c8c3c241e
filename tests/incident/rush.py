"""The laboratory's promo-rush for real: its server, its load, and whoever carries the pager at a shell."""

from __future__ import annotations

import datetime
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from latdoctor.incident import sop_files
from latdoctor.lab.deployment import Deployment
from latdoctor.lab.load.process import start_load
from latdoctor.lab.load.result import LoadResult
from latdoctor.lab.playing import Watcher, calibrated
from latdoctor.lab.scenario import Scenario, overridden
from latdoctor.trials import machine
from latdoctor.trials.mending.cells import PROMO_RUSH, sliced, standing
from latdoctor.trials.mending.story import Alarm
from tests.incident.made_alerts import alert, notification

PATIENCE = 240.0  # seconds for one command: a run may take more than a minute, and the machine may be busy
SEED = 1
ALERT = "InferenceP99OverSLO"
WRITTEN = "http://checkout:8080"  # the server's address on docs/oncall.md
_PAGE = (Path(__file__).parents[2] / "docs" / "oncall.md").read_text(encoding="utf-8")
_TYPED = re.findall(r"^\$ (latdoctor .*)$", _PAGE, re.MULTILINE)
# Calmer for a shorter time than the shipped scenario, and its capacity measured in less. It is the same incident.
_SHORT = {"phases.before.seconds": 4, "load.calibrate_seconds": 2}
_HOLDS, _SHORTLY = "holds: 2min", "holds: 5s"


@dataclass
class Rush:
    """The rush while it goes on. `hearing` has what became of every request, once it is over."""

    server: str
    token: str
    slo: float
    alarm: Alarm
    begun: float  # the incident, unix seconds
    hearing: Future[LoadResult]

    def over_the_slo(self) -> float:
        """Waits until the clients' P99 is over the SLO for the first time, and gives that moment (unix seconds)."""
        while not self.alarm.rung.wait(0.1):
            assert not self.hearing.done(), f"the load is over, and nobody waited too long: {self.hearing.result()}"
        return time.time()


@contextmanager
def rush() -> Iterator[Rush]:
    """The server, and its clients in the rush, which goes on until the end of the context."""
    scenario: Scenario = overridden(standing(PROMO_RUSH), iter(_SHORT.items()))
    alarm = Alarm(scenario.load.slo, sum(phase.seconds for phase in scenario.phases[:-1]))
    with Deployment(scenario) as deployment:
        rate = calibrated(scenario, deployment, SEED, Watcher())
        with (
            start_load(sliced(scenario.plan(rate, SEED)), deployment.address) as load,
            ThreadPoolExecutor(1) as beside,
        ):
            begun = load.wait_started() + alarm.begins
            hearing = beside.submit(load.wait, alarm.heard)
            try:
                yield Rush(deployment.servers[0], deployment.token, scenario.load.slo, alarm, begun, hearing)
            finally:
                load.stop()
                hearing.result()


def told_by_alertmanager(status: str, began: float) -> bytes:
    """The notification of the rush's alert, which began to fire at `began` (unix seconds)."""
    one = alert(1, status, starts=_rfc3339(began), name=ALERT) | {
        "labels": {"alertname": ALERT, "service": "checkout-voice", "severity": "critical"},
        "annotations": {"summary": "P99 of checkout-voice is over 500 ms"},
    }
    if status == "resolved":
        one["endsAt"] = _rfc3339(time.time())
    return notification([one], key='{}:{service="checkout-voice"}')


def _rfc3339(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(timespec="milliseconds")


def printed(command: str, server: str) -> list[str]:
    """The words of the line of docs/oncall.md that begins with `latdoctor COMMAND`, for `server`."""
    (line,) = (one for one in _TYPED if one.startswith(f"latdoctor {command}"))
    return shlex.split(line.replace(WRITTEN, server))[1:]


@dataclass(frozen=True)
class Shell:
    """Where somebody types; `folder` holds the state folder too, as the listener has it."""

    folder: Path
    token: str

    def typed(self, words: list[str], *codes: int) -> subprocess.CompletedProcess[str]:
        """`latdoctor WORDS` as a process of its own, which has to leave with one of `codes`."""
        ended = subprocess.run(
            [sys.executable, "-m", "latdoctor", *words],
            cwd=self.folder,
            env={
                **os.environ,
                "LATDOCTOR_STATE": str(self.folder / "state"),
                "LATDOCTOR_ADMIN_TOKEN": self.token,
                "XDG_CONFIG_HOME": str(self.folder / "none"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode in codes, f"{shlex.join(words)}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr
        return ended


def quick_sop(folder: Path) -> str:
    """The shipped SOP, not waiting as long for the proof that it stays well: into `folder`; gives its id."""
    shipped = sop_files.shipped()[sop_files.USUAL]
    text = shipped.source.decode()
    assert text.count(_HOLDS) == 1
    name = f"{shipped.id}-quick"
    folder.mkdir()
    (folder / f"{name}.yaml").write_text(text.replace(_HOLDS, _SHORTLY).replace(f"id: {shipped.id}", f"id: {name}"))
    return name


@contextmanager
def taken_by_others() -> Iterator[list[float]]:
    """What share of the processors others took meanwhile: in the list, once the context is left; none where it cannot
    be told, so that nobody is excused by that.
    """
    found: list[float] = []
    first = machine.usage(time.time())
    yield found
    share = machine.others(first, machine.usage(time.time()), os.cpu_count() or 1)
    found.append(share or 0.0)
