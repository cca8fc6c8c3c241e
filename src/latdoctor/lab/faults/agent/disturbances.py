"""Disturbances of the event loop, the garbage collector and the request stages."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from typing import IO, TypeAlias

from latdoctor.lab.faults.agent.memory_disturbances import longest_request
from latdoctor.lab.server.inference_server import InferenceServer
from latdoctor.lab.server.memory.pool import MIB, OutOfMemory
from latdoctor.lab.server.request_context import RequestContext
from latdoctor.lab.server.stages import Call

# Gets the server and a strength, in the disturbance's own unit. Entering it raises UsageError or OperationError where
# this server cannot have it.
Disturbance: TypeAlias = Callable[[InferenceServer, float], AbstractAsyncContextManager[None]]


_EVERY = 0.25  # seconds between two blocks of the loop, or two collections


@asynccontextmanager
async def block_loop(_: InferenceServer, seconds: float) -> AsyncIterator[None]:
    """Holds the event loop for `seconds` four times a second, as a synchronous call in a handler does."""
    with _again_and_again(lambda: time.sleep(seconds)):
        yield


@asynccontextmanager
async def pause_for_garbage(_parts: InferenceServer, millions: float) -> AsyncIterator[None]:
    """Keeps so many million small cyclic objects alive and collects them all four times a second."""
    hoard: list[list[object]] = []
    for _ in range(int(millions * 1_000_000)):
        cycle: list[object] = []
        cycle.append(cycle)
        hoard.append(cycle)
    try:
        with _again_and_again(gc.collect):
            yield
    finally:
        hoard.clear()


@contextmanager
def _again_and_again(disturb: Callable[[], object]) -> Iterator[None]:
    """Calls `disturb` on the event loop four times a second meanwhile."""

    async def repeat() -> None:
        while True:
            disturb()
            await asyncio.sleep(_EVERY)

    task = asyncio.get_running_loop().create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


_MOST_LEAKED = 512 << 20  # bytes: a leak that is forgotten must not take the machine down


@asynccontextmanager
async def hold_lock(parts: InferenceServer, seconds: float) -> AsyncIterator[None]:
    """Every request holds the server's one shared lock for `seconds` while it waits for something."""

    def hold() -> None:
        with parts.shared:
            time.sleep(seconds)

    async with _before(parts, "postprocess", hold):
        yield


@asynccontextmanager
async def slow_preprocessing(parts: InferenceServer, seconds: float) -> AsyncIterator[None]:
    """Preprocessing works `seconds` longer for each request: real work, on the request's thread."""

    def work() -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            sum(range(2000))

    async with _before(parts, "preprocess", work):
        yield


@asynccontextmanager
async def sync_each_request(parts: InferenceServer, kibibytes: float) -> AsyncIterator[None]:
    """Every request writes so much to a file and waits until the disk has it."""
    block, lock = b"x" * int(kibibytes * 1024), threading.Lock()
    with tempfile.TemporaryFile() as file:

        def write() -> None:
            with lock:
                if file.closed:  # a request in progress when the disturbance ended
                    return
                file.seek(0)
                file.write(block)
                file.flush()
                os.fsync(file.fileno())

        async with _before(parts, "postprocess", write):
            yield
        await asyncio.to_thread(_close, file, lock)  # the disk may take its time with the last one


def _close(file: IO[bytes], lock: threading.Lock) -> None:
    with lock:
        file.close()


@asynccontextmanager
async def leak(parts: InferenceServer, mebibytes: float) -> AsyncIterator[None]:
    """Every request leaves so much of the pool's memory behind, up to half a gibibyte in all or what the pool has.

    It comes out of the pool in blocks larger than the longest request, so that in the end that still finds room.
    """
    import torch

    lock, left = threading.Lock(), ExitStack()
    size = max(int(mebibytes * MIB), longest_request(parts) * 9 // 8)
    rest, due = _MOST_LEAKED // size, 0.0

    def keep() -> None:
        nonlocal rest, due
        with lock, suppress(OutOfMemory):  # nothing is left to be left behind: that is what a leak ends in
            due += mebibytes * MIB / size
            if due >= 1 and rest > 0:  # none is for a request in progress when the disturbance ended
                due -= 1
                lease = parts.brain.pool.lease((size,), torch.uint8, long=True)
                left.callback(lease.release)
                rest -= 1
                with lease as tensor:
                    tensor.fill_(1)

    async with _before(parts, "session", keep):
        yield
    with lock:
        rest = 0
        left.close()


@asynccontextmanager
async def _before(parts: InferenceServer, stage: str, disturb: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `disturb` on the request's thread before each run of `stage` meanwhile."""

    def wrapper(call: Call) -> Call:
        def disturbed(exchange: RequestContext) -> bool:
            disturb()
            return call(exchange)

        return disturbed

    unwrap = parts.stages.wrap(stage, wrapper)
    try:
        yield
    finally:
        unwrap()
