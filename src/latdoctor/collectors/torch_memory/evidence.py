"""What statistics and snapshots of an allocator show, as evidence. One subject for each device of a process.

Reserved minus allocated is no evidence of anything: a cache holds what it may need. Trouble is free memory in holes
that fit nothing (inactive parts of split segments, a largest hole that is small against all that is free) with
allocations that had to be retried, or that failed for less than what lay free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from latdoctor.collectors.torch_memory import NAME
from latdoctor.collectors.torch_memory.snapshot import (
    AllocationHistory,
    AllocatorStats,
    FailedAllocation,
    MemoryPool,
    MemorySnapshot,
)
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Subject
from latdoctor.gap_code import GapCode
from latdoctor.units import format_value

_HELD = ("alloc.reserved", "alloc.allocated", "alloc.segments", "alloc.inactive_split_ratio", "alloc.inactive_ratio")
_HOLES = ("alloc.fragmentation", "alloc.largest_hole")
_LIFE = ("alloc.retries", "alloc.ooms")
_GROWN = ("alloc.retries_grown", "alloc.ooms_grown", "alloc.device_calls_grown", "alloc.grown_allocations")
_HISTORY = ("alloc.history_span", "alloc.history_segments", "alloc.history_segment_rate", "alloc.history_ooms")
_FITTING = ("alloc.ooms_despite_room",)

SNAPSHOT_TOO = "take a snapshot too: torch.cuda.memory._dump_snapshot(FILE)"
STATS_TOO = "save torch.cuda.memory_stats() as JSON too, twice, some minutes apart"
_OBSERVE = "take the snapshot in the handler of the failure: torch._C._cuda_attach_out_of_memory_observer"
_RECORD = "call torch.cuda.memory._record_memory_history() some seconds before the snapshot"
# Seconds; a shorter history yields no rate. The sample of a sound model recorded 43 ms.
_SHORTEST = 0.01
# Of what was reserved: within this the snapshot shows the state of the failure itself.
_SAME_STATE = 0.05


@dataclass(frozen=True, slots=True)
class EvidenceWriter:
    """Where a piece of what follows was read: the artifact's name."""

    subject: str
    artifact: str

    def reading(self, signal: str, value: float, place: str, note: str = "") -> Reading:
        return Reading(signal, self.subject, value, Origin(self.artifact, place), note=note)

    def gap(self, reason: str, code: GapCode, signals: tuple[str, ...], next_step: str) -> Gap:
        return Gap(NAME, reason, signals, self.subject, next_step, Origin(self.artifact), code)


def of_snapshot(found: MemorySnapshot, subject: str, artifact: str) -> Evidence:
    """What a snapshot shows: `allocator/NAME`, or `allocator/NAME:DEVICE` where it holds several devices."""
    devices = sorted({pool.device for pool in found.pools} | {history.device for history in found.histories})
    parts = []
    for device in devices:
        source = EvidenceWriter(subject if len(devices) == 1 else f"{subject}:{device}", artifact)
        pool = next((one for one in found.pools if one.device == device), None)
        history = next((one for one in found.histories if one.device == device), None)
        pieces = [*_held_by(pool, history, source), *_history(history, source), *_ooms(pool, history, source)]
        readings = tuple(piece for piece in pieces if isinstance(piece, Reading))
        gaps = [piece for piece in pieces if isinstance(piece, Gap)]
        if found.damaged:
            reason = f"{found.damaged} parts of the snapshot are damaged and left out"
            gaps.append(source.gap(reason, GapCode.UNREADABLE, (), ""))
        parts.append(Evidence((Subject(source.subject),), readings, gaps=tuple(gaps)))
    return Evidence.merge(parts)


