"""Buffers from the process allocator, and the settings that decide whether large blocks are kept or given back.

`returning` is the allocation storm on a CPU: every activation of a forward above 64 KiB becomes a mapping, its page
faults and an unmapping. `pooled` keeps everything. Both are turned live, in one process.
glibc cannot count its mappings honestly (its figures are of this moment, and a forward's blocks are gone by then), so
`device_alloc_total` is None here and the page faults per forward are the measure.
"""

from __future__ import annotations

import time
from math import prod
from typing import Literal

import torch

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import Memory
from latdoctor.lab.server.memory.blocks import rounded
from latdoctor.lab.server.memory.libc import MIB, Glibc, glibc
from latdoctor.lab.server.memory.pool import Clock, Held, Lease, MemoryStats, OutOfMemory, Pool, Shape

_LARGEST_RESERVE = 1 << 30  # bytes; mallopt takes an int


class GlibcPool(Pool):
    """Buffers from `malloc`. One for a process, whose settings it turns; built before the worker thread starts, so that
    both share one heap.
    """

    backend = "glibc"

    def __init__(self, config: Memory, clock: Clock = time.monotonic, library: Glibc | None = None) -> None:
        super().__init__(config, clock)
        self._library = library or glibc()
        self._cached: list[torch.Tensor] = []
        self._cached_bytes = 0
        self._holes: list[int] = []
        self._mode: Literal["default", "pooled", "returning"] = "default"
        if self._library is not None:
            self._library.one_heap()
        self._turn(config)

    @property
    def mode(self) -> str:
        """What is in force; `default` where the C library has no such settings."""
        return self._mode

    @property
    def kept_bytes(self) -> int:
        """Bytes of released buffers that wait for their next use."""
        return self._cached_bytes

    def set_live(self, config: Memory) -> None:
        with self._lock:
            self._turn(config)
            super().set_live(config)
            if not config.reuse_buffers:
                self._drop_cached()

    def close(self) -> None:
        with self._lock:
            self._drop_cached()
            if self._library is not None:
                self._library.free(self._holes)
                self._holes = []

    def _turn(self, config: Memory) -> None:
        mode = config.glibc
        if self._library is None:
            # Nobody is harmed by doing without the pool; a storm that does not happen would be a false experiment.
            if mode == "returning":
                raise UsageError("memory.glibc cannot be 'returning' here: the C library is not glibc")
            return
        if mode == self._mode:
            return
        self._library.free(self._holes)
        self._holes = []
        match mode:
            case "pooled":
                self._library.keep_all(min(config.pool_mib * MIB, _LARGEST_RESERVE))
            case "returning":
                self._library.return_all()
                self._holes = self._library.occupy_holes()
            case "default":
                self._library.keep_usual()
        self._mode = mode

    def _take(self, shape: Shape, dtype: torch.dtype, *, long: bool) -> Lease:
        size = prod(shape) * dtype.itemsize
        if not self._config.reuse_buffers:
            return Held(_bytes(size).view(dtype).view(shape))
        block = self._from_cache(size)
        return Held(block[:size].view(dtype).view(shape), lambda: self._to_cache(block))

    def _from_cache(self, size: int) -> torch.Tensor:
        """The smallest kept buffer that is large enough; else a new one, of a power of two so that more will fit."""
        fitting = [block for block in self._cached if block.numel() >= size]
        if not fitting:
            return _bytes(1 << (rounded(size) - 1).bit_length())
        best = min(fitting, key=torch.Tensor.numel)
        self._cached = [block for block in self._cached if block is not best]
        self._cached_bytes -= best.numel()
        return best

    def _to_cache(self, block: torch.Tensor) -> None:
        with self._lock:
            if self._config.reuse_buffers and self._cached_bytes + block.numel() <= self._config.pool_mib * MIB:
                self._cached.append(block)
                self._cached_bytes += block.numel()

    def _drop_cached(self) -> None:
        self._cached = []
        self._cached_bytes = 0

    def _compact(self) -> None:
        self._drop_cached()
        if self._library is not None:
            self._library.trim()

    def stats(self) -> MemoryStats:
        with self._lock:
            heap = self._library.info() if self._library is not None else None
            return MemoryStats(
                backend=self.backend,
                reserved_bytes=heap.reserved if heap else None,
                allocated_bytes=heap.used + heap.mapped if heap else None,
                inactive_split_bytes=heap.inactive if heap else None,
                inactive_ratio=heap.inactive / heap.reserved if heap and heap.reserved else None,
                segments=heap.mapped_blocks + 1 if heap else None,
                alloc_total=self._allocs,
                alloc_oom_total=self._ooms,
                alloc_seconds_total=self._alloc_seconds,
                page_faults_total=self._faults,
                compactions_total=self._compactions,
                compaction_seconds_total=self._compaction_seconds,
            )


def _bytes(size: int) -> torch.Tensor:
    try:
        return torch.empty(size, dtype=torch.uint8)
    except RuntimeError as error:  # what torch's CPU allocator raises when malloc has none
        raise OutOfMemory(f"no room for a buffer of {size} bytes", next_step="send smaller batches") from error
