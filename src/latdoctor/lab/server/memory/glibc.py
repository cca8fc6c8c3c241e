"""Buffers from the process allocator, and the settings that decide whether large blocks are kept or returned.

`returning` is the allocation storm on a CPU: every activation of a forward above 64 KiB becomes a mapping, its page
faults and an unmapping. `pooled` keeps everything. Both can be changed live, in one process.
glibc cannot count its mappings honestly (its figures are of this moment, and a forward's blocks are gone by then), so
`device_alloc_total` is None here and the page faults per forward are the measure.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import time
from math import prod
from typing import Literal

import torch
from msgspec import Struct

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server.config import MemoryConfig
from latdoctor.lab.server.memory.blocks import rounded
from latdoctor.lab.server.memory.pool_interface import (
    BufferLease,
    Clock,
    FixedLease,
    MemoryPool,
    MemoryStats,
    OutOfMemory,
    Shape,
)

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -2, -3, -4, -8
KIB, MIB = 1 << 10, 1 << 20

# Size of a large block: above it `returning` uses the kernel for each allocation.
LARGE = 64 * KIB


class HeapInfo(Struct, frozen=True):
    """Bytes of the heap: got from the kernel, in use, free, free at its top; and what is mapped block by block."""

    heap: int
    used: int
    free: int
    top: int
    mapped: int
    mapped_blocks: int

    @property
    def reserved(self) -> int:
        return self.heap + self.mapped

    @property
    def inactive(self) -> int:
        """Free, but between blocks in use."""
        return max(0, self.free - self.top)


class _MallInfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


class Glibc:
    """The process's own C library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.malloc.restype = ctypes.c_void_p
        library.malloc.argtypes = (ctypes.c_size_t,)
        library.free.argtypes = (ctypes.c_void_p,)
        library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._has_info = hasattr(library, "mallinfo2")  # glibc 2.33 and later
        if self._has_info:
            library.mallinfo2.restype = _MallInfo2

    def one_heap(self) -> None:
        """Threads started from now on share the main heap, so that one setting governs all of them."""
        self._set(_ARENA_MAX, 1)

    def keep_all(self, reserve: int) -> None:
        """Large blocks too come from the heap, which never shrinks, and has `reserve` bytes more from now on.

        They are touched here, so that no forward pays for their first use. Without memory for it there is no reserve.
        """
        self._set(_MMAP_MAX, 0)
        self._set(_TRIM_THRESHOLD, 2**31 - 1)
        self._set(_TOP_PAD, reserve)
        address = self._library.malloc(reserve)
        if address:
            ctypes.memset(address, 0, reserve)
            self._library.free(address)

    def keep_usual(self) -> None:
        """What the library's own adaptation ends at (M_MMAP_THRESHOLD in mallopt(3)); once set it adapts no more."""
        self._set(_MMAP_MAX, 65536)
        self._set(_MMAP_THRESHOLD, 32 * MIB)
        self._set(_TRIM_THRESHOLD, 64 * MIB)
        self._set(_TOP_PAD, 128 * KIB)

    def return_all(self) -> None:
        """Every large block is mapped for itself and unmapped when freed; the heap's free top is returned."""
        self._set(_MMAP_MAX, 65536)
        self._set(_MMAP_THRESHOLD, LARGE)
        self._set(_TRIM_THRESHOLD, LARGE)
        self._set(_TOP_PAD, 0)
        self.trim()

    def trim(self) -> None:
        """Gives the kernel every free page back."""
        self._library.malloc_trim(0)

    def info(self) -> HeapInfo | None:
        """The heap now; None before glibc 2.33."""
        if not self._has_info:
            return None
        found = self._library.mallinfo2()
        return HeapInfo(
            heap=found.arena,
            used=found.uordblks,
            free=found.fordblks,
            top=found.keepcost,
            mapped=found.hblkhd,
            mapped_blocks=found.hblks,
        )

    def occupy_holes(self) -> list[int]:
        """Allocates the heap's large free holes and returns their pages; the addresses, for `free`.

        A hole left by an earlier setting would still serve large blocks: `malloc` uses it before it maps.
        Call it after `return_all`: a block that had to be mapped is the sign that no hole of that size is left.
        A heap in use for long has thousands of them, so none may cost a walk through the heap, as `info` does.
        """
        held: list[int] = []
        size = 256 * MIB
        while size >= LARGE:
            address = self._library.malloc(size)
            if not address or _is_mapped(address):
                self._library.free(address)
                size //= 2
                continue
            start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
            self._library.madvise(start, end - start, mmap.MADV_DONTNEED)
            held.append(address)
        return held

    def free(self, addresses: list[int]) -> None:
        for address in addresses:
            self._library.free(address)

    def _set(self, option: int, value: int) -> None:
        if not self._library.mallopt(option, value):
            raise OperationError(f"the C library refused mallopt({option}, {value})")


