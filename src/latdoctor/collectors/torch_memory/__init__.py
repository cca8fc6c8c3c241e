"""Statistics and snapshots of PyTorch's CUDA allocator."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "torch_memory"
TITLE = "PyTorch's allocator"
SIGNALS = (
    "alloc.reserved", "alloc.allocated", "alloc.segments", "alloc.inactive_split_ratio", "alloc.inactive_ratio",
    "alloc.fragmentation", "alloc.largest_hole", "alloc.retries", "alloc.ooms", "alloc.retries_grown",
    "alloc.ooms_grown", "alloc.device_calls_grown", "alloc.grown_allocations", "alloc.history_span",
    "alloc.history_segments", "alloc.history_segment_rate", "alloc.history_ooms", "alloc.ooms_despite_room",
    "oom.requested", "oom.device_free", "oom.reserved_unallocated", "oom.room_ratio",
)  # fmt: skip


def _reader() -> SourceReader:
    from latdoctor.collectors.torch_memory.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset(SIGNALS),
    is_requested=lambda request: bool(request.torch_memory),
    reader=_reader,
    option="--torch-memory FILE",
    cost="reads a file",
)
