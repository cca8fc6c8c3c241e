"""The arena over real memory: content, limits, compaction, and the figures it gives."""

from __future__ import annotations

import mmap
import random
import threading

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import MemoryConfig
from latdoctor.lab.server.memory import build
from latdoctor.lab.server.memory.arena import ArenaPool
from latdoctor.lab.server.memory.pool_interface import BufferLease, OutOfMemory

MIB = 1 << 20
BYTE = torch.uint8


def arena(**knobs: object) -> ArenaPool:
    return ArenaPool(msgspec.convert({"backend": "arena", "pool_mib": 1, "long_share": 0.0, **knobs}, MemoryConfig))


def mixed(pool: ArenaPool, count: int) -> list[BufferLease]:
    """A server's life: buffers of 85 % short and 15 % long inputs, forty held at a time."""
    choice = random.Random(1)
    held: list[BufferLease] = []
    for _ in range(count):
        length = choice.randint(20, 60) if choice.random() < 0.85 else choice.randint(300, 512)
        held.append(pool.lease((length, 256), torch.float32))
        if len(held) > 40:
            held.pop(choice.randrange(len(held))).release()
    return held


@given(sizes=st.lists(st.integers(1, 300_000), min_size=1, max_size=25), drop=st.integers(1, 7))
@settings(max_examples=30)
def test_buffers_never_share_a_byte_and_compaction_keeps_their_content(sizes: list[int], drop: int) -> None:
    pool = arena()
    leases: dict[int, BufferLease] = {}
    for number, size in enumerate(sizes):
        lease = pool.lease((size,), BYTE)
        lease.tensor.fill_(number + 1)
        leases[number] = lease
        if number % drop == 0:
            leases.pop(min(leases)).release()
    before = pool.stats()
    pool.compact()
    after = pool.stats()
    for number, lease in leases.items():
        tensor = lease.tensor
        assert tensor.shape == (sizes[number],)
        assert bool((tensor == number + 1).all())
    assert after.allocated_bytes == before.allocated_bytes
    for lease in leases.values():
        lease.release()
    assert pool.stats().allocated_bytes == 0
    pool.close()
    closed = pool.stats()
    assert (closed.reserved_bytes, closed.segments) == (0, 0)
    assert closed.device_alloc_total == closed.device_free_total


