"""A package declares its signals apart from the modules that read them: both must agree."""

from __future__ import annotations

import pytest

from latdoctor.collectors import host, nvml, tensorrt, torch_memory, torch_trace
from latdoctor.collectors.host import cgroup_limits, machine, process
from latdoctor.collectors.nvml import readings
from latdoctor.collectors.tensorrt import engine_figures
from latdoctor.collectors.torch_memory import evidence as memory
from latdoctor.collectors.torch_trace import evidence as trace

READ = {
    "host": (
        host.SIGNALS,
        [
            signal
            for group in (*machine.SECTIONS, *cgroup_limits.SECTIONS, *process.SECTIONS)
            for signal in group.signals
        ],
    ),
    "nvml": (nvml.GPU_SIGNALS, [quantity.signal for quantity in readings.QUANTITIES]),
    "tensorrt": (
        tensorrt.SIGNALS,
        [f"engine.{kind}.{what}" for kind in (*engine_figures.KINDS, "fallback") for what in ("count", "time_share")],
    ),
    "torch_memory": (torch_memory.SIGNALS, [*memory._HELD, *memory._LIFE, *memory._GROWN, *memory._HISTORY]),
    "torch_trace": (torch_trace.SIGNALS, [*trace._KERNELS, *trace._CALLS, *trace._COPIES, *trace._ALLOCATIONS]),
}


@pytest.mark.parametrize("package", READ)
def test_signals_that_are_read_are_declared_once(package: str) -> None:
    declared, read = READ[package]
    assert len(set(declared)) == len(declared)
    assert set(read) <= set(declared)


def test_host_reads_all_that_it_declares() -> None:
    declared, read = READ["host"]
    assert set(read) == set(declared)
