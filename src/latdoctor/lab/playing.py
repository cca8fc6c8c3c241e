"""Plays a scenario whole: server, load, what goes wrong, measurement; and says what each phase was like."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.lab.faults.injection import Agent, Configure, Fault, Kill, Neighbour
from latdoctor.lab.faults.neighbours import neighbours
from latdoctor.lab.load.openloop import Progress
from latdoctor.lab.load.process import saturate, start_load
from latdoctor.lab.load.result import LoadResult
from latdoctor.lab.pages import Between, Page, scrape
from latdoctor.lab.scenario import INCIDENT, Phase, Scenario, typed
from latdoctor.lab.servers import ServerProcess


class PhaseReport(Struct, frozen=True):
    """One phase in figures. Times in seconds, rates per second; None: nothing to tell it by."""

    name: str
    requests: int
    answered: int
    refused: int
    timed_out: int
    p50: float | None
    p95: float | None
    p99: float | None
    goodput: float
    forward_calls: float
    calls_per_answer: float | None
    padding_waste: float | None
    batch_size_mean: float | None
    allocations_per_call: float | None
    page_faults_per_call: float | None
    queue_depth: float | None


class PlayReport(Struct, frozen=True):
    """A whole run. `spoiled` says why its figures cannot be trusted; empty: they can."""

    scenario: str
    seed: int
    rate: float
    started: float  # unix seconds
    phases: tuple[PhaseReport, ...]
    spoiled: tuple[str, ...]
    truth: tuple[str, ...]

    def phase(self, name: str) -> PhaseReport:
        """Raises KeyError."""
        return next(phase for phase in self.phases if phase.name == name)


class Stage(Struct, frozen=True):
    """What a watcher is told: the phase that begins now, and where the server is."""

    phase: str
    url: str
    pid: int


def play(
    scenario: Scenario,
    seed: int,
    *,
    on_stage: Callable[[Stage], None] = lambda stage: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda text: None,
) -> PlayReport:
    """Runs `scenario`. Raises OperationError where server or generator break, UsageError for a bad scenario."""
    with ServerProcess(scenario.config()) as server:
        say("starting the server")
        server.wait_ready()
        rate = scenario.load.rate or _calibrated(scenario, server, seed, say)
        plan = scenario.plan(rate, seed)
        with start_load(plan, server.url) as load:
            started = load.wait_started()
            with ThreadPoolExecutor(1) as beside:  # the phases go by the clock while this thread hears the generator
                walking = beside.submit(_walk, scenario, server, started, on_stage)
                walking.add_done_callback(lambda ended: load.stop() if ended.exception() else None)
                result = load.wait(on_progress)
            pages = walking.result()
    return _report(scenario, seed, rate, result, pages)


def _calibrated(scenario: Scenario, server: ServerProcess, seed: int, say: Callable[[str], None]) -> float:
    say("measuring what this machine can do")
    plan = scenario.plan(10.0, seed)
    found = saturate(plan, server.url, scenario.load.calibrate_seconds, phase=_incident(scenario).name)
    if found.rate <= 0:
        raise OperationError("the server completed nothing while its capacity was measured")
    return found.rate * scenario.load.calibrate


def _incident(scenario: Scenario) -> Phase:
    return next((phase for phase in scenario.phases if phase.name == INCIDENT), scenario.phases[-1])


def _walk(
    scenario: Scenario, server: ServerProcess, started: float, on_stage: Callable[[Stage], None]
) -> tuple[Page, ...]:
    """Goes through the phases as the load does: turns knobs, injects and removes faults, reads pages at each edge."""
    begun = time.monotonic() - (time.time() - started)
    edge = begun
    pages = []
    for phase in scenario.phases:
        _until(edge)
        pages.append(scrape(server.url, time.monotonic()))
        if phase.config:
            server.configure(typed(phase.config))
        with ExitStack() as undo:
            for fault in phase.faults:
                _inject(fault, server, undo)
            on_stage(Stage(phase.name, server.url, server.pid))
            edge += phase.seconds
            _until(edge)
            pages.append(scrape(server.url, time.monotonic()))
    return tuple(pages)


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _inject(fault: Fault, server: ServerProcess, undo: ExitStack) -> None:
    match fault:
        case Configure(knobs):
            before, _ = server.config()
            server.configure(typed(knobs))
            restored = {
                group: {name: getattr(getattr(before, group), name) for name in values}
                for group, values in knobs.items()
            }
            undo.callback(server.configure, restored)
        case Agent(name, strength, lifetime):
            server.disturb(name, strength, lifetime)
            undo.callback(server.calm, name)
        case Neighbour():
            undo.enter_context(neighbours(fault))
        case Kill():
            server.kill()


def _report(scenario: Scenario, seed: int, rate: float, result: LoadResult, pages: Sequence[Page]) -> PlayReport:
    phases = tuple(
        _phase_report(phase.name, result, Between(pages[2 * index], pages[2 * index + 1]))
        for index, phase in enumerate(scenario.phases)
    )
    return PlayReport(scenario.id, seed, rate, result.started, phases, result.spoiled, scenario.truth)


def _phase_report(name: str, result: LoadResult, between: Between) -> PhaseReport:
    whole = result.phase(name).whole
    return PhaseReport(
        name=name,
        requests=whole.counts.requests,
        answered=whole.counts.answered,
        refused=whole.counts.refused,
        timed_out=whole.counts.timed_out,
        p50=whole.p50,
        p95=whole.p95,
        p99=whole.p99,
        goodput=whole.goodput,
        forward_calls=between.rise("ref_forward_calls_total"),
        calls_per_answer=between.per("ref_forward_calls_total", "ref_requests_total"),
        padding_waste=between.waste,
        batch_size_mean=between.mean("ref_batch_size"),
        allocations_per_call=between.per("ref_device_alloc_total", "ref_forward_calls_total"),
        page_faults_per_call=between.per("ref_page_faults_total", "ref_forward_calls_total"),
        queue_depth=between.last.values.get("ref_queue_depth"),
    )
