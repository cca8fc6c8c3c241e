"""NVML samples as `nvidia-smi --query-gpu=… --format=csv -lms 500` prints them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from latdoctor.lab.telemetry.boards import MHZ, MIB
from latdoctor.lab.telemetry.nvml import LOST, Device, Number, Record, Refused, Sample

_COLUMNS: tuple[tuple[str, Callable[[Device, Sample], Number | str]], ...] = (
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


def csv(record: Record) -> bytes:
    """One row for each GPU at each moment, UTC."""
    devices = {device.index: device for device in record.devices}
    rows = [", ".join(["timestamp", *(name for name, _ in _COLUMNS)])]
    for sample in record.samples:
        stamp = datetime.fromtimestamp(sample.time, UTC)
        cells = [str(read(devices[sample.index], sample)) for _, read in _COLUMNS]
        rows.append(", ".join([f"{stamp:%Y/%m/%d %H:%M:%S}.{stamp.microsecond // 1000:03d}", *cells]))
    return ("\n".join(rows) + "\n").encode()


def _times(value: Number, factor: float) -> Number:
    return value if isinstance(value, Refused) else value * factor


def _with(value: Number, form: str) -> str:
    if isinstance(value, Refused):
        return "[GPU is lost]" if value == LOST else "[N/A]"
    return form.format(value)


def _bits(sample: Sample) -> str:
    reasons = sample.clock_reasons
    return _with(reasons, "") if isinstance(reasons, Refused) else f"0x{reasons:016X}"
