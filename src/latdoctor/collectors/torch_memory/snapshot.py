"""A snapshot (`torch.cuda.memory._dump_snapshot`) as what counts in it, per device. Bytes and seconds.

The pickle may hold anything in any place, and one thing a million times; so every step looks what it has, and the
blocks and entries that are walked are counted.
"""

from __future__ import annotations

import math
import re
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
_MOST_DEVICES = 1024
_DEVICE = re.compile(r"\d{1,4}$")


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


def stats(content: bytes, where: str) -> Mapping[str, AllocatorStats]:
    """The statistics by device; the device is empty where they are of one that is not named.

    Several devices are a list, or an object with an entry for each (`{"cuda:0": {…}, "1": {…}}`). Raises SourceError
    for anything but JSON with statistics of the allocator.
    """
    try:
        known = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except UNDECODABLE as error:
        raise SourceError(f"is no readable JSON: {error}", where=where, next_step=_HOW) from error
    found = {device: values for device, values in _by_device(known) if any(key in values for key in _KEYS)}
    if not found:
        raise SourceError("holds no statistics of PyTorch's allocator", where=where, next_step=_HOW)
    return {device: AllocatorStats(values) for device, values in found.items()}


def _by_device(known: object) -> Iterator[tuple[str, dict[str, float]]]:
    values: dict[str, float] = {}
    _flatten(known, "", values, _DEPTH)
    if any(key in values for key in _KEYS):
        yield "", values
        return
    pairs = enumerate(known) if isinstance(known, list) else known.items() if isinstance(known, dict) else ()
    for number, (key, inner) in enumerate(pairs):
        if number == _MOST_DEVICES:
            return
        own: dict[str, float] = {}
        _flatten(inner, "", own, _DEPTH)
        named = _DEVICE.search(str(key))
        yield named[0] if named else str(number), own


def _flatten(value: object, prefix: str, into: dict[str, float], depth: int) -> None:
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            _flatten(inner, f"{prefix}.{key}" if prefix else str(key), into, depth - 1)
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        into[prefix] = float(value)


MAX_BLOCKS = 5_000_000
MAX_ENTRIES = 5_000_000
ALLOCATED, PENDING, INACTIVE = "active_allocated", "active_pending_free", "inactive"
# A segment taken from the device. Expandable segments grow by `segment_map`, which is no cudaMalloc: it neither waits
# for the device nor asks for a contiguous piece of it.
_TAKEN = "segment_alloc"
# How an entry changed what is reserved, allocated, and active (allocated or waiting for a stream).
_CHANGES: Mapping[str, tuple[int, int, int]] = {
    "segment_alloc": (1, 0, 0), "segment_map": (1, 0, 0), "segment_free": (-1, 0, 0), "segment_unmap": (-1, 0, 0),
    "alloc": (0, 1, 1), "free_requested": (0, -1, 0), "free_completed": (0, 0, -1),
}  # fmt: skip
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
class FailedAllocation:
    """An allocation that failed. `device_free` is what the driver reported as free; None where it is not recorded.

    The other sizes count from the failure to the snapshot: what was reserved, allocated and made active since then.
    """

    size: int
    device_free: int | None
    reserved_since: int = 0
    allocated_since: int = 0
    active_since: int = 0


@dataclass(slots=True)
class AllocationHistory:
    """The recorded entries of one device. The later half is the steady state: caches fill early and stay filled.

    Where an allocation failed, the allocator gave its cache back and has to fill it anew: the steady state ends there.
    """

    device: int
    entries: int = 0
    allocs: int = 0
    seconds: float = 0.0
    taken: int = 0
    taken_late: int = 0
    seconds_late: float = 0.0
    mapped: int = 0  # pieces by which expandable segments grew
    failures: list[FailedAllocation] = field(default_factory=list)


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
        """Entries are in the order of time; those without a time are counted and have no part in rates."""
        if not isinstance(entries, list) or not entries:
            return
        walk = _HistoryReader(device)
        for entry in entries:
            self._entries += 1
            if self._entries > MAX_ENTRIES:
                raise SourceError(
                    f"more than the {MAX_ENTRIES} entries that are read at most",
                    where=self._where,
                    code=GapCode.TOO_LARGE,
                )
            if isinstance(entry, dict):
                walk.entry(entry)
            else:
                self.damaged += 1
        self.histories.append(walk.finish())


_MOST_FAILURES = 10_000  # of which the state is kept; the first count


class _HistoryReader:
    """Takes the entries of one device in their order."""

    def __init__(self, device: int) -> None:
        self._found = AllocationHistory(device)
        self._times: list[int] = []
        self._taken_at: list[int] = []
        self._failed_at: int | None = None
        self._sums = [0, 0, 0]  # reserved, allocated, active since the first entry
        self._at_failures: list[tuple[int, ...]] = []

    def entry(self, entry: Mapping[object, object]) -> None:
        found = self._found
        action, moment, size = entry.get("action"), _size(entry, "time_us"), _size(entry, "size") or 0
        found.entries += 1
        found.allocs += action == "alloc"
        found.taken += action == _TAKEN
        found.mapped += action == "segment_map"
        for number, sign in enumerate(_CHANGES.get(action, ()) if isinstance(action, str) else ()):
            self._sums[number] += sign * size
        if action == "oom" and len(found.failures) < _MOST_FAILURES:
            found.failures.append(FailedAllocation(size, _size(entry, "device_free")))
            self._at_failures.append(tuple(self._sums))
            self._failed_at = moment if self._failed_at is None else self._failed_at
        if moment is not None:
            self._times.append(moment)
            self._taken_at += [moment] if action == _TAKEN else []

    def finish(self) -> AllocationHistory:
        found = self._found
        for failure, sums in zip(found.failures, self._at_failures, strict=True):
            since = [now - then for now, then in zip(self._sums, sums, strict=True)]
            failure.reserved_since, failure.allocated_since, failure.active_since = since
        if self._times:
            first, last = min(self._times), max(self._times)
            found.seconds = (last - first) * 1e-6
            last = min(last, max(first, self._failed_at)) if self._failed_at is not None else last
            middle = (first + last) / 2
            found.seconds_late = (last - middle) * 1e-6
            found.taken_late = sum(middle <= moment <= last for moment in self._taken_at)
        return found
