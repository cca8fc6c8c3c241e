"""CUDA's figures under our names. The figures are made up to the documented names; no GPU is needed or used."""

from __future__ import annotations

import pytest
import torch

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import MemoryConfig
from latdoctor.lab.server.memory import build
from latdoctor.lab.server.memory.cuda import from_cuda, largest_free
from latdoctor.lab.server.memory.pool_interface import MemoryStats

FIGURES = {
    "reserved_bytes.all.current": 1000,
    "allocated_bytes.all.current": 600,
    "inactive_split_bytes.all.current": 250,
    "segment.all.current": 3,
    "allocation.all.allocated": 77,
    "num_device_alloc": 9,
    "num_device_free": 6,
    "num_alloc_retries": 2,
    "num_ooms": 1,
}
SNAPSHOT = [
    {"blocks": [{"state": "active_allocated", "size": 600}, {"state": "inactive", "size": 150}]},
    {"blocks": [{"state": "inactive", "size": 250}]},
]


def test_torchs_names_become_ours() -> None:
    stats = MemoryStats("cuda", **from_cuda(FIGURES, largest_free(SNAPSHOT)))
    assert (stats.reserved_bytes, stats.allocated_bytes, stats.inactive_split_bytes) == (1000, 600, 250)
    assert (stats.device_alloc_total, stats.device_free_total, stats.segments) == (9, 6, 3)
    assert (stats.alloc_total, stats.alloc_retries_total, stats.alloc_oom_total) == (77, 2, 1)
    assert stats.fragmentation_ratio == pytest.approx(1 - 250 / 400)
    assert stats.inactive_ratio == 0.25


def test_a_figure_that_torch_does_not_give_is_unknown() -> None:
    stats = MemoryStats("cuda", **from_cuda({}, 0))
    assert stats.device_alloc_total is None
    assert stats.reserved_bytes is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_device_cuda_is_refused() -> None:
    with pytest.raises(UsageError, match="CUDA"):
        build(MemoryConfig(backend="cuda"))