def test_compaction_really_moves_and_gives_segments_back() -> None:
    pool = arena(segment_mib=2)
    held = [pool.lease((MIB // 2,), BYTE) for _ in range(24)]
    kept, keeps = held[3::8], [lease.tensor.data_ptr() for lease in held[3::8]]
    for lease in held:
        if lease not in kept:
            lease.release()
    before = pool.stats()
    pool.compact()
    after = pool.stats()
    assert before.segments is not None
    assert after.segments is not None
    assert after.segments < before.segments
    assert [lease.tensor.data_ptr() for lease in kept] != keeps
    assert after.compactions_total == 1


def test_a_buffer_in_use_is_not_moved() -> None:
    pool = arena()
    lease = pool.lease((1000,), BYTE)
    with lease as tensor:
        tensor.fill_(7)
        address = tensor.data_ptr()
        pool.compact()
        assert lease.tensor.data_ptr() == address
        with pytest.raises(ValueError, match="in use"):
            lease.release()
    pool.compact()
    assert lease.tensor.data_ptr() != address
    assert bool((lease.tensor == 7).all())


def test_at_the_limit_what_is_free_is_given_back_and_the_request_tried_again() -> None:
    pool = arena(limit_mib=9, segment_mib=2)
    small = [pool.lease((2 * MIB,), BYTE) for _ in range(3)]
    for lease in small:
        lease.release()
    full = pool.stats()
    assert full.reserved_bytes == 7 * MIB
    large = pool.lease((6 * MIB,), BYTE)
    stats = pool.stats()
    assert (stats.alloc_retries_total, stats.alloc_oom_total) == (1, 0)
    assert stats.reserved_bytes == 6 * MIB
    with pytest.raises(OutOfMemory, match="9 MiB allowed"):
        pool.lease((6 * MIB,), BYTE)
    stats = pool.stats()
    assert (stats.alloc_retries_total, stats.alloc_oom_total) == (2, 1)
    assert stats.allocated_bytes == 6 * MIB
    large.release()
    pool.lease((8 * MIB,), BYTE).release()


def test_a_lower_limit_takes_hold_at_once() -> None:
    pool = arena(segment_mib=2)
    pool.lease((8 * MIB,), BYTE).release()
    assert pool.stats().reserved_bytes == 9 * MIB
    pool.set_live(msgspec.structs.replace(pool.config, limit_mib=4))
    assert pool.stats().reserved_bytes == 0
    with pytest.raises(OutOfMemory):
        pool.lease((5 * MIB,), BYTE)


def test_small_segments_fragment_where_one_pool_does_not() -> None:
    figures = {}
    for name, knobs in {
        "segments": {"segment_mib": 2},
        "pool": {"pool_mib": 64},
        "uncached": {"reuse_buffers": False},
    }.items():
        pool = arena(**knobs)
        mixed(pool, 1000)
        figures[name] = pool.stats()
    segments, pool_, uncached = figures["segments"], figures["pool"], figures["uncached"]
    assert (pool_.segments, pool_.device_alloc_total) == (1, 1)
    assert segments.segments is not None
    assert segments.segments > 1
    assert segments.fragmentation_ratio is not None
    assert pool_.fragmentation_ratio is not None
    assert segments.fragmentation_ratio > 5 * pool_.fragmentation_ratio
    # The other ratio says the opposite: the pool is nearly all "inactive". Neither alone is fragmentation.
    assert segments.inactive_ratio is not None
    assert pool_.inactive_ratio is not None
    assert pool_.inactive_ratio > segments.inactive_ratio
    # Without reuse each buffer is a segment, besides the pool's own.
    assert uncached.device_alloc_total == 1001
    assert segments.allocated_bytes == pool_.allocated_bytes


def test_long_inputs_have_a_share_of_their_own() -> None:
    pool = arena(pool_mib=4, long_share=0.5, segment_mib=1)
    for _ in range(4):
        pool.lease((MIB // 2,), BYTE)
    assert pool.stats().segments == 1
    pool.lease((2 * MIB,), BYTE, long=True)
    assert pool.stats().segments == 1
    pool.lease((MIB // 2,), BYTE)
    assert pool.stats().segments == 2


def test_compaction_comes_due_with_its_period() -> None:
    now = [100.0]
    config = MemoryConfig(backend="arena", pool_mib=1, compaction_ms=500)
    pool = ArenaPool(config, clock=lambda: now[0])
    assert not pool.compact_if_due()
    now[0] += 0.6
    assert pool.compact_if_due()
    assert not pool.compact_if_due()
    pool.set_live(msgspec.structs.replace(config, compaction_ms=0))
    now[0] += 1000
    assert not pool.compact_if_due()
    assert pool.stats().compactions_total == 1


def test_a_released_buffer_is_not_to_be_had() -> None:
    lease = arena().lease((3, 4), torch.bfloat16)
    assert lease.tensor.shape == (3, 4)
    lease.release()
    with pytest.raises(ValueError, match="released"):
        _ = lease.tensor
    with pytest.raises(ValueError, match="released"):
        lease.release()


def test_a_tensor_kept_too_long_stays_readable() -> None:
    pool = arena(reuse_buffers=False)
    with pool.tensor((100,), BYTE) as tensor:
        tensor.fill_(9)
    pool.close()
    assert int(tensor.sum()) == 900


def test_periodic_compaction_copies_to_and_fro_between_two_spaces() -> None:
    pool = arena(compaction_ms=500, segment_mib=1)
    held = [pool.lease((300_000,), BYTE) for _ in range(8)]
    for number, lease in enumerate(held):
        lease.tensor.fill_(number)
    for _ in range(2):
        pool.compact()
    mapped = pool.stats().device_alloc_total
    places = []
    for _ in range(4):
        pool.compact()
        places.append(held[0].tensor.data_ptr())
        assert all(bool((lease.tensor == number).all()) for number, lease in enumerate(held))
    stats = pool.stats()
    assert stats.device_alloc_total == mapped
    assert places[0] == places[2] != places[1] == places[3]
    assert stats.allocated_bytes == 8 * 300_032
    pool.set_live(msgspec.structs.replace(pool.config, compaction_ms=0))
    assert (pool.stats().reserved_bytes or 0) < (stats.reserved_bytes or 0)


def test_memory_that_grew_inside_a_forward_is_written_to_outside_of_it() -> None:
    pool = arena(compaction_ms=500)
    with torch.inference_mode():
        held = [pool.lease((MIB,), BYTE) for _ in range(3)]
    for number, lease in enumerate(held):
        lease.tensor.fill_(number)
    for _ in range(3):
        pool.compact()
    assert all(bool((lease.tensor == number).all()) for number, lease in enumerate(held))


def test_two_spaces_shrink_with_what_is_held() -> None:
    pool = arena(compaction_ms=500, segment_mib=1)
    held = [pool.lease((MIB,), BYTE) for _ in range(16)]
    for _ in range(3):
        pool.compact()
    for lease in held:
        lease.release()
    for _ in range(3):
        pool.compact()
    assert pool.stats().reserved_bytes == 2 * MIB


def test_what_is_over_a_limit_that_was_lowered_goes_when_it_is_free() -> None:
    pool = arena(pool_mib=4, limit_mib=4)
    with pool.tensor((1000,), BYTE):
        pool.set_live(msgspec.structs.replace(pool.config, limit_mib=0.5))
        assert (pool.stats().reserved_bytes, pool.stats().limit_bytes) == (4 * MIB, MIB // 2)
    assert pool.stats().reserved_bytes == 0
    with pool.tensor((500_000,), BYTE):
        assert (pool.stats().reserved_bytes or 0) <= MIB // 2
        with pytest.raises(OutOfMemory):
            pool.lease((30_000,), BYTE)
    with pool.tensor((1000,), BYTE):  # in the way of the pool, of which there is no room to spare
        pool.set_live(msgspec.structs.replace(pool.config, limit_mib=4))
        assert (pool.stats().reserved_bytes or 0) < 4 * MIB
    pool.lease((3 * MIB,), BYTE).release()
    assert (pool.stats().reserved_bytes, pool.stats().segments) == (4 * MIB, 1)


def test_a_waiting_allocation_gets_released_memory() -> None:
    pool = arena(limit_mib=1, wait_ms=10_000)
    held = pool.lease((MIB,), BYTE)
    got = threading.Event()

    def wait() -> None:
        with pool.tensor((1000,), BYTE):
            got.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not pool.stats().alloc_oom_total:
        threading.Event().wait(0.001)
    assert not got.is_set()
    held.release()
    waiting.join()
    assert got.is_set()
    assert pool.stats().alloc_oom_total == 1


def test_a_compaction_without_memory_leaves_everything_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = arena()
    lease = pool.lease((1000,), BYTE)
    lease.tensor.fill_(3)

    def none_left(*_: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("latdoctor.lab.server.memory.arena.mmap.mmap", none_left)
    with pytest.raises(OutOfMemory):
        pool.compact()
    assert bool((lease.tensor == 3).all())
    pool.lease((500_000,), BYTE).release()


def test_a_pool_over_its_own_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="limit_mib"):
        build(MemoryConfig(backend="arena", pool_mib=64, limit_mib=32))
