"""A model that sleeps for as long as a batch would take, so that many replicas fit on few processors.

It computes nothing unless asked to: queue, batching, limits, metrics and shutdown are those of the reference server,
the forward pass is a pause that grows with the padded tokens of the batch, and intents are derived from the length of
the input. With a model registry its versions differ in speed and in their share of wrong and failed answers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from latdoctor.errors import OperationError, UsageError
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
from latdoctor.lab.server.versions.model_registry import ModelRefused, RefusalCode
from latdoctor.lab.server.versions.model_weights import VerifiedWeights, load_weights

if TYPE_CHECKING:
    import torch

ARCHITECTURE = "sleeping"
_TENSOR = "slower, wrong, failing"
INTENTS = ("order-status", "cancel-order", "delivery-late")
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


class SleepingVersion(Struct, frozen=True):
    """How a registered version differs: times as slow, and the shares of requests answered wrongly and of batches that
    fail. Its file has these three numbers in place of weights.
    """

    slower: float = 1.0
    wrong: float = 0.0
    failing: float = 0.0

    def file(self) -> bytes:
        """The safetensors file of this version."""
        import numpy as np
        from safetensors.numpy import save

        return bytes(save({_TENSOR: np.array([self.slower, self.wrong, self.failing], dtype=np.float64)}))


def _loaded(weights: VerifiedWeights) -> SleepingVersion:
    """Raises ModelRefused."""
    from safetensors import SafetensorError, safe_open

    version = weights.manifest.version
    if weights.manifest.architecture != ARCHITECTURE:
        detail = f"the weights of version {version} are not of a sleeping model"
        raise ModelRefused(RefusalCode.WRONG_TENSORS, detail)
    try:
        with safe_open(weights.path, framework="np") as opened:
            numbers = opened.get_tensor(_TENSOR).tolist()
            return msgspec.convert(dict(zip(("slower", "wrong", "failing"), numbers, strict=True)), SleepingVersion)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        detail = f"the weights of version {version} are no safetensors file: {str(error)[:200]}"
        raise ModelRefused(RefusalCode.WRONG_FORMAT, detail) from error


class _Loaded(Struct, frozen=True):
    """A version in use; replaced as a whole, so that a forward sees only one."""

    settings: ModelSettings
    version: SleepingVersion
    checksum: str


def _prepared(settings: ModelSettings) -> _Loaded:
    """Raises ModelRefused for a version that the registry cannot give."""
    if not settings.registry:
        return _Loaded(settings, SleepingVersion(), f"sleeping-{settings.version}")
    weights = load_weights(Path(settings.registry), settings.version, settings.weights)
    return _Loaded(settings, _loaded(weights), weights.manifest.sha256[:16])


def _keep_busy(seconds: float) -> None:
    """Uses so much processor time, however long that takes."""
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


class SleepingModel:
    """The reference server's model, replaced by pauses."""

    precision = "fp32"

    def __init__(self, settings: ModelSettings, times: SleepTimes) -> None:
        """Raises ModelRefused."""
        self._now, self._times = _prepared(settings), times
        self._memory = b""
        self._random = random.Random(settings.version)  # noqa: S311 - which answers are wrong

    @property
    def settings(self) -> ModelSettings:
        return self._now.settings

    @property
    def checksum(self) -> str:
        return self._now.checksum

    def forward(self, batch: Sequence[ModelInput]) -> Predictions:
        now = self._now
        lengths = [len(one) for one in batch]
        padded = len(batch) * max(lengths)
        seconds = self._times.forward(padded) * now.version.slower
        _keep_busy(seconds * self._times.busy)
        time.sleep(seconds * (1 - self._times.busy))
        if self._random.random() < now.version.failing:
            raise OperationError(f"version {now.settings.version} failed to compute a batch")
        wrong = [self._random.random() < now.version.wrong for _ in batch]
        intents = [(length + off) % len(INTENTS) for length, off in zip(lengths, wrong, strict=True)]
        return Predictions(intents, [0.5] * len(batch), padded, now.checksum, now.settings.version)

    def apply(self, settings: ModelSettings) -> None:
        self._now = _prepared(settings)

    def rebuild(self) -> None:
        self._now = _prepared(self.settings)

    def standby(self) -> SleepingModel:
        half = msgspec.structs.replace(self._times, slower=self._times.slower / 2, load=0.0, memory_mib=0)
        return SleepingModel(msgspec.structs.replace(self.settings, registry=""), half)

    def warm_up(self) -> None:
        """Loads: takes its memory, then its time."""
        self._memory = b"\1" * (self._times.memory_mib * _MIB)
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
        intents=INTENTS,
        features=_FEATURES,
        backend="cpu",
        torch_threads=lambda: 0,
        recorder=_NoRecorder,
        compiles=lambda: (0, 0.0),
    )
