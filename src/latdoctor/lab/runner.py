"""Plays a scenario whole: server, load, what goes wrong, measurement; and says what each phase was like."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.lab.clients import MetricsSnapshot, collect_metrics
from latdoctor.lab.faults.injection import inject
from latdoctor.lab.processes import Deployment
from latdoctor.lab.run_report import LeaveOneOut, RunReport, confirmed, report_of
from latdoctor.lab.scenario import Scenario, without
from latdoctor.load.openloop import Progress
from latdoctor.load.process import saturate, start_load

CALIBRATIONS = 3  # the median of so many: one alone differs by a third from run to run on a shared machine


class PhaseStart(Struct, frozen=True):
    """What a watcher is told: the phase that begins now, all metrics pages (the clients' last), the processes."""

    phase: str
    pages: tuple[str, ...]
    pids: tuple[int, ...]


class RunObserver(Struct, frozen=True):
    """Who is told what happens while it happens."""

    on_phase: Callable[[PhaseStart], None] = lambda stage: None
    on_progress: Callable[[Progress], None] = lambda progress: None
    say: Callable[[str], None] = lambda text: None


def run_scenario(scenario: Scenario, seed: int, watcher: RunObserver | None = None, *, rate: float = 0.0) -> RunReport:
    """Runs `scenario`, at `rate` requests per second where one is given.

    Raises OperationError where server or generator break, UsageError for a bad scenario.
    """
    watcher = watcher or RunObserver()
    watcher.say("starting the server")
    with Deployment(scenario) as deployment:
        rate = rate or scenario.load.rate or calibrated(scenario, deployment, seed, watcher)
        with start_load(scenario.plan(rate, seed), deployment.address, metrics_port=0) as load:
            started = load.wait_started()
            with ThreadPoolExecutor(1) as beside:  # the phases go by the clock while this thread hears the generator
                walking = beside.submit(_walk, scenario, deployment, load.metrics, started, watcher)
                walking.add_done_callback(lambda ended: load.stop() if ended.exception() else None)
                result = load.wait(watcher.on_progress)
            looks = walking.result()
    return report_of(scenario, seed, rate, result, looks)


def confirm_causes(scenario: Scenario, report: RunReport, watcher: RunObserver | None = None) -> RunReport:
    """`report` with its truth tried: the run up to the incident once more, without each cause that can be left out.

    Same seed, same rate, a server of its own. Raises what `play` raises.
    """
    watcher = watcher or RunObserver()
    taken: list[LeaveOneOut] = []
    for truth in scenario.causes:
        if truth.can_be_left_out:
            watcher.say(f"once more without {truth.cause}")
            other = run_scenario(without(scenario, truth), report.seed, rate=report.rate)
            taken.append(LeaveOneOut(truth.cause, other.phase(scenario.incident.name).p99))
    return confirmed(report, taken)


def calibrated(scenario: Scenario, deployment: Deployment, seed: int, watcher: RunObserver) -> float:
    """The rate of `scenario`'s load on this machine, requests per second. Raises OperationError, UsageError."""
    watcher.say("measuring what this machine can do")
    plan = scenario.plan(10.0, seed)
    seconds, phase = scenario.load.calibrate_seconds, scenario.incident.name
    rates = [saturate(plan, deployment.address, seconds, phase=phase).rate for _ in range(CALIBRATIONS)]
    found = statistics.median(rates)
    if found <= 0:
        raise OperationError("the server completed nothing while its capacity was measured")
    return found * scenario.load.calibrate


def _walk(
    scenario: Scenario, deployment: Deployment, clients: str, started: float, watcher: RunObserver
) -> tuple[MetricsSnapshot, ...]:
    """Goes through the phases as the load does: turns knobs, injects and removes faults, reads pages at each edge."""
    edge = time.monotonic() - (time.time() - started)
    looks = []
    for phase in scenario.phases:
        _until(edge)
        looks.append(collect_metrics(deployment.servers))
        if phase.config:
            deployment.configure(phase.config)
        with ExitStack() as undo:
            for fault in phase.faults:
                inject(fault, deployment.site, undo)
            watcher.on_phase(PhaseStart(phase.name, (*deployment.pages, clients), deployment.pids))
            edge += phase.seconds
            _until(edge)
            looks.append(collect_metrics(deployment.servers))
    return tuple(looks)


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
