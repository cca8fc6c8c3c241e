"""What reports that a GPU cannot be reached, and other reports about GPUs and their links, say in words."""

from __future__ import annotations

from latdoctor.diagnosis.gpu_vitals import EVENTS
from latdoctor.diagnosis.result import Diagnosis, Vital
from latdoctor.evidence.gpu_access import AccessFailure
from latdoctor.report.subject_names import subject_name

_ACCESS = {
    AccessFailure.DRIVER_NOT_LOADED: "the GPU driver is not loaded",
    AccessFailure.LIBRARY_NOT_FOUND: "the driver's library (NVML) is not found",
    AccessFailure.NO_PERMISSION: "no permission to use the GPU",
    AccessFailure.NVML_UNKNOWN: "NVML fails with an unknown error",
    AccessFailure.NVML_FAILED: "NVML could not be initialized (usual without a GPU)",
    AccessFailure.DEVICE_HANDLE: "the driver gives no handle to a GPU",
    AccessFailure.GPU_LOST: "a GPU is lost",
    AccessFailure.RESET_REQUIRED: "a GPU requires a reset",
    AccessFailure.UNREADABLE_FIELD: "the driver cannot read values of a GPU (ERR!)",
    AccessFailure.NO_DEVICES: "the driver finds no GPU",
    AccessFailure.INIT_FAILED: "the driver could not initialize a GPU",
    AccessFailure.FIRMWARE: "the firmware of a GPU (GSP) failed",
    AccessFailure.NOT_READY: "NVSwitch is not set up (CUDA error 802)",
    AccessFailure.CONTAINER_RUNTIME: "the container runtime could not set up the GPUs",
    AccessFailure.DEVICE_PLUGIN: "the device plugin withdrew a GPU",
    AccessFailure.PLUGIN_EMPTY: "the device plugin finds no GPU on its node",
}
_OTHERS = {
    "log.fabric_error": "the fabric manager failed",
    "gpu.diagnostic_failed": "a GPU diagnostic failed",
    "log.collective_timeout": "a collective operation (NCCL) timed out",
    "log.collective_error": "NCCL reports errors",
    "log.pcie_error": "PCIe errors",
    "log.no_gpu_found": "no usable GPU was found",
    "gpu.vgpu_unlicensed": "the virtual GPU has no license",
}
_NAMED = ("log.collective_error", "log.pcie_error", "gpu.diagnostic_failed")
PHRASES = {
    "gpu.throttle.thermal": "clocks cut by heat ({})",
    "gpu.throttle.sw_power_cap": "clocks cut by the power cap ({})",
    "gpu.throttle.hw_power_brake": "clocks cut by a power brake ({})",
    "gpu.throttle.hw_slowdown": "clocks cut by the hardware ({})",
    "gpu.memory_temperature_max": "GPU memory {}",
    "gpu.ecc.uncorrectable": "{} uncorrectable memory errors",
    "gpu.row_remap.pending": "a row of the GPU memory waits to be remapped",
    "gpu.row_remap.failed": "a row of the GPU memory could not be remapped",
    "gpu.retired.pending": "{} pages of the GPU memory wait to be retired",
    "gpu.retired.double_bit": "{} pages retired for uncorrectable errors",
    "gpu.peer_link": "slowest connection between GPUs: {}",
    "gpu.nic_link": "slowest from a GPU to its nearest network adapter: {}",
    "gpu.pcie.width": "PCIe with {} lanes",
    "gpu.pcie.generation": "PCIe generation {}",
    "gpu.nvlink.inactive_links": "{} NVLinks down",
    "gpu.nvlink.active_links": "{} NVLinks up on each GPU",
    "gpu.nvlink.errors": "{} NVLink errors",
    "gpu.sm_active": "SMs active {}",
    "gpu.tensor_active": "tensor cores active {}",
    "gpu.dram_active": "device memory active {}",
    "gpu.power": "power {}",
    "gpu.sm_clock": "SM clock {}",
    "gpu.memory_used": "GPU memory {} used",
    "gpu.memory_temperature": "GPU memory {}",
    "gpu.memory_utilization": "memory bandwidth in use {} of the time",
    "offload.layer_share": "{} of the layers on a GPU",
    "gpu.name": "{}",
    "gpu.driver_version": "driver {}",
    "collective.network": "NCCL network {}",
    "collective.channels": "{} NCCL channels over sockets",
}
# Shares and amounts of several processes.
PARTS = {
    "gpu.process_memory": "GPU memory by process: {}",
    "gpu.process_utilization": "GPU time by process: {}",
    "gpu.process_memory_utilization": "memory bandwidth by process, in time: {}",
}
_PLACED = ("gpu.pcie.width", "gpu.pcie.generation", "gpu.nvlink.inactive_links", "gpu.nvlink.errors")
# Reported only where there is less than there could be, or more than on a sound GPU.
_TROUBLES = (
    "gpu.pcie.width",
    "gpu.nvlink.inactive_links",
    "gpu.throttle.thermal",
    "gpu.throttle.hw_power_brake",
    "gpu.throttle.hw_slowdown",
    "gpu.memory_temperature_max",
    "gpu.ecc.uncorrectable",
    "gpu.row_remap.pending",
    "gpu.row_remap.failed",
    "gpu.retired.pending",
)


def place(sign: Vital) -> str:
    """` on GPU 3` of a link that is worse than it should be."""
    return f" on {subject_name(sign.subject)}" if sign.signal in _PLACED and sign.subject.startswith("gpu/") else ""


def is_alarming(sign: Vital) -> bool:
    """Whether the sign of a GPU or its link by itself says that something is wrong. An idle link lowers its speed."""
    return sign.signal in _TROUBLES or (sign.signal == "gpu.nvlink.errors" and bool(sign.value))


def reports(diagnosis: Diagnosis) -> str:
    """`the driver could not initialize a GPU (2), PCIe errors (12)`; empty where nothing of the kind is reported."""
    return ", ".join(_report(one) for one in diagnosis.vitals if one.signal in EVENTS)


def _report(sign: Vital) -> str:
    words = _ACCESS.get(AccessFailure(sign.part), "") if sign.part in set(AccessFailure) else ""
    words = words or _OTHERS.get(sign.signal, "a GPU cannot be reached")
    named = f" ({sign.part})" if sign.part and sign.signal in _NAMED else ""
    return f"{words}{named}" if sign.value == 1 else f"{sign.shown} x {words}{named}"
