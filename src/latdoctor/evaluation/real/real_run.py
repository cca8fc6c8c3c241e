"""One run of a real server: its load, its fault, and what an operator collects meanwhile with `latdoctor collect`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from latdoctor import __version__
from latdoctor.errors import OperationError
from latdoctor.evaluation.ground_truth import MachineLoad
from latdoctor.evaluation.real.real_store import (
    HEALTHY_BUNDLE,
    INCIDENT_BUNDLE,
    ClientFigures,
    RealRecording,
    RealTruth,
    not_an_effect,
    write_real_truth,
)
from latdoctor.lab.real.real_faults import injected
from latdoctor.lab.real.real_scenario import AFTER, BEFORE, DRAINING, INCIDENT, RealScenario
from latdoctor.lab.real.server_definition import find_server
from latdoctor.lab.real.server_process import RealServer
from latdoctor.load import machine_state
from latdoctor.load.process import start_load
from latdoctor.load.summary import LoadResult
from latdoctor.sanitize import clean

Log = Callable[[str], None]
_LATE = 2.0  # seconds
_COLLECT_WITHIN = 60.0  # seconds beyond the window


@dataclass(frozen=True, slots=True)
class RealRunOrder:
    """A run to record: the scenario, the folder of the installed servers, and the folder for the run."""

    scenario: RealScenario
    seed: int
    root: Path

    @property
    def run(self) -> str:
        return f"{self.scenario.id}-{self.seed}"


def record_real_run(order: RealRunOrder, recordings: Path, log: Log) -> RealRecording:
    """Record the run under `recordings`; it replaces an earlier one. Raises OperationError where it cannot be run."""
    folder, complete = recordings / f".{order.run}", recordings / order.run
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    scenario, definition = order.scenario, find_server(order.scenario.server)
    load_before = machine_state.load_average()
    with RealServer(definition, order.root, scenario.environment, scenario.arguments) as server:
        log(f"{order.run}: {definition.name} is ready at {server.address}")
        loaded = _under_load(order, server, folder)
    result, since, lasted = loaded.result, loaded.since, loaded.lasted
    processors = os.cpu_count() or 1
    figures = {name: ClientFigures.of(result.phase(name).whole) for name in (BEFORE, INCIDENT, AFTER)}
    truth = RealTruth(
        run=order.run,
        scenario=scenario.id,
        server=definition.name,
        version=definition.version(order.root),
        date=datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d"),
        tool_version=__version__,
        causes=scenario.causes,
        accepts=scenario.accepts,
        since=since,
        lasted=lasted,
        slo=scenario.slo_seconds,
        before=figures[BEFORE],
        during=figures[INCIDENT],
        after=figures[AFTER],
        generator=result.generator,
        machine=MachineLoad(processors, load_before, loaded.others),
    )
    reasons = (*_distorted(loaded, scenario), *not_an_effect(truth))
    truth = msgspec.structs.replace(truth, spoiled=reasons)
    write_real_truth(folder, truth)
    shutil.rmtree(complete, ignore_errors=True)
    folder.rename(complete)
    return RealRecording(complete, truth)


@dataclass(frozen=True, slots=True)
class _LoadedRun:
    """The load's result; begin and end of the incident; the share of the processors that others used."""

    result: LoadResult
    since: float
    lasted: float
    others: float | None


def _distorted(run: _LoadedRun, scenario: RealScenario) -> Iterator[str]:
    """Why the clients' figures are not the server's, or the observation not that of the incident.

    A late generator only makes figures worse: where the time before and after was good all the same, it was good.
    A fault begins after the observation before it, however long that takes; a planned load does not wait.
    """
    relevant = ("", INCIDENT)
    yield from (problem.text for problem in run.result.problems if problem.phase in relevant)
    starts = scenario.phase_starts
    for phase, at in ((INCIDENT, run.since), (DRAINING, run.lasted)):
        late = at - run.result.started - starts[phase]
        if late > _LATE and scenario.is_of_load:
            yield f"the observation before {phase} took {late:.1f} s longer than its phase"


def _under_load(order: RealRunOrder, server: RealServer, folder: Path) -> _LoadedRun:
    """Loads `server`, injects the fault, and observes both the healthy time and the incident."""
    scenario, starts = order.scenario, order.scenario.phase_starts
    with ExitStack() as open_:
        changes = Path(open_.enter_context(tempfile.TemporaryDirectory())) / "changes.log"
        template = scenario.template(server.request)
        load = open_.enter_context(start_load(scenario.plan(order.seed), server.address, request=template))
        begun = load.wait_started()
        _until(begun + starts[BEFORE])
        first = machine_state.usage(time.time())
        _collect(scenario, server, folder / HEALTHY_BUNDLE, None)
        _until(begun + starts[INCIDENT])
        since = time.time()
        if scenario.change:
            moment = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            changes.write_text(f"{moment} {scenario.change}\n", encoding="utf-8")
        with _incident(scenario, server):
            _until(begun + starts[INCIDENT] + scenario.phases.settle)
            _collect(scenario, server, folder / INCIDENT_BUNDLE, changes if scenario.change else None)
            _until(begun + starts[DRAINING])
            lasted = time.time()
        last = machine_state.usage(time.time())
        result = load.wait()
    return _LoadedRun(result, since, lasted, machine_state.others(first, last, os.cpu_count() or 1))


@contextmanager
def _incident(scenario: RealScenario, server: RealServer) -> Iterator[None]:
    with ExitStack() as faults:
        for fault in scenario.incident.faults:
            faults.enter_context(injected(fault, server))
        yield


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


def _collect(scenario: RealScenario, server: RealServer, to: Path, changes: Path | None) -> None:
    """Save a bundle as an operator would. Raises OperationError where nothing was saved."""
    options = [*_sources(server), "--to", str(to), "--window", f"{scenario.phases.window:g}s", "--slo", scenario.slo]
    options += ["--changes", str(changes)] if changes else []
    output = run_collect(options, scenario.phases.window + _COLLECT_WITHIN)
    if not to.exists():
        raise OperationError(f"latdoctor collect saved nothing: {clean(output[-300:])}")


def run_collect(options: Sequence[str], limit: float) -> str:
    """`latdoctor collect` in a process of its own; what it printed. Raises OperationError after `limit` seconds."""
    command = [sys.executable, "-m", "latdoctor", "collect", *options]
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter and module
            command, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired as error:
        raise OperationError(f"latdoctor collect took more than {limit:g} s") from error
    return done.stdout + done.stderr


def _sources(server: RealServer) -> Sequence[str]:
    """The options that name this server's pages, logs and process."""
    pages = [part for page in server.pages for part in ("--server", page)]
    logs = [part for path in server.logs for part in ("--log", str(path))]
    alive = server.processes(engine=False) if server.is_alive else ()
    return [*pages, *logs, *(["--pid", str(alive[0])] if alive else [])]
