"""Runs a scenario: starts the servers and the load, injects the faults phase by phase, and measures each phase."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.lab.faults.injection import inject
from latdoctor.lab.metrics_snapshot import MetricsSnapshot, collect_metrics
from latdoctor.lab.processes import Deployment
from latdoctor.lab.run_report import LeaveOneOut, RunReport, confirmed, report_of
from latdoctor.lab.scenario import Scenario, without
from latdoctor.load.openloop import Progress
from latdoctor.load.process import saturate, start_load

CALIBRATIONS = 3  # median of this many: single measurements differ by a third on a shared machine


class PhaseStart(Struct, frozen=True):
    """The beginning of a phase: its name, all metrics pages (the clients' last), and the servers' processes."""

    phase: str
    pages: tuple[str, ...]
    pids: tuple[int, ...]


class RunObserver(Struct, frozen=True):
    """Callbacks of a run: the beginning of each phase, the generator's progress, and log lines."""

    on_phase: Callable[[PhaseStart], None] = lambda phase: None
    on_progress: Callable[[Progress], None] = lambda progress: None
    log: Callable[[str], None] = lambda text: None


def run_scenario(scenario: Scenario, seed: int, observer: RunObserver | None = None, *, rate: float = 0.0) -> RunReport:
    """Runs `scenario` at `rate` requests per second; 0: the scenario's own or a measured rate.

    Raises OperationError where the server or the generator fails, UsageError for an invalid scenario.
    """
    observer = observer or RunObserver()
    observer.log("starting the server")
    with Deployment(scenario) as deployment:
        rate = rate or scenario.load.rate or calibrated(scenario, deployment, seed, observer)
        with start_load(scenario.plan(rate, seed), deployment.address, metrics_port=0) as load:
            started = load.wait_started()
            with ThreadPoolExecutor(1) as pool:  # phases run by the clock while this thread reads the generator
                phases = pool.submit(_run_phases, scenario, deployment, load.metrics, started, observer)
                phases.add_done_callback(lambda ended: load.stop() if ended.exception() else None)
                result = load.wait(observer.on_progress)
            snapshots = phases.result()
    return report_of(scenario, seed, rate, result, snapshots)


def confirm_causes(scenario: Scenario, report: RunReport, observer: RunObserver | None = None) -> RunReport:
    """`report` with its causes confirmed: repeats the run up to the incident without each cause that can be left out.

    Same seed and rate, a new server. Raises what `run_scenario` raises.
    """
    observer = observer or RunObserver()
    runs: list[LeaveOneOut] = []
    for truth in scenario.causes:
        if truth.can_be_left_out:
            observer.log(f"repeating the run without {truth.cause}")
            other = run_scenario(without(scenario, truth), report.seed, rate=report.rate)
            runs.append(LeaveOneOut(truth.cause, other.phase(scenario.incident.name).p99))
    return confirmed(report, runs)


def calibrated(scenario: Scenario, deployment: Deployment, seed: int, observer: RunObserver) -> float:
    """The rate of `scenario`'s load on this machine, requests per second. Raises OperationError, UsageError."""
    observer.log("measuring the capacity of the server on this machine")
    plan = scenario.plan(10.0, seed)
    seconds, phase = scenario.load.calibrate_seconds, scenario.incident.name
    rates = [saturate(plan, deployment.address, seconds, phase=phase).rate for _ in range(CALIBRATIONS)]
    found = statistics.median(rates)
    if found <= 0:
        raise OperationError("the server completed no request while its capacity was measured")
    return found * scenario.load.calibrate


def _run_phases(
    scenario: Scenario, deployment: Deployment, clients: str, started: float, observer: RunObserver
) -> tuple[MetricsSnapshot, ...]:
    """Runs the phases in step with the load: changes settings, injects and removes faults, reads pages at both ends."""
    edge = time.monotonic() - (time.time() - started)
    snapshots = []
    for phase in scenario.phases:
        _until(edge)
        snapshots.append(collect_metrics(deployment.servers))
        if phase.config:
            deployment.configure(phase.config)
        with ExitStack() as undo:
            for fault in phase.faults:
                inject(fault, deployment.injection_targets, undo)
            observer.on_phase(PhaseStart(phase.name, (*deployment.pages, clients), deployment.pids))
            edge += phase.seconds
            _until(edge)
            snapshots.append(collect_metrics(deployment.servers))
    return tuple(snapshots)


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
