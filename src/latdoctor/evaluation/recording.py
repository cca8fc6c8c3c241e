"""Records one run of the matrix, or reports why the run is spoiled.

Whether a run is spoiled is decided here, before any diagnosis, from the measurements of the load generator and of the
machine: a late generator, no steady state before the incident, other load on the processors, a fault without effect, or
a healthy run that violated its SLO.
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
from latdoctor.evaluation.ground_truth import GroundTruth, IncidentContext, MachineLoad, RunKind, TimedGap, TimeRange
from latdoctor.evaluation.run_spec import RunSpec, scenario_of
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.model import Window
from latdoctor.lab.run_report import AFTER, BEFORE, RunReport, unsteady
from latdoctor.lab.runner import PhaseStart, RunObserver, confirm_causes, run_scenario
from latdoctor.lab.scenario import Scenario
from latdoctor.lab.telemetry.generate import generate_telemetry
from latdoctor.load import machine_state

HOST = "host"
INTERVAL = 1.0  # seconds between two snapshots of a source
INTERVALS = {HOST: 0.5}


@dataclass
class SourceSampler:
    """Collects snapshots of the current sources. `aim` may be called at any time, from any thread."""

    clock: Clock
    request: CollectRequest | None = None
    artifacts: list[Artifact] = field(default_factory=list)
    gaps: list[TimedGap] = field(default_factory=list)
    _group_numbers: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def aim(self, servers: Sequence[str], pid: int | None) -> None:
        """Read the metrics pages of `servers` and the process `pid` from now on."""
        pages = tuple(f"{server.rstrip('/')}/metrics" for server in servers)
        self.request = CollectRequest(servers=pages, pid=pid, host=True, window=0.0)

    def snapshot(self, collector: Collector) -> None:
        """Take one snapshot of the current sources with `collector`."""
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
        """Group host samples by process and pages by server, so that a group means the same throughout the run."""
        number = len(self.artifacts)
        if artifact.collector == HOST:
            return replace(artifact, name=f"{HOST}/{number:05d}.json", group=f"{HOST}-{request.pid}")
        server = self._group_numbers.setdefault(artifact.source, len(self._group_numbers) + 1)
        group = f"{server}-{artifact.group.partition('-')[2]}"
        return replace(artifact, name=f"{artifact.collector}/{group}-{number:05d}.prom", group=group)


@contextmanager
def sampling(collectors: Sequence[Collector] = COLLECTORS, clock: Clock | None = None) -> Iterator[SourceSampler]:
    """A sampler that reads until the context exits, which raises the error of a failed reader."""
    sampler = SourceSampler(clock or SystemClock())
    ended = threading.Event()
    probe = CollectRequest(servers=("http://127.0.0.1",), host=True)
    used = [collector for collector in collectors if collector.is_requested(probe)]
    with ThreadPoolExecutor(max(1, len(used))) as pool:
        readers: list[Future[None]] = [pool.submit(_read, sampler, collector, ended) for collector in used]
        try:
            yield sampler
        finally:
            ended.set()
    for reader in readers:
        reader.result()


def _read(sampler: SourceSampler, collector: Collector, ended: threading.Event) -> None:
    """One snapshot per interval; a slow source skips intervals."""
    interval = INTERVALS.get(collector.name, INTERVAL)
    due = time.monotonic()
    while not ended.wait(max(0.0, due - time.monotonic())):
        sampler.snapshot(collector)
        due = max(due + interval, time.monotonic())


RATE_VALID = 3600.0  # seconds for which a measured capacity is reused
SETTLING = 1.0  # seconds at either end of a phase that are not observed
TARGET = "reference"  # neutral target name: must not reveal the fault


@dataclass(frozen=True, slots=True)
class RecordingAttempt:
    """One attempt at a run. `spoiled`: why it does not count. `rate`: requests per second; 0 for synthetic runs."""

    bundle: Bundle
    context: IncidentContext
    ground_truth: GroundTruth
    spoiled: tuple[str, ...]
    rate: float = 0.0


@dataclass
class RunRecorder:
    """Records runs and reuses the measured request rate of a scenario: measuring takes a third of a run."""

    clock: Callable[[], float] = time.monotonic
    _measured: dict[RunSpec, tuple[float, float]] = field(default_factory=dict)  # seed 0 → expiry, rate

    def attempt(self, spec: RunSpec, log: Callable[[str], None]) -> RecordingAttempt:
        """Record `spec` once. Raises LatdoctorError where the scenario cannot be run."""
        if spec.kind is RunKind.SYNTHETIC:
            return _synthetic(spec)
        any_seed = structs.replace(spec, seed=0)
        expiry, rate = self._measured.pop(any_seed, (0.0, 0.0))
        if self.clock() > expiry:
            expiry, rate = self.clock() + RATE_VALID, 0.0
        attempt = _record_live(spec, log, rate)
        if not attempt.spoiled:  # the rate may be the reason
            self._measured[any_seed] = expiry, attempt.rate
        return attempt


def _synthetic(spec: RunSpec) -> RecordingAttempt:
    telemetry = generate_telemetry(spec.scenario, spec.seed, float(spec.severity))
    causes = (telemetry.truth.cause,) if telemetry.truth.cause else ()
    window = telemetry.bundle.window
    ground_truth = GroundTruth(
        run=spec.run,
        kind=RunKind.SYNTHETIC,
        scenario=spec.scenario,
        seed=spec.seed,
        severity=spec.severity,
        causes=causes,
        confirmed=causes,
        begins=window.start,
        ends=window.end,
        machine=MachineLoad(os.cpu_count() or 1),
        tool_version=__version__,
    )
    return RecordingAttempt(telemetry.bundle, IncidentContext(), ground_truth, ())


@dataclass
class _PhaseTimes:
    """Points the sampler at the processes of each phase, and records when each phase began."""

    sampler: SourceSampler
    begun: list[tuple[str, float]] = field(default_factory=list)
    usages: list[tuple[str, machine_state.Usage | None]] = field(default_factory=list)
    clients: str = ""

    def on_phase(self, phase: PhaseStart) -> None:
        self.sampler.aim(phase.pages, phase.pids[0] if phase.pids else None)
        self.clients = f"{phase.pages[-1].rstrip('/')}/metrics"
        now = time.time()
        self.begun.append((phase.phase, now))
        self.usages.append((phase.phase, machine_state.usage(now)))

    def ended(self) -> None:
        """Record the end of the last phase."""
        self.usages.append(("", machine_state.usage(time.time())))

    def began(self, phase: str) -> float | None:
        return next((at for name, at in self.begun if name == phase), None)

    def others(self, scenario: Scenario, processors: int) -> float | None:
        """The higher share of foreign processor use of the phases `before` and incident; None: not measured.

        Foreign load in one of the two alone distorts their comparison.
        """
        shares = (
            machine_state.others(first, last, processors)
            for (name, first), (_, last) in pairwise(self.usages)
            if name in (BEFORE, scenario.incident.name)
        )
        return max((share for share in shares if share is not None), default=None)


def _record_live(spec: RunSpec, log: Callable[[str], None], rate: float) -> RecordingAttempt:
    scenario = scenario_of(spec)
    processors, load_before = os.cpu_count() or 1, machine_state.load_average()
    with sampling() as sampler:
        phases = _PhaseTimes(sampler)
        report = run_scenario(scenario, spec.seed, RunObserver(on_phase=phases.on_phase, log=log), rate=rate)
        phases.ended()
        sampler.request = None  # the server has stopped
    others = phases.others(scenario, processors)
    context = _context(scenario, phases, sampler)
    removable = any(cause.can_be_left_out for cause in scenario.causes)
    confirmed = confirm_causes(scenario, report, RunObserver(log=log)) if removable else report
    incident = context.incident or TimeRange(report.started, report.started)
    ground_truth = GroundTruth(
        run=spec.run,
        kind=RunKind.LIVE,
        scenario=spec.scenario,
        seed=spec.seed,
        severity=spec.severity,
        causes=tuple(effect.cause for effect in confirmed.truth if effect.moves is not False),
        confirmed=tuple(effect.cause for effect in confirmed.truth if effect.moves),
        harmless=tuple(effect.cause for effect in confirmed.truth if effect.moves is False),
        begins=phases.began(scenario.incident.name),
        ends=incident.end + SETTLING,
        p99_before=_p99(report, BEFORE),
        p99_incident=_p99(report, report.incident),
        machine=MachineLoad(processors, load_before, others),
        tool_version=__version__,
    )
    times = [artifact.taken_at for artifact in sampler.artifacts] or [report.started]
    bundle = Bundle(Context(TARGET, scenario.load.slo), Window(min(times), max(times)), tuple(sampler.artifacts))
    reasons = tuple(spoiled(confirmed, others, observed=bool(sampler.artifacts)))
    return RecordingAttempt(bundle, context, ground_truth, reasons, report.rate)


def _context(scenario: Scenario, phases: _PhaseTimes, sampler: SourceSampler) -> IncidentContext:
    seconds = {phase.name: phase.seconds for phase in scenario.phases}

    def observed(phase: str) -> TimeRange | None:
        start = phases.began(phase)
        if start is None:
            return None
        settling = min(SETTLING, seconds[phase] / 4)
        return TimeRange(start + settling, start + seconds[phase] - settling)

    incident = scenario.incident.name
    before = observed(BEFORE) if incident != BEFORE else None
    return IncidentContext(before, observed(incident), phases.clients, tuple(sampler.gaps))


def _p99(report: RunReport, name: str) -> float | None:
    return next((phase.p99 for phase in report.phases if phase.name == name), None)


def spoiled(report: RunReport, others: float | None, *, observed: bool = True) -> Iterator[str]:
    """Why the run does not count. Problems of phases that are neither observed nor compared (draining) are ignored."""
    relevant = ("", BEFORE, report.incident, AFTER)
    yield from (problem.text for problem in report.problems if problem.phase in relevant)
    if not observed:
        yield "no artifact was recorded"
    if others is not None and others > machine_state.OTHERS:
        yield machine_state.other_load(others)
    if report.truth and all(effect.moves is False for effect in report.truth):
        yield "no injected fault had an effect: P99 is the same without it"
    if not report.truth:
        yield from (problem.text for problem in unsteady(report.phase(report.incident)))


def run_failed(error: LatdoctorError) -> str:
    """The reason for a run whose scenario failed."""
    return f"the scenario failed: {error}"
