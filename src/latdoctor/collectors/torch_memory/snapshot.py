"""A snapshot (`torch.cuda.memory._dump_snapshot`) as what counts in it, per device. Bytes and seconds.

The pickle may hold anything in any place, and one thing a million times; so every step looks what it has, and the
blocks and entries that are walked are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode

MAX_BYTES = 16 << 20
_KEYS = ("allocated_bytes.all.current", "reserved_bytes.all.current", "num_alloc_retries")
_HOW = "json.dump(torch.cuda.memory_stats(), open(FILE, 'w')) writes one"
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class AllocatorStats:
    """The statistics of one device by their flat names (`reserved_bytes.all.current`)."""

    values: Mapping[str, float]

    def get(self, name: str) -> float | None:
        return self.values.get(name)

    @property
    def age(self) -> float:
        """Grows with every allocation: of two statistics of one process the one with more of it is the later."""
        return self.values.get("allocation.all.allocated", 0.0)


def looks_like(content: bytes) -> bool:
    """Is it JSON, by its first byte that is no blank?"""
    return content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def stats(content: bytes, where: str) -> AllocatorStats:
    """Raises SourceError for what is no JSON, or holds no statistics of the allocator."""
    try:
        known = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except UNDECODABLE as error:
        raise SourceError(f"is no readable JSON: {error}", where=where, next_step=_HOW) from error
    values: dict[str, float] = {}
    _flatten(known, "", values, _DEPTH)
    if not any(key in values for key in _KEYS):
        raise SourceError("holds no statistics of PyTorch's allocator", where=where, next_step=_HOW)
    return AllocatorStats(values)


def _flatten(value: object, prefix: str, into: dict[str, float], depth: int) -> None:
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            _flatten(inner, f"{prefix}.{key}" if prefix else str(key), into, depth - 1)
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        into[prefix] = float(value)


MAX_BLOCKS = 5_000_000
MAX_ENTRIES = 5_000_000
ALLOCATED, PENDING, INACTIVE = "active_allocated", "active_pending_free", "inactive"
# Taken from the device: a segment, or (expandable segments) pages mapped into one.
_TAKEN = ("segment_alloc", "segment_map")  # no set: what stands in a stranger's file need not be hashable
_MAX_SIZE = 1 << 60


@dataclass(slots=True)
class MemoryPool:
    """The segments of one device: what the allocator holds, has given out, and has lying in holes."""

    device: int
    segments: int = 0
    reserved: int = 0
    allocated: int = 0
    active: int = 0  # given out, or waiting for a stream before it is free again
    inactive: int = 0
    inactive_split: int = 0  # inactive parts of segments of which something is in use
    largest_hole: int = 0
    private: int = 0  # reserved in pools of CUDA graphs, which serve no other allocation


@dataclass(slots=True)
class AllocationHistory:
    """The recorded entries of one device. The later half is the steady state: caches fill early and stay filled."""

    device: int
    entries: int = 0
    allocs: int = 0
    seconds: float = 0.0
    taken: int = 0
    taken_late: int = 0
    seconds_late: float = 0.0
    oom_sizes: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """`damaged` counts what had not the form that PyTorch writes."""

    pools: tuple[MemoryPool, ...]
    histories: tuple[AllocationHistory, ...]
    expandable: bool
    damaged: int


def snapshot(value: object, where: str) -> MemorySnapshot:
    """The contents of a snapshot. Raises SourceError for a pickle of something else, or too large a one."""
    if isinstance(value, list):  # torch.cuda.memory.memory_snapshot() gives the segments alone
        value = {"segments": value}
    if not isinstance(value, dict) or not isinstance(value.get("segments"), list):
        raise SourceError(
            "holds no snapshot of PyTorch's allocator",
            where=where,
            next_step="torch.cuda.memory._dump_snapshot(FILE) writes one",
        )
    walk = _SnapshotReader(where)
    for segment in _listed(value, "segments"):
        walk.segment(segment)
    for device, entries in enumerate(_listed(value, "device_traces")):
        walk.history(device, entries)
    if not walk.pools and not walk.histories:
        raise SourceError(
            "the snapshot holds no segment and no history: that process had no memory of a GPU then",
            where=where,
            next_step="take it in the process that serves, while it serves",
        )
    return MemorySnapshot(
        tuple(walk.pools[device] for device in sorted(walk.pools)),
        tuple(walk.histories),
        walk.expandable,
        walk.damaged,
    )


def _listed(value: Mapping[object, object], key: str) -> Iterator[object]:
    found = value.get(key)
    yield from found if isinstance(found, list) else ()


def _size(value: Mapping[object, object], key: str) -> int | None:
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < _MAX_SIZE:
        return None
    return found


class _SnapshotReader:
    def __init__(self, where: str) -> None:
        self._where = where
        self._blocks = 0
        self._entries = 0
        self.pools: dict[int, MemoryPool] = {}
        self.histories: list[AllocationHistory] = []
        self.expandable = False
        self.damaged = 0

    def segment(self, segment: object) -> None:
        total = _size(segment, "total_size") if isinstance(segment, dict) else None
        if not isinstance(segment, dict) or total is None:
            self.damaged += 1
            return
        device = _size(segment, "device") or 0
        pool = self.pools.setdefault(device, MemoryPool(device))
        pool.segments += 1
        pool.reserved += total
        self.expandable = self.expandable or segment.get("is_expandable") is True
        if segment.get("segment_pool_id", (0, 0)) not in ((0, 0), [0, 0]):
            pool.private += total
        sizes = self._by_state(segment)
        used = sizes[ALLOCATED] + sizes[PENDING]
        free = sizes[INACTIVE]
        pool.allocated += sizes[ALLOCATED]
        pool.active += used
        pool.inactive += free
        pool.inactive_split += free if used else 0
        pool.largest_hole = max(pool.largest_hole, sizes["largest"])

    def _by_state(self, segment: Mapping[object, object]) -> dict[str, int]:
        sizes = {ALLOCATED: 0, PENDING: 0, INACTIVE: 0, "largest": 0}
        for block in _listed(segment, "blocks"):
            self._blocks += 1
            if self._blocks > MAX_BLOCKS:
                raise SourceError(
                    f"more than the {MAX_BLOCKS} blocks that are read at most",
                    where=self._where,
                    code=GapCode.TOO_LARGE,
                )
            state = block.get("state") if isinstance(block, dict) else None
            size = _size(block, "size") if isinstance(block, dict) else None
            # Before PyTorch 2.1 a block waiting for its stream was called active_awaiting_free.
            kind = PENDING if state == "active_awaiting_free" else state
            if size is None or kind not in (ALLOCATED, PENDING, INACTIVE):
                self.damaged += 1
                continue
            sizes[str(kind)] += size
            if kind == INACTIVE:
                sizes["largest"] = max(sizes["largest"], size)
        return sizes

    def history(self, device: int, entries: object) -> None:
        """Entries come in the order of time; those without a time are counted and have no part in rates."""
        if not isinstance(entries, list) or not entries:
            return
        found = AllocationHistory(device)
        times: list[int] = []
        taken_at: list[int] = []
        for entry in entries:
            self._entries += 1
            if self._entries > MAX_ENTRIES:
                raise SourceError(
                    f"more than the {MAX_ENTRIES} entries that are read at most",
                    where=self._where,
                    code=GapCode.TOO_LARGE,
                )
            if not isinstance(entry, dict):
                self.damaged += 1
                continue
            action, moment = entry.get("action"), _size(entry, "time_us")
            found.entries += 1
            found.allocs += action == "alloc"
            found.taken += action in _TAKEN
            if action == "oom":
                found.oom_sizes.append(_size(entry, "size") or 0)
            if moment is not None:
                times.append(moment)
                taken_at += [moment] if action in _TAKEN else []
        if times:
            first, last = min(times), max(times)
            middle = (first + last) / 2
            found.seconds, found.seconds_late = (last - first) * 1e-6, (last - middle) * 1e-6
            found.taken_late = sum(moment >= middle for moment in taken_at)
        self.histories.append(found)
