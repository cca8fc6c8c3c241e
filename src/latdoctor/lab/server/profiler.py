"""A torch profile of the worker. It begins and ends on its own thread: a profiler sees only the thread it starts on."""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.errors import ProfilerBusy

MAX_SECONDS = 10.0  # seconds
MAX_TRACE_BYTES = 256 << 20


class ProfileOptions(Struct, frozen=True):
    """What is recorded beside operators and kernels. Each makes the trace larger and the server slower."""

    shapes: bool = False
    memory: bool = False
    stack: bool = False


class ProfileRecorder(Protocol):
    """A profiler. `start` and `stop` run on the worker's thread, `export` anywhere."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def export(self, path: Path) -> None:
        """Writes a Chrome trace as JSON."""


class TorchRecorder:
    """torch's own profiler (Kineto), with the GPU's activities where there is one."""

    def __init__(self, depth: ProfileOptions) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities, record_shapes=depth.shapes, profile_memory=depth.memory, with_stack=depth.stack
        )

    def start(self) -> None:
        self._profile.start()

    def stop(self) -> None:
        self._profile.stop()

    def export(self, path: Path) -> None:
        self._profile.export_chrome_trace(str(path))


class Profiler:
    """Takes one profile at a time. Used on the event loop; files are written on another thread."""

    def __init__(
        self, engine: Engine, recorder: Callable[[ProfileOptions], ProfileRecorder], threads: Executor
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._threads = threads
        self._running = False

    @property
    def running(self) -> bool:
        return self._running

    async def take(self, seconds: float, depth: ProfileOptions) -> bytes:
        """A Chrome trace of the next `seconds`, gzip-compressed.

        Raises ProfilerBusy, Unavailable if the worker is lost, OperationError if the trace is too large.
        """
        if self._running:
            raise ProfilerBusy("a profile is being taken", next_step="wait until it is done")
        self._running = True
        try:
            recorder = await self._engine.on_worker(lambda: self._started(depth))
            try:
                await asyncio.sleep(seconds)
            finally:
                await self._engine.on_worker(recorder.stop)
            return await asyncio.get_running_loop().run_in_executor(self._threads, _packed, recorder)
        finally:
            self._running = False

    def _started(self, depth: ProfileOptions) -> ProfileRecorder:
        recorder = self._recorder(depth)
        recorder.start()
        return recorder


def _packed(recorder: ProfileRecorder) -> bytes:
    with tempfile.TemporaryDirectory(prefix="latdoctor-profile-") as folder:
        path = Path(folder) / "trace.json"
        recorder.export(path)
        size = path.stat().st_size
        if size > MAX_TRACE_BYTES:
            raise OperationError(f"the trace has {size} bytes", next_step="take a shorter profile, without stacks")
        return gzip.compress(path.read_bytes(), compresslevel=3)
