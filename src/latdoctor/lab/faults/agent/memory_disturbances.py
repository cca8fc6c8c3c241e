"""Disturbances of the memory pool: hoarding and fragmentation."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from latdoctor.errors import OperationError
from latdoctor.lab.server.inference_server import InferenceServer
from latdoctor.lab.server.memory.pool import MIB, BufferLease, MemoryPool, OutOfMemory

if TYPE_CHECKING:
    from latdoctor.lab.server.memory.arena import ArenaPool

_MOST_HELD = 2048 * MIB  # a hoard must not take the machine down
_MOST_SCATTERED = 512  # MiB of an arena that is filled completely for a moment, while other allocations wait
_HOARDED = (48 << 10, 600 << 10)  # bytes of one block
_SHORTEST = 48  # tokens that the smallest hole has room for
_SETTLING = 1.0  # seconds: longer than one batch takes
_LEAST = 4 << 10  # bytes; less than this is not worth a block

Take: TypeAlias = Callable[[MemoryPool], list[BufferLease]]


@asynccontextmanager
async def hoard(parts: InferenceServer, mebibytes: float) -> AsyncIterator[None]:
    """Holds so much memory of the pool, written to, in blocks of many sizes: less is left for batches, and compaction
    has more to move. Of a pool that has less it holds all."""
    size = min(int(mebibytes * MIB), _MOST_HELD)
    async with _holding(parts, lambda pool: _hoarded(pool, size)):
        yield


@asynccontextmanager
async def fragment(parts: InferenceServer, mebibytes: float) -> AsyncIterator[None]:
    """Holds so much memory of an arena, scattered: all that is free, up to its limit, is taken in blocks of many sizes,
    and every other one is given back. What is free then lies in holes that have room for any request alone and for
    no larger batch."""
    longest = longest_request(parts)
    shortest = longest * _SHORTEST // parts.live_config.config.queue.max_tokens_per_request
    async with _holding(parts, lambda pool: _scattered(pool, int(mebibytes * MIB), (shortest, longest))):
        yield


def longest_request(parts: InferenceServer) -> int:
    """Bytes of the pool that the longest request takes alone."""
    model = parts.models.main
    token = model.settings.width * (2 if model.precision == "bf16" else 4)
    return token * parts.live_config.config.queue.max_tokens_per_request


@asynccontextmanager
async def _holding(parts: InferenceServer, take: Take) -> AsyncIterator[None]:
    """What `take` gives is held meanwhile. It waits for the pool's lock, so it runs off the event loop."""
    loop = asyncio.get_running_loop()
    held = await loop.run_in_executor(parts.side_thread, take, parts.brain.pool)
    yield
    # Not in a `finally`: this is not reached where the server itself ends, and then its memory ends with it.
    await loop.run_in_executor(parts.side_thread, _released, held)


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
    """Leases, of which `undo` knows, until neither a hole nor the room below the limit is worth one."""
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
