"""The parts of a synthetic incident: the machine, its GPU work, its logs, and the files of the user."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.lab.telemetry.gpu_load import GpuMachine, GpuWork
from latdoctor.lab.telemetry.logs import KernelMessage
from latdoctor.lab.telemetry.profiler_trace import ForwardPass, HostSpeed
from latdoctor.lab.telemetry.tensorrt import EngineState
from latdoctor.lab.telemetry.triton import Service
from latdoctor.lab.telemetry.vllm import Engine

WINDOW = 10.0  # seconds of the observation


@dataclass(frozen=True, slots=True)
class FaultParameters:
    """The random source of an incident, its severity (0 < severity <= 1), and the start of the observation `now`."""

    rng: random.Random
    severity: float
    now: float

    def between(self, mild: float, severe: float) -> float:
        """Interpolates from `mild` (severity 0) to `severe` (severity 1), with 1.5 % noise."""
        return (mild + (severe - mild) * self.severity) * self.rng.uniform(0.985, 1.015)

    def earlier(self, least: float, most: float) -> float:
        return round(self.now - self.rng.uniform(least, most), 6)


@dataclass(frozen=True, slots=True)
class ProfilerRecording:
    """A profiler trace: the forward pass, the host speed, and the number of recorded steps."""

    work: ForwardPass
    pace: HostSpeed
    steps: int = 5


@dataclass(frozen=True, slots=True)
class SyntheticIncident:
    """One incident. A source that is None was not collected; `unseen`: why NVML reported no GPU.

    `slo` is the P99 objective in seconds. `subjects` are the faulty ones, for the ground truth.
    """

    machine: GpuMachine
    works: tuple[GpuWork, ...] | None
    slo: float
    service: Service | None = None
    engine: Engine | None = None
    kernel: Sequence[KernelMessage] = ()
    server: Sequence[tuple[float, str, str]] = ()  # unix seconds, level, message
    recording: ProfilerRecording | None = None
    tensorrt: EngineState | None = None
    unseen: str = ""
    subjects: tuple[str, ...] = ()


MODELS = ("intent-desk", "speech-text", "doc-rank", "claims-vision", "chat-small")


def triton_service(
    fault: FaultParameters,
    slower: Sequence[float],
    load: float,
    *,
    copying: float = 0.004,
    slower_copies: float = 1.0,
    failures: float = 0.0,
    healthy_instances: int = 0,
) -> Service:
    """A model behind Triton with utilisation `load` (0..1) while its instances are healthy.

    `healthy_instances`: the number of instances before some were lost.
    """
    rng = fault.rng
    compute, batch = rng.uniform(0.04, 0.09), rng.uniform(4.0, 9.0)
    instances = healthy_instances or len(slower)
    return Service(
        model=rng.choice(MODELS),
        rate=load * instances * batch / compute,
        compute=compute,
        batch=batch,
        slower=tuple(slower),
        copying=copying,
        slower_copies=slower_copies,
        failures=failures,
        onset=rng.uniform(20, 60),
    )


def slo_for(service: Service, times: float = 3.3) -> float:
    """A P99 objective for the service: a few batch times."""
    return round(service.compute * times, 2)
