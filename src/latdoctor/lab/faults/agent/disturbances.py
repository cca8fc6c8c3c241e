"""Disturbances of the stages that every request passes on its thread."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from typing import IO, Any, TypeAlias

from latdoctor.errors import OperationError
from latdoctor.lab.faults.agent.memory import longest_request
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.live_config import LiveConfig, StaleEtag
from latdoctor.lab.server.memory.pool import MIB, OutOfMemory
from latdoctor.lab.server.request_parser import RequestContext
from latdoctor.lab.server.server import InferenceServer
from latdoctor.lab.server.stages import Call

# Gets the server and a strength, in the disturbance's own unit. Entering it raises UsageError or OperationError where
# this server cannot have it.
Disturbance: TypeAlias = Callable[[InferenceServer, float], AbstractAsyncContextManager[None]]


Knobs = Mapping[str, Mapping[str, Any]]
Turned = dict[tuple[str, str], Any]  # (group, knob) → value

_TRIES = 10  # somebody else may change the configuration between our look at it and our change


@asynccontextmanager
async def turned(tuning: LiveConfig, knobs: Knobs, held: Collection[tuple[str, str]]) -> AsyncIterator[None]:
    """`knobs` have other values meanwhile. After it those that still have them get the value from before: what somebody
    else has turned since is theirs.

    `held`: knobs that other faults have turned, which cannot be turned twice. Raises UsageError for a bad value,
    NeedsRestart for a knob that is not live, OperationError for one that is held.
    """
    twice = [f"{group}.{name}" for group, name in names(knobs) if (group, name) in held]
    if twice:
        raise OperationError(f"another fault has turned {', '.join(twice)}", next_step="end that one first")
    before, after = await _changed(tuning, lambda _: knobs)
    injected = {place: _value(after, place) for place in names(knobs) if _value(before, place) != _value(after, place)}
    yield
    # Not in a `finally`: this is not reached where the server itself ends, and then there is nothing to put back.
    await _changed(tuning, lambda now: _restoring(now, before, injected))


def names(knobs: Knobs) -> tuple[tuple[str, str], ...]:
    """Which knobs those are, as (group, knob)."""
    return tuple((group, name) for group, values in knobs.items() if isinstance(values, Mapping) for name in values)


async def _changed(tuning: LiveConfig, patch: Callable[[ServerConfig], Knobs]) -> tuple[ServerConfig, ServerConfig]:
    """Applies what `patch` makes of the configuration; the configurations before and after."""
    for _ in range(_TRIES):
        before = tuning.config
        try:
            return before, await tuning.change(patch(before), frozenset({tuning.etag}))
        except StaleEtag:
            continue
    raise OperationError("the configuration is changed all the time", next_step="try again")


def _restoring(now: ServerConfig, before: ServerConfig, injected: Turned) -> Knobs:
    patch: dict[str, dict[str, Any]] = {}
    for place, value in injected.items():
        if _value(now, place) == value:
            group, name = place
            patch.setdefault(group, {})[name] = _value(before, place)
    return patch


def _value(config: ServerConfig, place: tuple[str, str]) -> Any:
    group, name = place
    return getattr(getattr(config, group), name)


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
