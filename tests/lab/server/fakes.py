"""A model, a memory and a scheduler so small that a test says when each of them moves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import MemoryConfig, ModelSettings
from latdoctor.lab.server.inference_server import ModelBackend
from latdoctor.lab.server.intent_request import ModelInput
from latdoctor.lab.server.memory.pool_interface import MemoryPool, MemoryStats
from latdoctor.lab.server.profiler import ProfileOptions
from latdoctor.lab.server.schedulers.batch import Batch, ReleaseReason, Work
from latdoctor.lab.server.standby_model import Predictions

PATIENCE = 10.0  # seconds after which a test gives up: nothing is measured with it


class FakeModel:
    """The intent is the length of the input, modulo three. `gate` holds every forward back while it is closed."""

    def __init__(self, settings: ModelSettings | None = None, light: bool = False) -> None:
        self.settings = settings or ModelSettings()
        self.light = light
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.batches: list[list[int]] = []
        self.fails_with: BaseException | None = None
        self.made: list[FakeModel] = []
        self.warmed: list[str] = []  # by which thread
        self.built = 1

    @property
    def precision(self) -> str:
        return "fp32" if self.settings.precision == "auto" else self.settings.precision

    @property
    def checksum(self) -> str:
        return f"{self.settings.version}-{self.built}"

    def forward(self, batch: Sequence[ModelInput]) -> Predictions:
        self.batches.append([len(one) for one in batch])
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        if self.fails_with is not None:
            error, self.fails_with = self.fails_with, None
            raise error
        padded = len(batch) * max(map(len, batch))
        version = self.settings.version
        return Predictions([len(one) % 3 for one in batch], [0.5] * len(batch), padded, version=version)

    def apply(self, settings: ModelSettings) -> None:
        if settings.precision == "int8":
            raise UsageError("this machine has no int8")
        self.settings = settings

    def rebuild(self) -> None:
        self.built += 1

    def standby(self) -> FakeModel:
        self.made.append(FakeModel(self.settings, light=True))
        return self.made[-1]

    def warm_up(self) -> None:
        self.warmed.append(threading.current_thread().name)

    def until_entered(self) -> None:
        """Returns when the worker is inside a forward."""
        assert self.entered.acquire(timeout=PATIENCE)


class FakePool:
    def __init__(self) -> None:
        self.config = MemoryConfig()

    def set_live(self, config: MemoryConfig) -> None:
        if config.glibc == "returning":
            raise UsageError("this machine has another C library")
        self.config = config

    def stats(self) -> MemoryStats:
        return MemoryStats(
            "fake",
            limit_bytes=128,
            reserved_bytes=64,
            allocated_bytes=32,
            inactive_split_bytes=16,
            largest_free_bytes=8,
            fragmentation_ratio=0.5,
            inactive_ratio=0.25,
            segments=1,
            device_alloc_total=3,
            device_free_total=2,
            alloc_retries_total=1,
            alloc_oom_total=1,
            alloc_seconds_total=0.5,
        )

    def close(self) -> None:
        """Nothing is held."""


class FakeRecorder:
    """Notes on which thread it is used."""

    threads: list[str]

    def __init__(self, _: ProfileOptions) -> None:
        self.threads = []

    def start(self) -> None:
        self.threads.append(threading.current_thread().name)

    def stop(self) -> None:
        self.threads.append(threading.current_thread().name)

    def export(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode({"traceEvents": [{"name": name} for name in self.threads]}))


class Fifo:
    """First come, first served, `most` at a time."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._waiting: dict[int, Work] = {}

    def add(self, work: Work) -> None:
        self._waiting[work.id] = work

    def drop(self, ids: frozenset[int]) -> None:
        for id_ in ids:
            self._waiting.pop(id_, None)

    def take(self, now: float) -> Batch | None:
        works = tuple(self._waiting.values())[: self._most]
        self.drop(frozenset(work.id for work in works))
        return Batch(works, ReleaseReason.IDLE) if works else None

    def wake_at(self, now: float) -> float | None:
        return None

    @property
    def pending(self) -> Sequence[Work]:
        return tuple(self._waiting.values())


def fake_backend(model: FakeModel, pool: FakePool | MemoryPool | None = None) -> ModelBackend:
    return ModelBackend(
        model=model,
        pool=pool or FakePool(),  # type: ignore[arg-type]  # the part of a pool that the server itself uses
        intents=("zero", "one", "two"),
        features=4,
        backend="cpu",
        torch_threads=lambda: 1,
        recorder=FakeRecorder,
        compiles=lambda: (2, 1.5),
    )
