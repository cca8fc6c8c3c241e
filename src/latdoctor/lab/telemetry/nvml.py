"""What NVML tells of a machine's GPUs over a window, in the form in which a look writes it down.

A value is a number, or the driver's own word for why it tells none. Bytes, Hz, °C, W; shares 0..1; unix seconds.
"""

from __future__ import annotations

from msgspec import Struct

SCHEMA_VERSION = 1


class Refused(Struct, frozen=True):
    """The driver gave no value; `error` is its word."""

    error: str


NOT_SUPPORTED = Refused("not supported")
NOT_FOUND = Refused("function not found")
LOST = Refused("gpu is lost")

Number = float | Refused
Whole = int | Refused


class Device(Struct, frozen=True):
    """What does not change while a GPU is watched."""

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


class Process(Struct, frozen=True):
    """A process that computes on a GPU."""

    pid: int
    memory: float | None


class Link(Struct, frozen=True):
    """An NVLink and its counters: replay, recovery, CRC in flits, CRC in data."""

    link: int
    errors: tuple[Number, ...]


class Sample(Struct, frozen=True):
    """One GPU at one moment; `links` are asked for at the ends of the window only."""

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
    processes: tuple[Process, ...] | Refused
    links: tuple[Link, ...] | Refused | None = None


class Record(Struct, frozen=True):
    """Every GPU of one machine; `own` are those of its processes that belong to the watched `pid`."""

    schema_version: int
    driver: str
    cuda: str
    pid: int | None
    own: tuple[int, ...]
    devices: tuple[Device, ...]
    samples: tuple[Sample, ...]
