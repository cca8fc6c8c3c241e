"""This machine's GPUs, as the driver reports them through NVML."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "nvml"
TITLE = "NVML (the NVIDIA driver)"
GPU_SIGNALS = (
    "gpu.utilization", "gpu.memory_used", "gpu.memory_total", "gpu.memory_used_ratio", "gpu.sm_clock",
    "gpu.sm_clock_max", "gpu.sm_clock_ratio", "gpu.temperature", "gpu.temperature_slowdown",
    "gpu.temperature_margin", "gpu.power", "gpu.power_limit", "gpu.power_ratio", "gpu.throttle.idle",
    "gpu.throttle.sw_power_cap", "gpu.throttle.hw_slowdown", "gpu.throttle.sw_thermal", "gpu.throttle.hw_thermal",
    "gpu.throttle.hw_power_brake", "gpu.throttle.thermal", "gpu.ecc.uncorrectable", "gpu.row_remap.pending",
    "gpu.row_remap.failed", "gpu.pcie.width", "gpu.pcie.width_ratio", "gpu.pcie.generation", "gpu.name", "gpu.uuid",
    "gpu.pci", "gpu.pcie.generation_ratio", "gpu.ecc.uncorrectable_rate", "gpu.pcie.replay_rate",
    "gpu.nvlink.error_rate", "gpu.processes", "gpu.foreign_processes",
)  # fmt: skip
SIGNALS = (*GPU_SIGNALS, "gpu.count", "gpu.count_expected", "gpu.driver_version", "gpu.cuda_driver_version")


def _reader() -> SourceReader:
    from latdoctor.collectors.nvml.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset(SIGNALS),
    is_requested=lambda request: request.nvml,
    reader=_reader,
    option="--nvml",
    cost="watches the GPUs for the window",
)