def _held_by(
    pool: MemoryPool | None, history: AllocationHistory | None, source: EvidenceWriter
) -> Iterator[Reading | Gap]:
    """What the allocator holds; where an allocation failed, what it held then: the failure may have freed all of it."""
    failure = history.failures[-1] if history and history.failures else None
    then = _at_failure(pool, failure) if pool and failure else None
    if (
        pool is None
        or then is None
        or abs(then.reserved - pool.reserved) + abs(then.active - pool.active) <= (_SAME_STATE * then.reserved)
    ):
        yield from _pool(pool, source)
        return
    place = f"when {_size(failure.size if failure else 0)} could not be allocated; {_size(pool.reserved)} at the end"
    yield source.reading("alloc.reserved", float(then.reserved), place)
    yield source.reading("alloc.allocated", float(then.allocated), place)
    yield source.reading("alloc.inactive_ratio", then.inactive / then.reserved, place)
    lost = ("alloc.segments", "alloc.inactive_split_ratio", *_HOLES)
    known = "the snapshot shows the holes of the time after the failure, which freed memory"
    yield source.gap(f"cannot tell: {known}", GapCode.STALE, lost, _OBSERVE)


def _at_failure(pool: MemoryPool, failure: FailedAllocation) -> MemoryPool | None:
    """`pool` at the time of `failure`; None where the history does not add up."""
    reserved, active = pool.reserved - failure.reserved_since, pool.active - failure.active_since
    allocated = min(active, pool.allocated - failure.allocated_since)
    if not (reserved > 0 and 0 <= active <= reserved and allocated >= 0):
        return None
    return replace(pool, reserved=reserved, active=active, allocated=allocated, inactive=reserved - active)


def _pool(pool: MemoryPool | None, source: EvidenceWriter) -> Iterator[Reading | Gap]:
    if pool is None or not pool.reserved:
        yield source.gap("cannot tell: the allocator holds no memory", GapCode.EMPTY, (*_HELD, *_HOLES), "")
        return
    place = f"{pool.segments} segments, {_size(pool.reserved)}"
    private = f"{_size(pool.private)} of it in private pools of CUDA graphs" if pool.private else ""
    yield source.reading("alloc.reserved", float(pool.reserved), place, private)
    yield source.reading("alloc.allocated", float(pool.allocated), f"{_size(pool.allocated)} of {place}")
    yield source.reading("alloc.segments", float(pool.segments), place)
    split = f"{_size(pool.inactive_split)} in segments in use, of {place}"
    yield source.reading("alloc.inactive_split_ratio", pool.inactive_split / pool.reserved, split)
    yield source.reading("alloc.inactive_ratio", pool.inactive / pool.reserved, f"{_size(pool.inactive)} of {place}")
    hole = f"the largest hole has {_size(pool.largest_hole)} of {_size(pool.inactive)} free"
    yield source.reading("alloc.largest_hole", float(pool.largest_hole), hole)
    missing = 1 - pool.largest_hole / pool.inactive if pool.inactive else 0.0
    yield source.reading("alloc.fragmentation", missing, hole)


def _history(history: AllocationHistory | None, source: EvidenceWriter) -> Iterator[Reading | Gap]:
    if history is None or not history.entries:
        yield source.gap("no history was recorded with the snapshot", GapCode.ABSENT, (*_HISTORY, *_FITTING), _RECORD)
        return
    place = f"{history.entries} entries, {history.allocs} allocations, in {format_value(history.seconds, 'time')}"
    yield source.reading("alloc.history_span", history.seconds, place)
    yield source.reading("alloc.history_ooms", float(len(history.failures)), place)
    if history.seconds_late < _SHORTEST:
        known = f"cannot tell a rate: the history spans {format_value(history.seconds, 'time')}"
        yield source.gap(known, GapCode.INSUFFICIENT, ("alloc.history_segments", "alloc.history_segment_rate"), _RECORD)
        return
    late = f"in the later half ({format_value(history.seconds_late, 'time')}); {history.taken} in all; {place}"
    yield source.reading("alloc.history_segments", float(history.taken_late), late)
    yield source.reading("alloc.history_segment_rate", history.taken_late / history.seconds_late, late)


