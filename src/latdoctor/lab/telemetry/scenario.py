"""What a made incident consists of: the machine, its work, its logs, and what a user would have brought of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.lab.telemetry.gpu_load import GpuMachine, GpuWork
from latdoctor.lab.telemetry.logs import FORMS, KernelMessage
from latdoctor.lab.telemetry.profiler_trace import ForwardPass, HostSpeed
from latdoctor.lab.telemetry.triton import Service
from latdoctor.lab.telemetry.vllm import Engine

WINDOW = 10.0  # seconds of the look


@dataclass(frozen=True, slots=True)
class FaultParameters:
    """What a cause's story is drawn from. `severity` is above 0 and at most 1; `now` the start of the look."""

    rng: random.Random
    severity: float
    now: float

    def between(self, mild: float, severe: float) -> float:
        """From `mild` at a severity of 0 to `severe` at 1, give or take a little."""
        return (mild + (severe - mild) * self.severity) * self.rng.uniform(0.985, 1.015)

    def earlier(self, least: float, most: float) -> float:
        return round(self.now - self.rng.uniform(least, most), 6)


@dataclass(frozen=True, slots=True)
class ProfilerRecording:
    """A profiler trace: the passes, how fast the host is, and how many steps were recorded."""

    work: ForwardPass
    pace: HostSpeed
    steps: int = 5


@dataclass(frozen=True, slots=True)
class SyntheticIncident:
    """One incident. What is None was not brought by the user; `unseen` is why NVML told nothing.

    `slo` is the P99 that the service promises, in seconds. `subjects` are where the trouble sits, for the truth.
    """

    machine: GpuMachine
    works: tuple[GpuWork, ...] | None
    slo: float
    service: Service | None = None
    engine: Engine | None = None
    kernel: Sequence[KernelMessage] = ()
    server: Sequence[tuple[float, str, str]] = ()  # unix seconds, level, message
    recording: ProfilerRecording | None = None
    tensorrt: str = ""  # the state of the engine
    unseen: str = ""
    subjects: tuple[str, ...] = ()
    kernel_forms: tuple[str, ...] = FORMS


MODELS = ("intent-desk", "speech-text", "doc-rank", "claims-vision", "chat-small")


def triton_service(
    scene: FaultParameters,
    slower: Sequence[float],
    load: float,
    *,
    copying: float = 0.004,
    slower_copies: float = 1.0,
    failures: float = 0.0,
    healthy_instances: int = 0,
) -> Service:
    """A model behind Triton, which has the `load` (0..1) when each of its instances is healthy.

    `healthy_instances` is how many there were, where some are gone.
    """
    rng = scene.rng
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
    """The P99 that fits such a service: a handful of batches' time."""
    return round(service.compute * times, 2)
