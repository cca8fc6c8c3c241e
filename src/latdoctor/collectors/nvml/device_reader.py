"""Reading one GPU through nvidia-ml-py: each field by itself, as a value or as the driver's word for why not."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from latdoctor.collectors.nvml.samples import GpuDevice, GpuProcess, GpuSample, Number, NvLink, Unavailable
from latdoctor.sanitize import clean

_T = TypeVar("_T")
_WORD = 200  # characters of an answer of the driver that are kept
_TO_HZ, _TO_WATT = 1e6, 1e-3  # NVML returns MHz and mW
# "Not available" in NVML's unsigned 32-bit and 64-bit fields.
_BLANKS = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


def refusal(error: Any) -> Unavailable:
    """What an NVMLError says: its text in lower case and its return code."""
    return Unavailable(clean(str(error).lower(), _WORD), int(error.value))


class GpuHandle:
    """A GPU that answers, or does not."""

    def __init__(self, nvml: ModuleType, index: int) -> None:
        self.nvml = nvml
        self.index = index
        self.refused: Unavailable | None = None
        self._handle: Any = None
        handle = self.ask(lambda _: nvml.nvmlDeviceGetHandleByIndex(index))
        if isinstance(handle, Unavailable):
            self.refused = handle
        self._handle = handle

    def ask(self, read: Callable[[Any], _T]) -> _T | Unavailable:
        """What `read` gets from the driver, or the driver's word for why not."""
        if self.refused is not None:
            return self.refused
        try:
            value = read(self._handle)
        except self.nvml.NVMLError as error:
            return refusal(error)
        except ValueError:  # a name that is no UTF-8
            return Unavailable("unreadable answer")
        return Unavailable("value not available") if isinstance(value, int) and value in _BLANKS else value

    def number(self, read: Callable[[Any], int], factor: float = 1.0) -> Number:
        value = self.ask(read)
        return value if isinstance(value, Unavailable) else value * factor


def read_system(nvml: ModuleType, read: Callable[[], str]) -> str | Unavailable:
    try:
        return clean(read(), _WORD)
    except nvml.NVMLError as error:
        return refusal(error)


def read_cuda_version(nvml: ModuleType) -> str | Unavailable:
    """NVML returns 13010 for 13.1."""

    def read() -> str:
        version = _newest(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2, nvml.nvmlSystemGetCudaDriverVersion)
        return f"{version // 1000}.{version % 1000 // 10}"

    return read_system(nvml, read)


def _newest(nvml: ModuleType, *calls: Callable[[], _T]) -> _T:
    """The first of `calls` that this driver has, newest first. Raises NVMLError of the last where it has none."""
    for call in calls[:-1]:
        try:
            return call()
        except nvml.NVMLError_FunctionNotFound:
            continue
    return calls[-1]()


def read_device(gpu: GpuHandle) -> GpuDevice:
    nvml = gpu.nvml
    return GpuDevice(
        index=gpu.index,
        name=gpu.ask(lambda h: clean(nvml.nvmlDeviceGetName(h), _WORD)),
        uuid=gpu.ask(lambda h: clean(nvml.nvmlDeviceGetUUID(h), _WORD)),
        pci=gpu.ask(lambda h: _pci(nvml.nvmlDeviceGetPciInfo(h))),
        sm_clock_max=gpu.number(lambda h: nvml.nvmlDeviceGetMaxClockInfo(h, nvml.NVML_CLOCK_SM), _TO_HZ),
        temperature_slowdown=gpu.number(
            lambda h: nvml.nvmlDeviceGetTemperatureThreshold(h, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        ),
        pcie_width_max=gpu.number(nvml.nvmlDeviceGetMaxPcieLinkWidth),
        pcie_generation_max=gpu.number(nvml.nvmlDeviceGetMaxPcieLinkGeneration),
        mig=gpu.ask(lambda h: int(nvml.nvmlDeviceGetMigMode(h)[0])),
        refused=gpu.refused.error if gpu.refused else "",
        refused_code=gpu.refused.code if gpu.refused else None,
    )


def _pci(info: Any) -> str:
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}"


