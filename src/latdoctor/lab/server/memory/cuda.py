"""Buffers from torch's CUDA caching allocator, and its own figures.

Not yet run on a GPU: the names of the figures are those of the documentation of `torch.cuda.memory_stats`. Its retries
and out-of-memory counts are those of the whole process, operators' temporaries included.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import MemoryConfig
from latdoctor.lab.server.memory.pool_interface import (
    BufferLease,
    Clock,
    FixedLease,
    MemoryPool,
    MemoryStats,
    OutOfMemory,
    Shape,
)


class CudaPool(MemoryPool):
    """Buffers on the current CUDA device. Raises UsageError where there is none."""

    backend = "cuda"

    def __init__(self, config: MemoryConfig, clock: Clock = time.monotonic) -> None:
        super().__init__(config, clock)
        if not torch.cuda.is_available():
            raise UsageError(
                "memory.backend is cuda, but torch sees no CUDA device here", next_step="use glibc or arena"
            )

    def _take(self, shape: Shape, dtype: torch.dtype, *, long: bool) -> BufferLease:
        try:
            return FixedLease(torch.empty(shape, dtype=dtype, device="cuda"))
        except torch.cuda.OutOfMemoryError as error:
            raise OutOfMemory(f"no room on the device for a buffer of shape {shape}") from error

    def _compact(self) -> None:
        torch.cuda.empty_cache()

    def close(self) -> None:
        torch.cuda.empty_cache()

    def stats(self) -> MemoryStats:
        with self._lock:
            snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            return self._stats(**from_cuda(torch.cuda.memory_stats(), largest_free(snapshot)))


def largest_free(snapshot: list[dict[str, Any]]) -> int:
    """The largest block of the caching allocator that is not in use, in bytes."""
    blocks = (block for segment in snapshot for block in segment["blocks"])
    return max((block["size"] for block in blocks if block["state"] == "inactive"), default=0)


def from_cuda(figures: Mapping[str, Any], largest: int) -> dict[str, Any]:
    """torch's own names to ours; a figure that this torch does not have is None."""
    reserved = figures.get("reserved_bytes.all.current")
    allocated = figures.get("allocated_bytes.all.current")
    inactive = figures.get("inactive_split_bytes.all.current")
    free = reserved - allocated if reserved is not None and allocated is not None else 0
    return {
        "reserved_bytes": reserved,
        "allocated_bytes": allocated,
        "inactive_split_bytes": inactive,
        "largest_free_bytes": largest,
        "fragmentation_ratio": 1 - min(1.0, largest / free) if free else 0.0,
        "inactive_ratio": inactive / reserved if inactive is not None and reserved else 0.0,
        "segments": figures.get("segment.all.current"),
        "device_alloc_total": figures.get("num_device_alloc"),
        "device_free_total": figures.get("num_device_free"),
        "alloc_total": figures.get("allocation.all.allocated"),
        "alloc_retries_total": figures.get("num_alloc_retries"),
        "alloc_oom_total": figures.get("num_ooms"),
    }
