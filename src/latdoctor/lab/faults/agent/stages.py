"""Disturbances of the stages that every request passes on its thread."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import IO

from latdoctor.lab.faults.agent.memory import longest_request
from latdoctor.lab.server.exchange import Exchange
from latdoctor.lab.server.memory.pool import MIB, OutOfMemory
from latdoctor.lab.server.parts import Parts
from latdoctor.lab.server.stages import Call

_MOST_LEAKED = 512 << 20  # bytes: a leak that is forgotten must not take the machine down


@asynccontextmanager
async def hold_lock(parts: Parts, seconds: float) -> AsyncIterator[None]:
    """Every request holds the server's one shared lock for `seconds` while it waits for something."""

    def hold() -> None:
        with parts.shared:
            time.sleep(seconds)

    async with _before(parts, "postprocess", hold):
        yield


@asynccontextmanager
async def slow_preprocessing(parts: Parts, seconds: float) -> AsyncIterator[None]:
    """Preprocessing works `seconds` longer for each request: real work, on the request's thread."""

    def work() -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            sum(range(2000))

    async with _before(parts, "preprocess", work):
        yield


@asynccontextmanager
async def sync_each_request(parts: Parts, kibibytes: float) -> AsyncIterator[None]:
    """Every request writes so much to a file and waits until the disk has it."""
    block, lock = b"x" * int(kibibytes * 1024), threading.Lock()
    with tempfile.TemporaryFile() as file:

        def write() -> None:
            with lock:
                if file.closed:  # a request that was under way when the disturbance ended
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
async def leak(parts: Parts, mebibytes: float) -> AsyncIterator[None]:
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
            if due >= 1 and rest > 0:  # none is for a request that was under way when the disturbance ended
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
async def _before(parts: Parts, stage: str, disturb: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `disturb` on the request's thread before each run of `stage` meanwhile."""

    def wrapper(call: Call) -> Call:
        def disturbed(exchange: Exchange) -> bool:
            disturb()
            return call(exchange)

        return disturbed

    unwrap = parts.stages.wrap(stage, wrapper)
    try:
        yield
    finally:
        unwrap()
