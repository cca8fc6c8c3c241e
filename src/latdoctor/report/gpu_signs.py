"""What reports that a GPU cannot be reached, and other reports about GPUs and their links, say in words."""

from __future__ import annotations

from latdoctor.diagnosis.gpu_vitals import EVENTS
from latdoctor.diagnosis.result import Diagnosis, Vital
from latdoctor.evidence.gpu_access import AccessFailure

_ACCESS = {
    AccessFailure.DRIVER_NOT_LOADED: "the GPU driver is not loaded",
    AccessFailure.LIBRARY_NOT_FOUND: "the driver's library (NVML) is not found",
    AccessFailure.NO_PERMISSION: "no permission to use the GPU",
    AccessFailure.NVML_UNKNOWN: "NVML fails with an unknown error",
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


def reports(diagnosis: Diagnosis) -> str:
    """`the driver could not initialize a GPU (2), PCIe errors (12)`; empty where nothing of the kind is reported."""
    return ", ".join(_report(one) for one in diagnosis.vitals if one.signal in EVENTS)


def _report(sign: Vital) -> str:
    words = _ACCESS.get(AccessFailure(sign.part), "") if sign.part in set(AccessFailure) else ""
    words = words or _OTHERS.get(sign.signal, "a GPU cannot be reached")
    named = f" ({sign.part})" if sign.part and sign.signal in _NAMED else ""
    return f"{words}{named}" if sign.value == 1 else f"{sign.shown} x {words}{named}"
