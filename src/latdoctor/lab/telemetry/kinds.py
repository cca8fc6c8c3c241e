"""Every kind of telemetry that can be made: what is wrong in it, by the id of its cause, and who tells its story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latdoctor.lab.telemetry import driver, hardware, software
from latdoctor.lab.telemetry.story import Scene, Story


@dataclass(frozen=True, slots=True)
class Kind:
    """`cause` is the id of what is wrong; empty where nothing is. `shows` is where it can be seen."""

    id: str
    tell: Callable[[Scene], Story]
    shows: str
    healthy: bool = False
    named: bool = True  # can diagnosis name it from what collectors read today?

    @property
    def cause(self) -> str:
        return "" if self.healthy else self.id


KINDS = (
    Kind("infra.gpu.thermal-throttle", hardware.too_hot, "NVML, metrics"),
    Kind("infra.gpu.power-throttle", hardware.too_little_power, "NVML, metrics"),
    Kind("infra.gpu.xid-fault", driver.reported_by_driver, "kernel log, server log"),
    Kind("infra.gpu.ecc-errors", hardware.damaged_memory, "NVML, kernel log, server log"),
    Kind("infra.gpu.lost", hardware.off_the_bus, "NVML, kernel log, metrics"),
    Kind("infra.gpu.memory-exhausted", hardware.memory_full, "NVML, server log"),
    Kind("infra.gpu.neighbour", hardware.shared_gpu, "NVML, metrics"),
    Kind("infra.driver.mismatch", driver.parts_do_not_fit, "kernel log or server log"),
    Kind("infra.driver.cuda-errors", driver.failing_calls, "server log"),
    Kind("infra.pcie.degraded", hardware.poor_link, "NVML, kernel log, metrics"),
    Kind("infra.nvlink.errors", hardware.bad_nvlink, "NVML, kernel log"),
    Kind("framework.launch.bound", software.tiny_kernels, "trace"),
    Kind("framework.launch.sync-stalls", software.waits_in_the_middle, "trace"),
    Kind("framework.copy.host-device", software.copies, "trace"),
    Kind("framework.fusion.missed", software.unfused, "TensorRT files, trace"),
    Kind("framework.precision.fallback", software.wider_type, "TensorRT files, trace"),
    Kind("app.kv.pressure", software.full_cache, "metrics"),
    Kind("healthy", software.healthy, "nothing is wrong", healthy=True),
    Kind("healthy-but-busy", software.busy, "nothing is wrong at 95 % use", healthy=True),
    Kind("idle", software.idle, "nothing is wrong, low clocks", healthy=True),
)
BY_ID = {kind.id: kind for kind in KINDS}
