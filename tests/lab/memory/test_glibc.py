"""The process allocator: its modes turned live, its figures, and machines whose C library is another."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import torch

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import MemoryConfig
from latdoctor.lab.server.memory import build, glibc
from latdoctor.lab.server.memory.glibc import glibc as c_library

ON_GLIBC = pytest.mark.skipif(c_library() is None, reason="the C library here is not glibc: mallopt is not available")


@ON_GLIBC
def test_a_storm_of_page_faults_comes_and_goes_with_the_mode() -> None:
    found = _output("allocation_storm.py")
    (_, pooled), (_, storm), (_, again), (_, second), (_, usual) = found["faults"]
    # A forward takes some 15 MB in large blocks, and every page of them is new. Fewer, and some came out of old holes.
    assert storm * mmap.PAGESIZE > 12e6
    assert second * mmap.PAGESIZE > 12e6
    assert max(pooled, again) < storm / 50
    assert usual < storm / 5
    stats = found["stats"]
    assert stats["device_alloc_total"] is None  # not to be counted here, and not said to be zero
    assert stats["allocated_bytes"] <= stats["reserved_bytes"]


@ON_GLIBC
def test_holes_are_taken_without_a_walk_through_the_heap_for_each() -> None:
    """A walk holds the heap's lock: with thousands of holes no thread of the server could allocate for seconds."""
    found = _output("heap_holes.py")
    assert found["held"] >= 1000
    assert found["walks"] == 0
    assert found["mapped"] == 1


def test_a_buffer_is_reused_unless_it_should_not_be() -> None:
    pool = build(MemoryConfig(glibc="default"))
    with pool.tensor((10, 100), torch.float32) as first:
        address = first.data_ptr()
    with pool.tensor((9, 110), torch.float32) as second:
        assert second.data_ptr() == address
        assert second.shape == (9, 110)
        with pool.tensor((10, 100), torch.float32) as third:
            assert third.data_ptr() != address
    assert pool.stats().alloc_total == 3
    pool.compact()
    assert pool.stats().compactions_total == 1
    pool.set_live(MemoryConfig(glibc="default", reuse_buffers=False))
    held = pool.lease((10, 100), torch.float32)
    held.release()
    with pytest.raises(ValueError, match="released"):
        held.release()
    pool.close()


def test_what_is_kept_stays_within_the_pool() -> None:
    pool = glibc.GlibcPool(MemoryConfig(glibc="default", pool_mib=1))
    leases = [pool.lease((1 << 19,), torch.uint8) for _ in range(5)]
    addresses = {lease.tensor.data_ptr() for lease in leases}
    assert len(addresses) == 5
    for lease in leases:
        lease.release()
    assert pool.cached_bytes == 1 << 20


def test_page_faults_are_those_of_the_watched_forward() -> None:
    pool = build(MemoryConfig(glibc="default"))
    if pool.stats().page_faults_total is None:
        pytest.skip("the system does not count page faults per thread")
    fresh = torch.empty(64 << 20, dtype=torch.uint8)  # mapped, and not touched yet
    assert pool.stats().page_faults_total == 0
    with pool.watch():
        fresh[::4096] = 1
    counted = pool.stats().page_faults_total
    assert counted is not None
    assert counted >= 32


def test_another_c_library_has_no_storm_to_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glibc, "glibc", lambda: None)
    with pytest.raises(UsageError, match="not glibc"):
        build(MemoryConfig(glibc="returning"))
    pool = build(MemoryConfig(glibc="pooled"))
    assert isinstance(pool, glibc.GlibcPool)
    assert pool.mode == "default"
    stats = pool.stats()
    assert (stats.reserved_bytes, stats.segments, stats.alloc_total) == (None, None, 0)
    with pytest.raises(UsageError, match="not glibc"):
        pool.set_live(msgspec.structs.replace(pool.config, glibc="returning"))
    assert pool.config.glibc == "pooled"
    with pool.tensor((2, 2), torch.float32) as tensor:
        assert tensor.shape == (2, 2)


def _output(program: str) -> dict[str, Any]:
    script = Path(__file__).with_name(program)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return cast(dict[str, Any], json.loads(done.stdout))
