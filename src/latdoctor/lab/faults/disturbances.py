"""Disturbances inside a server: of the event loop, the garbage collector, the request stages and the memory pool."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from typing import IO, TYPE_CHECKING, TypeAlias
from zlib import crc32

from msgspec import structs

from latdoctor.errors import OperationError
from latdoctor.lab.server.answer_cache import CachedAnswer
from latdoctor.lab.server.control.load_window import Measurement
from latdoctor.lab.server.inference_server import InferenceServer
from latdoctor.lab.server.intent_request import RequestContext
from latdoctor.lab.server.memory.pool_interface import MIB, BufferLease, MemoryPool, OutOfMemory
from latdoctor.lab.server.stages import Call

if TYPE_CHECKING:
    from latdoctor.lab.server.memory.arena import ArenaPool

# From the server and a strength in the disturbance's own unit. Entering it raises UsageError or OperationError where
# this server does not support it.
Disturbance: TypeAlias = Callable[[InferenceServer, float], AbstractAsyncContextManager[None]]
Take: TypeAlias = Callable[[MemoryPool], list[BufferLease]]

_EVERY = 0.25  # seconds between two blocks of the loop, or two collections
_MOST_LEAKED = 512 << 20  # bytes, so that a leak never takes the machine down
_MOST_HELD = 2048 * MIB  # bytes, so that it never takes the machine down
_MOST_SCATTERED = 512  # MiB of an arena that is filled completely for a moment, while other allocations wait
_HOARDED = (48 << 10, 600 << 10)  # bytes of one block
_SHORTEST = 48  # tokens that the smallest hole has room for
_SETTLING = 1.0  # seconds: longer than one batch takes
_LEAST = 4 << 10  # bytes; less than this is not worth a block


@asynccontextmanager
async def block_loop(_: InferenceServer, seconds: float) -> AsyncIterator[None]:
    """Holds the event loop for `seconds` four times a second, as a synchronous call in a handler does."""
    with _repeated(lambda: time.sleep(seconds)):
        yield


@asynccontextmanager
async def pause_for_garbage(_server: InferenceServer, millions: float) -> AsyncIterator[None]:
    """Keeps so many million small cyclic objects alive and collects them all four times a second."""
    hoard: list[list[object]] = []
    for _ in range(int(millions * 1_000_000)):
        cycle: list[object] = []
        cycle.append(cycle)
        hoard.append(cycle)
    try:
        with _repeated(gc.collect):
            yield
    finally:
        hoard.clear()


@contextmanager
def _repeated(disturb: Callable[[], object]) -> Iterator[None]:
    """Calls `disturb` on the event loop four times a second."""

    async def repeat() -> None:
        while True:
            disturb()
            await asyncio.sleep(_EVERY)

    task = asyncio.get_running_loop().create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


@asynccontextmanager
async def hold_lock(server: InferenceServer, seconds: float) -> AsyncIterator[None]:
    """Every request holds the server's one shared lock for `seconds` while it waits for something."""

    def hold() -> None:
        with server.shared:
            time.sleep(seconds)

    async with _before(server, "postprocess", hold):
        yield


@asynccontextmanager
async def slow_preprocessing(server: InferenceServer, seconds: float) -> AsyncIterator[None]:
    """Preprocessing works `seconds` longer for each request: real work, on the request's thread."""

    def work() -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            sum(range(2000))

    async with _before(server, "preprocess", work):
        yield


@asynccontextmanager
async def sync_each_request(server: InferenceServer, kibibytes: float) -> AsyncIterator[None]:
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

        async with _before(server, "postprocess", write):
            yield
        await asyncio.to_thread(_close, file, lock)  # the disk may take its time with the last one


def _close(file: IO[bytes], lock: threading.Lock) -> None:
    with lock:
        file.close()


