"""Plays one cell of the matrix and keeps what was seen of it, or says why the run was spoiled.

Whether a run is spoiled is decided here, from the load generator's figures and the machine's, before anybody has
diagnosed it: a generator that came late, no steady state before the incident, others on the processors, a fault that
moved nothing, nothing wrong that went wrong all the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

from msgspec import structs

from latdoctor import __version__
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Clock, Collector, CollectRequest, CollectResult
from latdoctor.collectors.runner import SystemClock
from latdoctor.errors import LatdoctorError
from latdoctor.evaluation import machine_state
from latdoctor.evaluation.ground_truth import (
    MADE,
    PLAYED,
    GroundTruth,
    IncidentContext,
    MachineLoad,
    TimedGap,
    TimeRange,
)
from latdoctor.evaluation.run_spec import RunSpec, scenario_of
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.model import Window
from latdoctor.lab.run_report import AFTER, BEFORE, RunReport, unsteady
from latdoctor.lab.runner import PhaseStart, RunObserver, confirm_causes, run_scenario
from latdoctor.lab.scenario import Scenario
from latdoctor.lab.telemetry.generate import generate_telemetry

HOST = "host"
INTERVAL = 1.0  # seconds between two snapshots of a source
INTERVALS = {HOST: 0.5}


@dataclass
class SourceSampler:
    """What is being read, and what has been read so far. `aim` may be called at any time, from any thread."""

    clock: Clock
    request: CollectRequest | None = None
    artifacts: list[Artifact] = field(default_factory=list)
    gaps: list[TimedGap] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def aim(self, servers: Sequence[str], pid: int | None) -> None:
        """From now on these pages and this process are read."""
        pages = tuple(f"{server.rstrip('/')}/metrics" for server in servers)
        self.request = CollectRequest(servers=pages, pid=pid, host=True, window=0.0)

    def snapshot(self, collector: Collector) -> None:
        """Asks `collector` once for what is aimed at."""
        request = self.request
        if request is None or not collector.is_requested(request):
            return
        started = self.clock.now()
        self._keep(collector.collect(request, self.clock), request, started)

    def _keep(self, collected: CollectResult, request: CollectRequest, started: float) -> None:
        with self._lock:
            for artifact in collected.artifacts:
                self.artifacts.append(self._named(artifact, request))
            self.gaps += [TimedGap(started, gap) for gap in collected.gaps]

    def _named(self, artifact: Artifact, request: CollectRequest) -> Artifact:
        """Of a process its number is in the group; of a page, the group is that of its server throughout the run."""
        number = len(self.artifacts)
        if artifact.collector == HOST:
            return replace(artifact, name=f"{HOST}/{number:05d}.json", group=f"{HOST}-{request.pid}")
        place = self._places.setdefault(artifact.source, len(self._places) + 1)
        group = f"{place}-{artifact.group.partition('-')[2]}"
        return replace(artifact, name=f"{artifact.collector}/{group}-{number:05d}.prom", group=group)


@contextmanager
def sampling(collectors: Sequence[Collector] = COLLECTORS, clock: Clock | None = None) -> Iterator[SourceSampler]:
    """A SourceSampler that reads until the context is left; what breaks a reader is raised then."""
    watch = SourceSampler(clock or SystemClock())
    ended = threading.Event()
    probe = CollectRequest(servers=("http://127.0.0.1",), host=True)
    asked = [collector for collector in collectors if collector.is_requested(probe)]
    with ThreadPoolExecutor(max(1, len(asked))) as beside:
        readers: list[Future[None]] = [beside.submit(_read, watch, collector, ended) for collector in asked]
        try:
            yield watch
        finally:
            ended.set()
    for reader in readers:
        reader.result()


def _read(watch: SourceSampler, collector: Collector, ended: threading.Event) -> None:
    """One snapshot at each turn; a source that is slow misses turns."""
    interval = INTERVALS.get(collector.name, INTERVAL)
    due = time.monotonic()
    while not ended.wait(max(0.0, due - time.monotonic())):
        watch.snapshot(collector)
        due = max(due + interval, time.monotonic())


RATE_STAYS = 3600.0  # seconds for which a machine is taken to bear the rate that was measured on it
SETTLING = 1.0  # seconds at the beginning of a phase that are not looked at, and at its end
TARGET = "reference"  # what the look is called: nothing of what is wrong


@dataclass(frozen=True, slots=True)
class RecordingAttempt:
    """One go at a cell; `spoiled` says why it does not count. `rate`: requests per second, 0 where none were sent."""

    bundle: Bundle
    told: IncidentContext
    truth: GroundTruth
    spoiled: tuple[str, ...]
    rate: float = 0.0


@dataclass
class RunRecorder:
    """Records cells, and remembers the rate at which a scenario is played: measuring that takes a third of a run."""

    clock: Callable[[], float] = time.monotonic
    _measured: dict[RunSpec, tuple[float, float]] = field(default_factory=dict)  # with seed 0: until when, which rate

    def attempt(self, cell: RunSpec, say: Callable[[str], None]) -> RecordingAttempt:
        """Records `cell` once. Raises LatdoctorError where it cannot be played at all."""
        if cell.kind == MADE:
            return _made(cell)
        any_seed = structs.replace(cell, seed=0)
        until, rate = self._measured.pop(any_seed, (0.0, 0.0))
        if self.clock() > until:
            until, rate = self.clock() + RATE_STAYS, 0.0
        made = _played(cell, say, rate)
        if not made.spoiled:  # the rate may be why
            self._measured[any_seed] = until, made.rate
        return made


def _made(cell: RunSpec) -> RecordingAttempt:
    made = generate_telemetry(cell.scenario, cell.seed, float(cell.severity))
    causes = (made.truth.cause,) if made.truth.cause else ()
    window = made.bundle.window
    truth = GroundTruth(
        run=cell.run,
        kind=MADE,
        scenario=cell.scenario,
        seed=cell.seed,
        severity=cell.severity,
        causes=causes,
        confirmed=causes,
        begins=window.start,
        ends=window.end,
        machine=MachineLoad(os.cpu_count() or 1),
        tool_version=__version__,
    )
    return RecordingAttempt(made.bundle, IncidentContext(), truth, ())


@dataclass
class _PhaseTimes:
    """Hears of the phases: aims the watch at what is there, and remembers when each began."""

    watch: SourceSampler
    begun: list[tuple[str, float]] = field(default_factory=list)
    usages: list[tuple[str, machine_state.Usage | None]] = field(default_factory=list)
    clients: str = ""

    def heard(self, stage: PhaseStart) -> None:
        self.watch.aim(stage.pages, stage.pids[0] if stage.pids else None)
        self.clients = f"{stage.pages[-1].rstrip('/')}/metrics"
        now = time.time()
        self.begun.append((stage.phase, now))
        self.usages.append((stage.phase, machine_state.usage(now)))

    def ended(self) -> None:
        """All phases are over."""
        self.usages.append(("", machine_state.usage(time.time())))

    def began(self, phase: str) -> float | None:
        return next((at for name, at in self.begun if name == phase), None)

    def others(self, scenario: Scenario, processors: int) -> float | None:
        """What others took in `before` or in the incident, whichever is more, as far as it was measured: who takes the
        processors in one of them alone changes just what the two are compared for.
        """
        taken = (
            machine_state.others(first, last, processors)
            for (name, first), (_, last) in pairwise(self.usages)
            if name in (BEFORE, scenario.incident.name)
        )
        return max((one for one in taken if one is not None), default=None)


def _played(cell: RunSpec, say: Callable[[str], None], rate: float) -> RecordingAttempt:
    scenario = scenario_of(cell)
    processors, loaded = os.cpu_count() or 1, machine_state.load_average()
    with sampling() as watch:
        stages = _PhaseTimes(watch)
        report = run_scenario(scenario, cell.seed, RunObserver(on_phase=stages.heard, say=say), rate=rate)
        stages.ended()
        watch.request = None  # the server is gone
    taken = stages.others(scenario, processors)
    told = _told(scenario, stages, watch)
    leaves = any(one.can_be_left_out for one in scenario.causes)
    tried = confirm_causes(scenario, report, RunObserver(say=say)) if leaves else report
    causes = tuple(one.cause for one in tried.truth if one.moves is not False)
    incident = told.incident or TimeRange(report.started, report.started)
    truth = GroundTruth(
        run=cell.run,
        kind=PLAYED,
        scenario=cell.scenario,
        seed=cell.seed,
        severity=cell.severity,
        causes=causes,
        confirmed=tuple(one.cause for one in tried.truth if one.moves),
        harmless=tuple(one.cause for one in tried.truth if one.moves is False),
        begins=stages.began(scenario.incident.name),
        ends=incident.end + SETTLING,
        p99_before=_p99(report, BEFORE),
        p99_incident=_p99(report, report.incident),
        machine=MachineLoad(processors, loaded, taken),
        tool_version=__version__,
    )
    times = [artifact.taken_at for artifact in watch.artifacts] or [report.started]
    bundle = Bundle(Context(TARGET, scenario.load.slo), Window(min(times), max(times)), tuple(watch.artifacts))
    return RecordingAttempt(
        bundle, told, truth, tuple(spoiled(tried, taken, watched=bool(watch.artifacts))), report.rate
    )


def _told(scenario: Scenario, stages: _PhaseTimes, watch: SourceSampler) -> IncidentContext:
    seconds = {phase.name: phase.seconds for phase in scenario.phases}

    def looked(phase: str) -> TimeRange | None:
        at = stages.began(phase)
        if at is None:
            return None
        settling = min(SETTLING, seconds[phase] / 4)
        return TimeRange(at + settling, at + seconds[phase] - settling)

    incident = scenario.incident.name
    before = looked(BEFORE) if incident != BEFORE else None
    return IncidentContext(before, looked(incident), stages.clients, tuple(watch.gaps))


def _p99(report: RunReport, name: str) -> float | None:
    return next((phase.p99 for phase in report.phases if phase.name == name), None)


def spoiled(report: RunReport, others: float | None, *, watched: bool = True) -> Iterator[str]:
    """Why the run does not count. `report` has its truth tried as far as it can be.

    What a generator did in a phase that is neither looked at nor compared with (the queue drains) is of no account.
    """
    idle = tuple(f"{phase.name}: " for phase in report.phases if phase.name not in (BEFORE, report.incident, AFTER))
    yield from (reason for reason in report.spoiled if not reason.startswith(idle))
    if not watched:
        yield "nothing of it was read"
    if others is not None and others > machine_state.OTHERS:
        yield f"others took {others:.0%} of the processors"
    if report.truth and all(one.moves is False for one in report.truth):
        yield "what was put in moved nothing: the tail is the same without it"
    if not report.truth:
        yield from unsteady(report.phase(report.incident))


def why_not(error: LatdoctorError) -> str:
    """A run that could not be played, as a reason."""
    return f"could not be played: {error}"
