"""NVML samples as `nvidia-smi --query-gpu=… --format=csv -lms 500` prints them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct

SCHEMA_VERSION = 1


class NvmlRefusal(Struct, frozen=True):
    """The driver returned an error instead of a value."""

    error: str


NOT_SUPPORTED = NvmlRefusal("not supported")
NOT_FOUND = NvmlRefusal("function not found")
MHZ, MIB, GIB = 1e6, 1 << 20, 1 << 30
LOST = NvmlRefusal("gpu is lost")

Number = float | NvmlRefusal
Whole = int | NvmlRefusal


class NvmlDevice(Struct, frozen=True):
    """The static properties of a GPU."""

    index: int
    name: str
    uuid: str
    pci: str
    sm_clock_max: Number
    temperature_slowdown: Number
    pcie_width_max: Number
    pcie_generation_max: Number
    mig: Whole
    refused: str = ""


class GpuProcess(Struct, frozen=True):
    """A compute process on a GPU."""

    pid: int
    memory: float | None


class NvLinkCounters(Struct, frozen=True):
    """An NVLink and its counters: replay, recovery, CRC in flits, CRC in data."""

    link: int
    errors: tuple[Number, ...]


class NvmlSample(Struct, frozen=True):
    """One GPU at one moment; `links` are sampled at the ends of the window only."""

    time: float
    index: int
    utilization: Number
    performance_state: Number
    memory_used: Number
    memory_total: Number
    sm_clock: Number
    temperature: Number
    temperature_margin: Number
    power: Number
    power_limit: Number
    clock_reasons: Whole
    ecc_uncorrectable: Number
    row_remap_pending: Number
    row_remap_failed: Number
    pcie_width: Number
    pcie_generation: Number
    pcie_replays: Number
    processes: tuple[GpuProcess, ...] | NvmlRefusal
    links: tuple[NvLinkCounters, ...] | NvmlRefusal | None = None


class NvmlRecord(Struct, frozen=True):
    """Every GPU of one machine; `own` are those of its processes that belong to the watched `pid`."""

    schema_version: int
    driver: str
    cuda: str
    pid: int | None
    own: tuple[int, ...]
    devices: tuple[NvmlDevice, ...]
    samples: tuple[NvmlSample, ...]


_COLUMNS: tuple[tuple[str, Callable[[NvmlDevice, NvmlSample], Number | str]], ...] = (
    ("index", lambda device, _: str(device.index)),
    ("name", lambda device, _: device.name),
    ("pci.bus_id", lambda device, _: f"0000{device.pci.upper()}.0"),
    ("pstate", lambda _, sample: _with(sample.performance_state, "P{:.0f}")),
    ("utilization.gpu [%]", lambda _, sample: _with(_times(sample.utilization, 100), "{:.0f} %")),
    ("memory.used [MiB]", lambda _, sample: _with(_times(sample.memory_used, 1 / MIB), "{:.0f} MiB")),
    ("memory.total [MiB]", lambda _, sample: _with(_times(sample.memory_total, 1 / MIB), "{:.0f} MiB")),
    ("temperature.gpu", lambda _, sample: _with(sample.temperature, "{:.0f}")),
    ("power.draw [W]", lambda _, sample: _with(sample.power, "{:.2f} W")),
    ("enforced.power.limit [W]", lambda _, sample: _with(sample.power_limit, "{:.2f} W")),
    ("clocks.current.sm [MHz]", lambda _, sample: _with(_times(sample.sm_clock, 1 / MHZ), "{:.0f} MHz")),
    ("clocks_event_reasons.active", lambda _, sample: _bits(sample)),
    ("pcie.link.gen.current", lambda _, sample: _with(sample.pcie_generation, "{:.0f}")),
    ("pcie.link.width.current", lambda _, sample: _with(sample.pcie_width, "{:.0f}")),
)


def csv(record: NvmlRecord) -> bytes:
    """One row for each GPU at each moment, UTC."""
    devices = {device.index: device for device in record.devices}
    rows = [", ".join(["timestamp", *(name for name, _ in _COLUMNS)])]
    for sample in record.samples:
        stamp = datetime.fromtimestamp(sample.time, UTC)
        cells = [str(read(devices[sample.index], sample)) for _, read in _COLUMNS]
        rows.append(", ".join([f"{stamp:%Y/%m/%d %H:%M:%S}.{stamp.microsecond // 1000:03d}", *cells]))
    return ("\n".join(rows) + "\n").encode()


def _times(value: Number, factor: float) -> Number:
    return value if isinstance(value, NvmlRefusal) else value * factor


def _with(value: Number, form: str) -> str:
    if isinstance(value, NvmlRefusal):
        return "[GPU is lost]" if value == LOST else "[N/A]"
    return form.format(value)


def _bits(sample: NvmlSample) -> str:
    reasons = sample.clock_reasons
    return _with(reasons, "") if isinstance(reasons, NvmlRefusal) else f"0x{reasons:016X}"