def _is_mapped(address: int) -> bool:
    """Whether a block is a mapping of its own: bit IS_MMAPPED of the size field before it (malloc.c of glibc)."""
    return bool(ctypes.c_size_t.from_address(address - ctypes.sizeof(ctypes.c_size_t)).value & 2)


@functools.cache
def glibc() -> Glibc | None:
    """The C library if it is glibc, else None."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return None
    return Glibc(library)


_LARGEST_RESERVE = 1 << 30  # bytes; mallopt takes an int


class GlibcPool(MemoryPool):
    """Buffers from `malloc`. One in a process, whose settings it changes; built before the worker thread starts, so
    that both share one heap.
    """

    backend = "glibc"

    def __init__(self, config: MemoryConfig, clock: Clock = time.monotonic, library: Glibc | None = None) -> None:
        super().__init__(config, clock)
        self._library = library or glibc()
        self._cached: list[torch.Tensor] = []
        self.cached_bytes = 0
        self._holes: list[int] = []
        self.mode: Literal["default", "pooled", "returning"] = "default"  # also where the C library has no modes
        if self._library is not None:
            self._library.one_heap()
        self._turn(config)

    def set_live(self, config: MemoryConfig) -> None:
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

    def _turn(self, config: MemoryConfig) -> None:
        mode = config.glibc
        if self._library is None:
            # A missing pool is harmless; a missing storm would falsify the experiment.
            if mode == "returning":
                raise UsageError("memory.glibc cannot be 'returning' here: the C library is not glibc")
            return
        if mode == self.mode:
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
        self.mode = mode

    def _take(self, shape: Shape, dtype: torch.dtype, *, long: bool) -> BufferLease:
        size = prod(shape) * dtype.itemsize
        if not self._config.reuse_buffers:
            return FixedLease(_bytes(size).view(dtype).view(shape))
        block = self._from_cache(size)
        return FixedLease(block[:size].view(dtype).view(shape), lambda: self._to_cache(block))

    def _from_cache(self, size: int) -> torch.Tensor:
        """The smallest kept buffer that is large enough; else a new one, of a power of two so that more will fit."""
        fitting = [block for block in self._cached if block.numel() >= size]
        if not fitting:
            return _bytes(1 << (rounded(size) - 1).bit_length())
        best = min(fitting, key=torch.Tensor.numel)
        self._cached = [block for block in self._cached if block is not best]
        self.cached_bytes -= best.numel()
        return best

    def _to_cache(self, block: torch.Tensor) -> None:
        with self._lock:
            if self._config.reuse_buffers and self.cached_bytes + block.numel() <= self._config.pool_mib * MIB:
                self._cached.append(block)
                self.cached_bytes += block.numel()

    def _drop_cached(self) -> None:
        self._cached = []
        self.cached_bytes = 0

    def _compact(self) -> None:
        self._drop_cached()
        if self._library is not None:
            self._library.trim()

    def stats(self) -> MemoryStats:
        with self._lock:
            heap = self._library.info() if self._library is not None else None
            if heap is None:
                return self._stats()
            return self._stats(
                reserved_bytes=heap.reserved,
                allocated_bytes=heap.used + heap.mapped,
                inactive_split_bytes=heap.inactive,
                inactive_ratio=heap.inactive / heap.reserved if heap.reserved else None,
                segments=heap.mapped_blocks + 1,
            )


def _bytes(size: int) -> torch.Tensor:
    try:
        return torch.empty(size, dtype=torch.uint8)
    except RuntimeError as error:  # what torch's CPU allocator raises when malloc has none
        raise OutOfMemory(f"no room for a buffer of {size} bytes", next_step="send smaller batches") from error