def _ooms(pool: MemoryPool | None, history: AllocationHistory | None, source: EvidenceWriter) -> Iterator[Reading]:
    """Failures for less than lay unused at their time, and the figures of the last failure."""
    if pool is None or history is None or not history.entries:
        return
    unused = [(failure, (_at_failure(pool, failure) or pool).inactive) for failure in history.failures]
    fitting = [free for failure, free in unused if 0 < failure.size <= free]
    most = f" although up to {_size(max(fitting))} lay unused" if fitting else ""
    place = f"{len(fitting)} of {len(history.failures)} failed{most}"
    yield source.reading("alloc.ooms_despite_room", float(len(fitting)), place)
    if unused:
        yield from _last_failure(*unused[-1], source)


def _last_failure(failure: FailedAllocation, inactive: int, source: EvidenceWriter) -> Iterator[Reading]:
    if not failure.size:
        return
    place = "the last failed allocation of the history"
    yield source.reading("oom.requested", float(failure.size), place)
    yield source.reading("oom.reserved_unallocated", float(inactive), place)
    if failure.device_free is not None:
        yield source.reading("oom.device_free", float(failure.device_free), place)
        room = failure.device_free + inactive
        shown = f"{_size(failure.device_free)} free and {_size(inactive)} unused for {_size(failure.size)}"
        yield source.reading("oom.room_ratio", room / failure.size, shown)


def of_stats(found: Sequence[tuple[AllocatorStats, str]], subject: str) -> Evidence:
    """What statistics of one process show, given with the names of their artifacts; the last of several is now."""
    ordered = sorted(found, key=lambda one: one[0].age)
    last, artifact = ordered[-1]
    source = EvidenceWriter(subject, artifact)
    readings = [*_held(last, source), *_grown(ordered[0][0], last, source)]
    known = {reading.signal for reading in readings}
    lost = tuple(name for name in (*_HELD, *_LIFE) if name not in known)
    gaps = []
    if lost:
        gaps.append(source.gap("the statistics lack what this is computed from", GapCode.ABSENT, lost, STATS_TOO))
    if not known.intersection(_GROWN):
        gaps.append(source.gap("one state of the statistics tells no growth", GapCode.INSUFFICIENT, _GROWN, STATS_TOO))
    return Evidence((Subject(subject),), tuple(readings), gaps=tuple(gaps))


def _held(found: AllocatorStats, source: EvidenceWriter) -> Iterator[Reading]:
    names = {"alloc.retries": "num_alloc_retries", "alloc.ooms": "num_ooms"}
    for signal, key in names.items():
        if (value := found.get(key)) is not None:
            yield source.reading(signal, value, f"{key}, since the process began")
    reserved, allocated = found.get("reserved_bytes.all.current"), found.get("allocated_bytes.all.current")
    if (segments := found.get("segment.all.current")) is not None:
        yield source.reading("alloc.segments", segments, "segment.all.current")
    if allocated is not None:
        yield source.reading("alloc.allocated", allocated, "allocated_bytes.all.current")
    if reserved is None:
        return
    yield source.reading("alloc.reserved", reserved, "reserved_bytes.all.current")
    if reserved <= 0:
        return
    if (split := found.get("inactive_split_bytes.all.current")) is not None:
        place = f"inactive_split_bytes {_size(split)} of {_size(reserved)}"
        yield source.reading("alloc.inactive_split_ratio", split / reserved, place)
    if (active := found.get("active_bytes.all.current")) is not None and active <= reserved:
        place = f"{_size(reserved - active)} of {_size(reserved)} not active"
        yield source.reading("alloc.inactive_ratio", 1 - active / reserved, place)


def _grown(first: AllocatorStats, last: AllocatorStats, source: EvidenceWriter) -> Iterator[Reading]:
    """What grew between two states of one process; nothing where its counters were reset."""
    if last.age <= first.age:
        return
    keys = ("num_alloc_retries", "num_ooms", "num_device_alloc", "allocation.all.allocated")
    for signal, key in zip(_GROWN, keys, strict=True):
        before, now = first.get(key), last.get(key)
        if before is not None and now is not None and now >= before:
            yield source.reading(signal, now - before, f"{key} from {before:.0f} to {now:.0f}")


def _size(value: float) -> str:
    return format_value(value, "bytes")