def read_sample(gpu: GpuHandle, time: float, *, links: bool) -> GpuSample:
    nvml = gpu.nvml
    memory = gpu.ask(lambda h: _memory(nvml, h))
    used, total = (memory, memory) if isinstance(memory, Unavailable) else memory
    remapped = gpu.ask(nvml.nvmlDeviceGetRemappedRows)
    pending, failed = (remapped, remapped) if isinstance(remapped, Unavailable) else map(float, remapped[2:])
    uncorrected, volatile = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return GpuSample(
        time=time,
        index=gpu.index,
        utilization=gpu.number(lambda h: nvml.nvmlDeviceGetUtilizationRates(h).gpu, 0.01),
        performance_state=gpu.number(nvml.nvmlDeviceGetPerformanceState),
        memory_used=used,
        memory_total=total,
        sm_clock=gpu.number(lambda h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM), _TO_HZ),
        temperature=gpu.number(lambda h: _temperature(nvml, h)),
        temperature_margin=gpu.number(lambda h: _margin(nvml, h)),
        power=gpu.number(nvml.nvmlDeviceGetPowerUsage, _TO_WATT),
        power_limit=gpu.number(nvml.nvmlDeviceGetEnforcedPowerLimit, _TO_WATT),
        clock_reasons=gpu.ask(lambda h: _clock_reasons(nvml, h)),
        ecc_uncorrectable=gpu.number(lambda h: nvml.nvmlDeviceGetTotalEccErrors(h, uncorrected, volatile)),
        row_remap_pending=pending,
        row_remap_failed=failed,
        pcie_width=gpu.number(nvml.nvmlDeviceGetCurrPcieLinkWidth),
        pcie_generation=gpu.number(nvml.nvmlDeviceGetCurrPcieLinkGeneration),
        pcie_replays=gpu.number(nvml.nvmlDeviceGetPcieReplayCounter),
        processes=gpu.ask(lambda h: _processes(nvml, h)),
        links=gpu.ask(lambda h: _links(gpu, h)) if links else None,
    )


def _memory(nvml: ModuleType, handle: Any) -> tuple[float, float]:
    """Used and present, in bytes. The older function counts what the driver reserves as used."""
    found = _newest(
        nvml,
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
    )
    return float(found.used), float(found.total)


def _temperature(nvml: ModuleType, handle: Any) -> int:
    calls = [lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)]
    if hasattr(nvml, "nvmlDeviceGetTemperatureV"):  # bindings since 12.570
        calls.insert(0, lambda: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))
    return int(_newest(nvml, *calls))


def _margin(nvml: ModuleType, handle: Any) -> int:
    if not hasattr(nvml, "nvmlDeviceGetMarginTemperature"):  # bindings since 12.570
        raise nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return int(nvml.nvmlDeviceGetMarginTemperature(handle))


def _clock_reasons(nvml: ModuleType, handle: Any) -> int:
    """The old name of the function until driver 535, the new one since."""
    return int(
        _newest(
            nvml,
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        )
    )


def _processes(nvml: ModuleType, handle: Any) -> tuple[GpuProcess, ...]:
    found = _newest(
        nvml,
        lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle),
        lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle),
    )
    return tuple(GpuProcess(int(p.pid), None if p.usedGpuMemory is None else float(p.usedGpuMemory)) for p in found)


def _links(gpu: GpuHandle, handle: Any) -> tuple[NvLink, ...]:
    """The NVLinks that are up. The driver says "invalid argument" past the last link."""
    nvml = gpu.nvml
    found = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            up = nvml.nvmlDeviceGetNvLinkState(handle, link)
        except nvml.NVMLError_InvalidArgument:
            break
        if up:
            found.append(NvLink(link, tuple(_link_errors(gpu, link, counter) for counter in range(4))))
    return tuple(found)


def _link_errors(gpu: GpuHandle, link: int, counter: int) -> Number:
    # 0 replay, 1 recovery, 2 CRC in flits, 3 CRC in data (NVML_NVLINK_ERROR_DL_*)
    return gpu.number(lambda h: gpu.nvml.nvmlDeviceGetNvLinkErrorCounter(h, link, counter))
