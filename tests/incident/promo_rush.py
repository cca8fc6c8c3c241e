"""The lab's promo-rush scenario as processes: server, load and an operator at a shell."""

from __future__ import annotations

import datetime
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from latdoctor.evaluation.remediation.run_specs import PROMO_RUSH, sliced_load, unattended_scenario
from latdoctor.incident.sop import loader
from latdoctor.lab.processes import Deployment
from latdoctor.lab.runner import RunObserver, calibrated
from latdoctor.lab.scenario import overridden
from latdoctor.load import machine_state
from latdoctor.load.arrivals import Poisson
from latdoctor.load.openloop import Progress
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import start_load
from latdoctor.load.summary import LoadResult
from tests.incident.alert_builders import alert, notification

PATIENCE = 240.0  # seconds for one command: a run may take more than a minute, and the machine may be busy
SEED = 1
ALERT = "InferenceP99OverSLO"
WRITTEN = "http://checkout:8080"  # the server's address on docs/oncall.md
_PAGE = (Path(__file__).parents[2] / "docs" / "oncall.md").read_text(encoding="utf-8")
_TYPED = re.findall(r"^\$ (latdoctor .*)$", _PAGE, re.MULTILINE)
# Calm for a shorter time than the shipped scenario, its capacity measured in less, and promised less: the machine may
# do other things too. And fewer come than in the shipped one: what is mended has to carry them on every machine, with
# whoever comes beside them until it hurts, or it never meets the SLO again. It is the same incident.
SLO = "1s"
_SHORT = {
    "phases.before.seconds": 4,
    "load.calibrate_seconds": 1.5,
    "load.calibrate": 1.1,
    "load.slo": 1.0,
    "load.timeout": 30,
}
_HOLDS, _SHORTLY = "holds: 2min", "holds: 5s"
# More clients come where those who are there do not overload it: it is faster now than when it was measured.
_FAR_OVER = 1.5  # times the SLO
_ON_END = 3  # seconds for which they are kept waiting so long: a machine that stands still for one makes no rush
_MORE, _MOST = 0.2, 5  # times the rate, and how often
_GROWS = 10.0  # seconds in which a queue is seen to grow


class NoRushError(Exception):
    """The machine was so much faster or slower than when it was measured that there was no incident to mend, or that
    so few were answered that nothing was changed.
    """


@dataclass
class _Wait:
    """Hears each second from the generator how long its requests took. `far` in seconds: what is far too long."""

    far: float
    times: int = 0
    long: threading.Event = field(default_factory=threading.Event)

    def heard(self, progress: Progress) -> None:
        self.times = self.times + 1 if (progress.p99 or 0.0) > self.far else 0
        if self.times >= _ON_END:
            self.long.set()


@dataclass
class Clients:
    """Those who call, more and more of them. `heard`: what became of their requests, once they have gone."""

    plan: LoadPlan
    address: str
    begins: float  # the incident, seconds after the first of them
    ends: ExitStack
    beside: ThreadPoolExecutor
    heard: list[Future[LoadResult]] = field(default_factory=list)

    def come(self, plan: LoadPlan, wait: _Wait | None = None) -> None:
        """They call until `ends`, and wait for their last answers."""
        load = self.ends.enter_context(start_load(plan, self.address))
        load.wait_started()
        heard = self.beside.submit(load.wait, wait.heard if wait else None)
        self.heard.append(heard)
        self.ends.callback(heard.result)
        self.ends.callback(load.stop)

    def kept_waiting(self) -> float:
        """Waits until they are answered far too late, and gives that moment (unix seconds). Raises NoRushError."""
        wait = _Wait(_FAR_OVER * self.plan.slo_s)
        self.come(self.plan, wait)
        patience = self.begins + _GROWS
        while not self._too_long(wait, patience):
            if len(self.heard) > _MOST:
                raise NoRushError("nobody waits too long, however many call")
            phases = tuple(_fewer(phase) for phase in self.plan.phases[1:])  # those of the incident
            self.come(structs.replace(self.plan, phases=phases, seed=self.plan.seed + len(self.heard)))
            patience = _GROWS
        return time.time()

    def requests(self) -> int:
        """How many were sent in all, once they have gone."""
        return sum(one.result().total.counts.attempts for one in self.heard)

    def _too_long(self, wait: _Wait, seconds: float) -> bool:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            assert not any(one.done() for one in self.heard), "a generator broke, or the load is over"
            if wait.long.wait(0.1):
                return True
        return False


def _fewer(phase: LoadPhase) -> LoadPhase:
    assert isinstance(phase.arrivals, Poisson)
    return structs.replace(phase, arrivals=Poisson(phase.arrivals.rate * _MORE))


@dataclass(frozen=True)
class Rush:
    """The rush while it goes on."""

    server: str
    token: str
    slo: float
    clients: Clients


@contextmanager
def rush() -> Iterator[Rush]:
    """The server, and its clients in the rush, which goes on until the end of the context."""
    scenario = overridden(unattended_scenario(PROMO_RUSH), iter(_SHORT.items()))
    with Deployment(scenario) as deployment, ThreadPoolExecutor(_MOST + 2) as beside, ExitStack() as ends:
        plan = sliced_load(scenario.plan(calibrated(scenario, deployment, SEED, RunObserver()), SEED))
        calm = sum(phase.seconds for phase in scenario.phases[:-1])
        clients = Clients(plan, deployment.address, calm, ends, beside)
        yield Rush(deployment.servers[0], deployment.token, scenario.load.slo, clients)


def told_by_alertmanager(status: str, began: float) -> bytes:
    """The notification of the rush's alert, which began to fire at `began` (unix seconds)."""
    one = alert(1, status, starts=_rfc3339(began), name=ALERT) | {
        "labels": {"alertname": ALERT, "service": "checkout-voice", "severity": "critical"},
        "annotations": {"summary": f"P99 of checkout-voice is over {SLO}"},
    }
    if status == "resolved":
        one["endsAt"] = _rfc3339(time.time())
    return notification([one], key='{}:{service="checkout-voice"}')


def _rfc3339(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(timespec="milliseconds")


def printed(command: str, server: str) -> list[str]:
    """The words of the line of docs/oncall.md that begins with `latdoctor COMMAND`, for `server` and its SLO."""
    (line,) = (one for one in _TYPED if one.startswith(f"latdoctor {command}"))
    return shlex.split(line.replace(WRITTEN, server).replace("--slo 500ms", f"--slo {SLO}"))[1:]


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
    shipped = loader.shipped()[loader.USUAL]
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
    first = machine_state.usage(time.time())
    try:
        yield found
    finally:
        share = machine_state.others(first, machine_state.usage(time.time()), os.cpu_count() or 1)
        found.append(share or 0.0)
