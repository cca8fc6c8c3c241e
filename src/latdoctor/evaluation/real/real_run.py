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
from latdoctor.evaluation import machine_state
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
from latdoctor.load.process import start_load
from latdoctor.load.summary import LoadResult
from latdoctor.sanitize import clean

Log = Callable[[str], None]
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
    """Record the run under `recordings`, replacing an incomplete one. Raises OperationError where it cannot be run."""
    folder = recordings / order.run
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    scenario, definition = order.scenario, find_server(order.scenario.server)
    load_before = machine_state.load_average()
    with RealServer(definition, order.root, scenario.environment, scenario.arguments) as server:
        log(f"{order.run}: {definition.name} is ready at {server.address}")
        result, since, lasted, others = _under_load(order, server, folder)
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
        machine=MachineLoad(processors, load_before, others),
    )
    reasons = (*_distorted(result), *not_an_effect(truth))
    truth = msgspec.structs.replace(truth, spoiled=reasons)
    write_real_truth(folder, truth)
    return RealRecording(folder, truth)


def _distorted(result: LoadResult) -> Iterator[str]:
    """Why the clients' figures are not the server's."""
    yield from (problem.text for problem in result.problems if problem.phase in ("", BEFORE, INCIDENT, AFTER))


def _under_load(order: RealRunOrder, server: RealServer, folder: Path) -> tuple[LoadResult, float, float, float | None]:
    """The load's result; begin and end of the incident; the share of the processors that others used."""
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
    return result, since, lasted, machine_state.others(first, last, os.cpu_count() or 1)


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
    command = [sys.executable, "-m", "latdoctor", "collect", *_sources(server), "--to", str(to)]
    command += ["--window", f"{scenario.phases.window:g}s", "--slo", scenario.slo]
    command += ["--changes", str(changes)] if changes else []
    limit = scenario.phases.window + _COLLECT_WITHIN
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter and module
            command, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired as error:
        raise OperationError(f"latdoctor collect took more than {limit:g} s") from error
    if not to.exists():
        raise OperationError(f"latdoctor collect saved nothing: {clean(done.stderr[-300:])}")


def _sources(server: RealServer) -> Sequence[str]:
    """The options that name this server's pages, logs and process."""
    pages = [part for page in server.pages for part in ("--server", page)]
    logs = [part for path in server.logs for part in ("--log", str(path))]
    alive = server.processes(engine=False) if server.is_alive else ()
    return [*pages, *logs, *(["--pid", str(alive[0])] if alive else [])]
