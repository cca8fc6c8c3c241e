"""An allocator over real memory segments, like CUDA's caching allocator, on a machine without a GPU.

A pool is reserved (and touched) at the start as one segment, with a share kept for long inputs; what does not fit there
goes into further segments of `segment_mib`, up to `limit_mib`. At the limit, empty segments are
released and the request is tried once more, as CUDA's allocator does, with a smaller segment if need be. Compaction
copies everything that is held into other segments; its cost grows with what is in use, and allocations wait for it.
The old segments are released, or, with periodic compaction, kept as the target of the next one (two
spaces, as in C. J. Cheney, A Nonrecursive List Compacting Algorithm, 1970).
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Sequence
from math import prod

import torch

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import MemoryConfig
from latdoctor.lab.server.memory.blocks import Block, Segment, SegmentLayout, rounded
from latdoctor.lab.server.memory.pool_interface import (
    MIB,
    BufferLease,
    Clock,
    MemoryPool,
    MemoryStats,
    OutOfMemory,
    Shape,
)


class ArenaLease:
    """A buffer of the arena; between uses a compaction may move it."""

    def __init__(self, pool: ArenaPool, block: Block, shape: Shape, dtype: torch.dtype) -> None:
        self._pool = pool
        self._shape = shape
        self._dtype = dtype
        self.block: Block | None = block
        self.uses = 0

    @property
    def tensor(self) -> torch.Tensor:
        if self.block is None:
            raise ValueError("the buffer was released")
        size = prod(self._shape) * self._dtype.itemsize
        return self._pool.bytes_of(self.block, size).view(self._dtype).view(self._shape)

    def release(self) -> None:
        self._pool.give_back(self)

    def __enter__(self) -> torch.Tensor:
        with self._pool.guard:
            tensor = self.tensor
            self.uses += 1
            return tensor

    def __exit__(self, *raised: object) -> None:
        with self._pool.guard:
            self.uses -= 1


class ArenaPool(MemoryPool):
    """Buffers cut from real `mmap` segments."""

    backend = "arena"

    def __init__(self, config: MemoryConfig, clock: Clock = time.monotonic) -> None:
        super().__init__(config, clock)
        if config.pool_mib > config.limit_mib:
            raise UsageError(
                f"the pool ({config.pool_mib} MiB) is larger than the arena may become ({config.limit_mib:g} MiB)",
                next_step="raise memory.limit_mib or lower memory.pool_mib",
            )
        self.guard = self._lock
        self._layout = SegmentLayout()
        self._memory: dict[int, torch.Tensor] = {}
        self._leases: dict[Block, ArenaLease] = {}
        self._maps = 0
        self._unmaps = 0
        self._retries = 0
        self._pool_segment: Segment | None = None
        self._pools: set[int] = set()  # ids of segments that are, or were before a compaction, the pool
        self._reserve()

    def _take(self, shape: Shape, dtype: torch.dtype, *, long: bool) -> BufferLease:
        size = rounded(prod(shape) * dtype.itemsize)
        block = self._layout.take(size, long=long) if self._config.reuse_buffers else None
        if block is None and self._config.reuse_buffers and self._bring_back_pool():
            block = self._layout.take(size, long=long)
        if block is None:
            block = self._layout.take_from(self._grown(size), size)
        lease = ArenaLease(self, block, shape, dtype)
        self._leases[block] = lease
        return lease

    def give_back(self, lease: ArenaLease) -> None:
        """Frees the block of `lease`. Raises ValueError if that was done before, or while it is in use."""
        with self._lock:
            if lease.block is None or lease.uses:
                raise ValueError("the buffer was released before" if lease.block is None else "the buffer is in use")
            segment = lease.block.segment
            del self._leases[lease.block]
            self._layout.give(lease.block)
            lease.block = None
            if self._is_too_much(segment) and segment.empty:
                self._unmap(segment)
            self._freed.notify_all()

    def _is_too_much(self, segment: Segment) -> bool:
        """Whether `segment` is released as soon as it is empty."""
        if not self._config.reuse_buffers and segment is not self._pool_segment:
            return True
        return self._layout.reserved > self._config.limit_mib * MIB

    def bytes_of(self, block: Block, size: int) -> torch.Tensor:
        return self._memory[block.segment.id].narrow(0, block.offset, size)

    def set_live(self, config: MemoryConfig) -> None:
        with self._lock:
            raised = config.limit_mib > self._config.limit_mib
            super().set_live(config)
            self._shed_spares()
            if self._layout.reserved > config.limit_mib * MIB:
                self._trim()
            elif raised:
                self._bring_back_pool()
            self._freed.notify_all()

    def close(self) -> None:
        with self._lock:
            self._trim()

    def stats(self) -> MemoryStats:
        with self._lock:
            layout = self._layout
            free = layout.free_bytes
            return self._stats(
                limit_bytes=int(self._config.limit_mib * MIB),
                reserved_bytes=layout.reserved,
                allocated_bytes=layout.allocated,
                inactive_split_bytes=layout.inactive_split,
                largest_free_bytes=layout.largest_free,
                fragmentation_ratio=1 - layout.largest_free / free if free else 0.0,
                inactive_ratio=layout.inactive_split / layout.reserved if layout.reserved else 0.0,
                segments=len(layout.segments),
                device_alloc_total=self._maps,
                device_free_total=self._unmaps,
                alloc_retries_total=self._retries,
            )

    def _compact(self) -> None:
        in_use = {block.segment.id for block, lease in self._leases.items() if lease.uses}
        old = [segment for segment in self._layout.segments if not segment.shut and segment.id not in in_use]
        kept = self._spares()
        for segment in kept:
            self._layout.open(segment)
        for segment in old:
            self._layout.shut(segment)
        try:
            self._renew_pool(old, kept)
            self._move([block for block in self._layout.used() if block.segment in old])
        finally:
            for segment in kept:
                if segment.empty and segment is not self._pool_segment:
                    self._unmap(segment)
            for segment in old:
                if not segment.empty:  # memory ran out on the way: what could not move stays where it is
                    self._layout.open(segment)
            self._shed_spares()

    def _renew_pool(self, old: Sequence[Segment], kept: Sequence[Segment]) -> None:
        """Another pool in place of the old one: the one before it, where that was kept."""
        if self._pool_segment not in old:
            return
        before = [segment for segment in kept if segment.id in self._pools]
        if before:
            self._pool_segment = before[0]
        elif self._config.pool_mib <= self._config.limit_mib:  # else the limit was lowered since
            self._reserve()

    def _spares(self) -> list[Segment]:
        return [segment for segment in self._layout.segments if segment.shut]

    def _shed_spares(self) -> None:
        """Keeps of the empty segments that were copied from what the next time needs, and what the limit allows."""
        room = 0
        if self._config.compaction_ms:
            room = sum(segment.size for segment in self._layout.segments if not segment.shut)
        for segment in self._spares():
            if segment.size <= room and self._has_room(0):
                room -= segment.size
            else:
                self._unmap(segment)

    def _move(self, blocks: Sequence[Block]) -> None:
        """Copies into open segments, large ones first, so that the small ones fill the holes."""
        left = sum(block.size for block in blocks)
        for block in sorted(blocks, key=lambda block: -block.size):
            # Few large segments rather than many: each costs a call of the kernel.
            most = min(left, self._config.pool_mib * MIB)
            left -= block.size
            to = self._layout.take(block.size, long=block.long)
            if to is None:
                try:
                    # The old and the new are both held for a moment, so the limit does not count here.
                    to = self._layout.take_from(self._map(self._segment_size(max(block.size, most))), block.size)
                except OSError:
                    return
            self.bytes_of(to, block.size).copy_(self.bytes_of(block, block.size))
            lease = self._leases[to] = self._leases.pop(block)
            lease.block = to
            self._layout.give(block)

    def _reserve(self) -> None:
        """The pool, touched page by page so that no request pays for its first use. Raises OutOfMemory."""
        size = self._config.pool_mib * MIB
        try:
            self._pool_segment = self._map(size, rounded(int(size * self._config.long_share)))
            self._pools.add(self._pool_segment.id)
        except OSError as error:
            raise OutOfMemory(f"the pool of {self._config.pool_mib} MiB cannot be had: {error.strerror}") from error
        self._memory[self._pool_segment.id][:: mmap.PAGESIZE].zero_()

    def _bring_back_pool(self) -> bool:
        """Reserves the pool again after a lower limit had taken it away, once there is room beside what is in use."""
        used = sum(segment.size for segment in self._layout.segments if not segment.empty)
        if self._pool_segment is not None or used + self._config.pool_mib * MIB > self._config.limit_mib * MIB:
            return False
        self._trim()
        self._reserve()
        return True

    def _grown(self, size: int) -> Segment:
        """A new segment for `size` bytes; at the limit, after giving back what is free. Raises OutOfMemory."""
        desired, least = self._segment_size(size), rounded(size, mmap.PAGESIZE)
        for again, segment_size in ((False, desired), (True, desired), (True, least)):
            if self._has_room(segment_size):
                try:
                    return self._map(segment_size)
                except OSError:
                    pass  # the kernel has none: the same as our own limit
            if not again:
                self._retries += 1
                self._trim()
        raise OutOfMemory(
            f"no room for a buffer of {size} bytes: {self._layout.allocated} are in use, "
            f"{self._layout.reserved} reserved, {self._config.limit_mib:g} MiB allowed",
            next_step="raise memory.limit_mib, or send smaller batches",
        )

    def _has_room(self, size: int) -> bool:
        return self._layout.reserved + size <= self._config.limit_mib * MIB

    def _segment_size(self, size: int) -> int:
        if not self._config.reuse_buffers:
            return rounded(size, mmap.PAGESIZE)
        return rounded(size, self._config.segment_mib * MIB)

    def _trim(self) -> None:
        for segment in self._layout.segments:
            if segment.empty:
                self._unmap(segment)

    def _map(self, size: int, long_bytes: int = 0) -> Segment:
        """A segment of real memory, pages untouched. Raises OSError."""
        with torch.inference_mode(False):  # a segment that grew in a forward is written to outside of it as well
            memory = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)
        segment = self._layout.add(size, long_bytes)
        self._memory[segment.id] = memory
        self._maps += 1
        return segment

    def _unmap(self, segment: Segment) -> None:
        """Drops a segment; the kernel gets it back as soon as no tensor uses it."""
        self._layout.remove(segment)
        del self._memory[segment.id]
        self._pools.discard(segment.id)
        if segment is self._pool_segment:
            self._pool_segment = None
        self._unmaps += 1
