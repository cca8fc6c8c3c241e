"""Disturbances of the whole process: its event loop and its garbage collector."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from latdoctor.lab.server.parts import Parts

_EVERY = 0.25  # seconds between two blocks of the loop, or two collections


@asynccontextmanager
async def block_loop(_: Parts, seconds: float) -> AsyncIterator[None]:
    """Holds the event loop for `seconds` four times a second, as a synchronous call in a handler does."""
    with _again_and_again(lambda: time.sleep(seconds)):
        yield


@asynccontextmanager
async def pause_for_garbage(_parts: Parts, millions: float) -> AsyncIterator[None]:
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
