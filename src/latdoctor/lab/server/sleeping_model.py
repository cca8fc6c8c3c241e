"""A model that sleeps for as long as a batch would take, so that many replicas fit on few processors.

It computes nothing unless asked to: queue, batching, limits, metrics and shutdown are those of the reference server,
the forward pass is a pause that grows with the padded tokens of the batch, and intents are derived from the length of
the input.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import MemoryConfig, ModelSettings, ServerConfig
from latdoctor.lab.server.inference_server import ModelBackend
from latdoctor.lab.server.intent_request import ModelInput
from latdoctor.lab.server.memory.pool_interface import (
    BufferLease,
    MemoryPool,
    MemoryStats,
    OutOfMemory,
    Shape,
)
from latdoctor.lab.server.profiler import ProfileOptions
from latdoctor.lab.server.standby_model import Predictions

if TYPE_CHECKING:
    import torch

_INTENTS = ("order-status", "cancel-order", "delivery-late")
_FEATURES = 80  # of one frame of audio, as the real model takes them
_MIB = 1 << 20


class SleepTimes(Struct, frozen=True):
    """Seconds of a forward pass for the batch itself and for each padded token, and of loading the model.

    `slower` multiplies the first two: a version that computes slower. `memory_mib` is what the model occupies. `busy`:
    the share of a forward pass in which a processor is busy instead.
    """

    batch: float = 0.004
    token: float = 0.0001
    load: float = 0.0
    slower: float = 1.0
    memory_mib: int = 0
    busy: float = 0.0

    def forward(self, padded_tokens: int) -> float:
        return (self.batch + self.token * padded_tokens) * self.slower


def _keep_busy(seconds: float) -> None:
    """Uses so much processor time, however long that takes."""
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


class SleepingModel:
    """The reference server's model, replaced by pauses."""

    precision = "fp32"

    def __init__(self, settings: ModelSettings, times: SleepTimes) -> None:
        self.settings, self._times = settings, times
        self._weights = b""

    @property
    def checksum(self) -> str:
        return f"sleeping-{self.settings.version}"

    def forward(self, batch: Sequence[ModelInput]) -> Predictions:
        lengths = [len(one) for one in batch]
        padded = len(batch) * max(lengths)
        seconds = self._times.forward(padded)
        _keep_busy(seconds * self._times.busy)
        time.sleep(seconds * (1 - self._times.busy))
        return Predictions([length % len(_INTENTS) for length in lengths], [0.5] * len(batch), padded, self.checksum)

    def apply(self, settings: ModelSettings) -> None:
        self.settings = settings

    def rebuild(self) -> None:
        """Nothing was built."""

    def standby(self) -> SleepingModel:
        half = msgspec.structs.replace(self._times, slower=self._times.slower / 2, load=0.0, memory_mib=0)
        return SleepingModel(self.settings, half)

    def warm_up(self) -> None:
        """Loads: takes its memory, then its time."""
        self._weights = b"\1" * (self._times.memory_mib * _MIB)
        time.sleep(self._times.load)


class EmptyPool(MemoryPool):
    """A pool of a server that needs no buffers."""

    backend = "none"

    def _take(self, shape: Shape, dtype: torch.dtype, *, long: bool) -> BufferLease:
        raise OutOfMemory(f"a sleeping model has no buffers; one of shape {shape} was requested")

    def _compact(self) -> None:
        """Nothing is in use."""

    def stats(self) -> MemoryStats:
        return MemoryStats(self.backend)

    def close(self) -> None:
        """Nothing is held."""


class _NoRecorder:
    """There is nothing to profile."""

    def __init__(self, _: ProfileOptions) -> None:
        raise UsageError("a sleeping model computes nothing that could be profiled")

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def export(self, path: Path) -> None: ...


def sleeping_backend(config: ServerConfig, times: SleepTimes) -> ModelBackend:
    """The model and its runtime, without torch."""
    return ModelBackend(
        model=SleepingModel(config.model, times),
        pool=EmptyPool(MemoryConfig()),
        intents=_INTENTS,
        features=_FEATURES,
        backend="cpu",
        torch_threads=lambda: 0,
        recorder=_NoRecorder,
        compiles=lambda: (0, 0.0),
    )