@asynccontextmanager
async def leak(server: InferenceServer, mebibytes: float) -> AsyncIterator[None]:
    """Every request leaks so much of the pool's memory, up to half a gibibyte in all or what the pool has.

    It is taken from the pool in blocks larger than the longest request, so that at the end that still finds room.
    """
    import torch

    lock, left = threading.Lock(), ExitStack()
    size = max(int(mebibytes * MIB), longest_request(server) * 9 // 8)
    rest, due = _MOST_LEAKED // size, 0.0

    def keep() -> None:
        nonlocal rest, due
        with lock, suppress(OutOfMemory):  # the pool is full: the end of a leak
            due += mebibytes * MIB / size
            if due >= 1 and rest > 0:  # none is for a request in progress when the disturbance ended
                due -= 1
                lease = server.backend.pool.lease((size,), torch.uint8, long=True)
                left.callback(lease.release)
                rest -= 1
                with lease as tensor:
                    tensor.fill_(1)

    async with _before(server, "session", keep):
        yield
    with lock:
        rest = 0
        left.close()


@asynccontextmanager
async def _before(server: InferenceServer, stage: str, disturb: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `disturb` on the request's thread before each run of `stage`."""

    def wrapper(call: Call) -> Call:
        def disturbed(context: RequestContext) -> bool:
            disturb()
            return call(context)

        return disturbed

    unwrap = server.stages.wrap(stage, wrapper)
    try:
        yield
    finally:
        unwrap()


if TYPE_CHECKING:
    from latdoctor.lab.server.memory.arena import ArenaPool


@asynccontextmanager
async def hoard(server: InferenceServer, mebibytes: float) -> AsyncIterator[None]:
    """Holds so much memory of the pool, written to, in blocks of many sizes: less is left for batches, and compaction
    has more to move. In a smaller pool it holds everything."""
    size = min(int(mebibytes * MIB), _MOST_HELD)
    async with _holding(server, lambda pool: _hoarded(pool, size)):
        yield


@asynccontextmanager
async def fragment(server: InferenceServer, mebibytes: float) -> AsyncIterator[None]:
    """Holds so much memory of an arena, scattered: all that is free, up to its limit, is taken in blocks of many sizes,
    and every other one is released. The free memory then consists of holes that have room for any request alone and for
    no larger batch."""
    longest = longest_request(server)
    shortest = longest * _SHORTEST // server.live_config.config.queue.max_tokens_per_request
    async with _holding(server, lambda pool: _scattered(pool, int(mebibytes * MIB), (shortest, longest))):
        yield


def longest_request(server: InferenceServer) -> int:
    """Bytes of the pool that the longest request takes alone."""
    model = server.models.main
    token = model.settings.width * (2 if model.precision == "bf16" else 4)
    return token * server.live_config.config.queue.max_tokens_per_request


@asynccontextmanager
async def _holding(server: InferenceServer, take: Take) -> AsyncIterator[None]:
    """Holds what `take` returns. It waits for the pool's lock, so it runs off the event loop."""
    loop = asyncio.get_running_loop()
    held = await loop.run_in_executor(server.side_thread, take, server.backend.pool)
    yield
    # Not in a `finally`: this is not reached where the server itself ends, and then its memory ends with it.
    await loop.run_in_executor(server.side_thread, _released, held)


def _hoarded(pool: MemoryPool, size: int) -> list[BufferLease]:
    import torch

    held: list[BufferLease] = []
    most = size
    for desired in _sizes(*_HOARDED):
        block = min(desired, most, size)
        if block < _LEAST:
            break
        try:
            lease = pool.lease((block,), torch.uint8, long=True)
        except OutOfMemory:
            most = block // 2
            continue
        size -= block
        held.append(lease)
        _written(lease)
    return held


def _scattered(pool: MemoryPool, size: int, holes: tuple[int, int]) -> list[BufferLease]:
    """Holds `size` bytes between holes of the sizes in `holes`. Raises OperationError where there is no arena, or one
    that must not be filled or has not so much free."""
    from latdoctor.lab.server.memory.arena import ArenaPool

    if not isinstance(pool, ArenaPool):
        raise OperationError(
            f"only an arena has holes, not {pool.backend}", next_step="serve with memory.backend=arena"
        )
    limit = pool.config.limit_mib
    if limit > _MOST_SCATTERED:
        raise OperationError(
            f"the arena would grow up to {limit:g} MiB instead of suffering",
            next_step=f"lower memory.limit_mib to {_MOST_SCATTERED} or less; best to memory.pool_mib",
        )
    with pool.guard, ExitStack() as undo:  # other allocations wait
        free = int(limit * MIB) - (pool.stats().allocated_bytes or 0)
        if size > free * 3 // 4:
            raise OperationError(f"the arena has {free // MIB} MiB left; at most three quarters of it can be scattered")
        taken = list(_filled(pool, _alternating(holes, size / (free - size)), undo))
        undo.pop_all()
        _released(taken[::2])
    held = [*taken[1::2], *_halved(pool, holes[1])]
    for lease in held:
        _written(lease)
    return held


def _halved(pool: ArenaPool, most: int) -> Iterator[BufferLease]:
    """Leases that halve every hole above `most` bytes which shows within _SETTLING: what was being computed while the
    rest was taken leaves one that every later batch would fit into."""
    import torch

    until = time.monotonic() + _SETTLING
    while time.monotonic() < until:
        with pool.guard:
            while (largest := pool.stats().largest_free_bytes or 0) > most:
                yield pool.lease((largest - most // 2,), torch.uint8, long=True)
        time.sleep(0.01)


def _alternating(holes: tuple[int, int], ratio: float) -> Iterator[int]:
    """The size of a hole, and of the block that keeps it from the next one, `ratio` times as large."""
    for size in _sizes(*holes):
        yield size
        yield int(size * ratio) | 1


def _filled(pool: ArenaPool, sizes: Iterator[int], undo: ExitStack) -> Iterator[BufferLease]:
    """Leases, registered with `undo`, until neither a hole nor the room below the limit is worth one."""
    import torch

    for desired in sizes:
        stats = pool.stats()
        room = max(stats.largest_free_bytes or 0, int(pool.config.limit_mib * MIB) - (stats.reserved_bytes or 0))
        if room < _LEAST:
            return
        lease = pool.lease((min(desired, room),), torch.uint8, long=True)
        undo.callback(lease.release)
        yield lease


def _sizes(least: int, most: int) -> Iterator[int]:
    """Odd numbers of bytes, evenly spread over the orders of magnitude; the same each time."""
    choice = random.Random(1)  # noqa: S311 - sizes, no secret
    while True:
        yield int(least * (most / least) ** choice.random()) | 1


def _written(lease: BufferLease) -> None:
    with lease as tensor:
        tensor.fill_(1)


def _released(leases: Sequence[BufferLease]) -> None:
    for lease in leases:
        lease.release()


@asynccontextmanager
async def poison_answers(server: InferenceServer, share: float) -> AsyncIterator[None]:
    """Gives this share (0..1) of the answers in the cache another intent, four times a second."""
    intents = server.backend.intents

    def wrong(answer: CachedAnswer) -> CachedAnswer:
        place = intents.index(answer.intent) if answer.intent in intents else 0
        chosen = crc32(f"{answer.stored}".encode()) % 1000 < share * 1000
        return structs.replace(answer, intent=intents[(place + 1) % len(intents)]) if chosen else answer

    with _repeated(lambda: server.answers.rewrite(wrong)):
        yield


@asynccontextmanager
async def freeze_measurements(server: InferenceServer, _: float) -> AsyncIterator[None]:
    """The feedback controller gets the same measurement again and again, as from an exporter that hangs."""
    frozen, measure = server.control.measure(), server.control.measure
    server.control.measure = lambda: frozen
    try:
        yield
    finally:
        server.control.measure = measure


@asynccontextmanager
async def swing_measurements(server: InferenceServer, seconds: float) -> AsyncIterator[None]:
    """The feedback controller's measurements swing: for `seconds` many answers are late, then none and many refused."""
    measure, clock = server.control.measure, asyncio.get_running_loop().time

    def swung() -> Measurement:
        found = measure()
        answers = max(found.answers, 100)
        slow = int(clock() / seconds) % 2 == 0
        objective = server.live_config.config.control.slo_ms / 1000
        p99, late = (3 * objective, answers // 4) if slow else (objective / 4, 0)
        return structs.replace(found, answers=answers, late=late, p99=p99, shed=max(found.shed, answers // 10))

    server.control.measure = swung
    try:
        yield
    finally:
        server.control.measure = measure


DISTURBANCES: Mapping[str, Disturbance] = {
    "loop-block": block_loop,
    "gc-pauses": pause_for_garbage,
    "lock-convoy": hold_lock,
    "slow-preprocess": slow_preprocessing,
    "fsync": sync_each_request,
    "leak": leak,
    "fragment": fragment,
    "hoard": hoard,
    "poison-answers": poison_answers,
    "control-blind": freeze_measurements,
    "control-swings": swing_measurements,
}
