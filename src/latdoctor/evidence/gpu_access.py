"""Reports that the driver or one of its tools cannot reach a GPU: nvidia-smi, NVML, the kernel module, the container
runtime, the device plugin.

Such a report contradicts every clean bill that a log could give a GPU.
"""

from __future__ import annotations

from enum import StrEnum

ACCESS_ERROR = "gpu.access_error"  # the event signal; its field `kind` is an AccessFailure


class AccessFailure(StrEnum):
    """Why a GPU cannot be reached."""

    DRIVER_NOT_LOADED = "driver-not-loaded"  # no kernel module, or nvidia-smi cannot communicate with it
    LIBRARY_NOT_FOUND = "library-not-found"  # no libnvidia-ml or libcuda
    NO_PERMISSION = "no-permission"
    NVML_UNKNOWN = "nvml-unknown-error"  # in a container: its access to /dev/nvidia* is gone
    NVML_FAILED = "nvml-failed"  # it gives no reason, as where there is no driver and no GPU
    DEVICE_HANDLE = "device-handle"  # NVML gives no handle to one GPU
    GPU_LOST = "gpu-lost"
    RESET_REQUIRED = "reset-required"
    UNREADABLE_FIELD = "unreadable-field"  # ERR! and Unknown Error where a value belongs
    NO_DEVICES = "no-devices"  # the driver works and lists no GPU
    INIT_FAILED = "init-failed"  # the kernel module could not initialise a GPU (RmInitAdapter)
    FIRMWARE = "firmware"  # the GPU's system processor (GSP) failed or does not answer
    NOT_READY = "not-ready"  # CUDA error 802: the fabric manager has not set up NVSwitch
    CONTAINER_RUNTIME = "container-runtime"  # nvidia-container-cli could not set up the GPUs
    DEVICE_PLUGIN = "device-plugin"  # the device plugin withdrew a GPU
    PLUGIN_EMPTY = "plugin-without-gpu"  # the device plugin found no GPU on its node
