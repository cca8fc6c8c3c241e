"""What one look through NVML writes down: every answer of the driver, or its word for why there is none.

The record is the artifact. Parsing sees nothing else, so that a replay reads exactly what the live look read.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact

SCHEMA_VERSION = 1
MAX_RECORD = 64 << 20  # bytes of JSON; 16 GPUs watched at the highest number of samples need about 20 MiB
MAX_GPUS = 256


class NvmlCode(IntEnum):
    """The members of nvmlReturn_t that change what is reported."""

    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    VERSION_MISMATCH = 18
    UNKNOWN = 999


# A GPU that was there and is gone, or that does not work until it is reset.
LOST = frozenset({NvmlCode.GPU_IS_LOST, NvmlCode.RESET_REQUIRED})

# Records of versions before 0.2 contain NVML's text in lower case and no code.
_CODE_OF_TEXT = {
    "not supported": NvmlCode.NOT_SUPPORTED,
    "insufficient permissions": NvmlCode.NO_PERMISSION,
    "function not found": NvmlCode.FUNCTION_NOT_FOUND,
    "gpu is lost": NvmlCode.GPU_IS_LOST,
    "gpu requires restart": NvmlCode.RESET_REQUIRED,
}


class Unavailable(Struct, frozen=True):
    """NVML returned no value: its error text in lower case (`not supported`) and its return code (nvmlReturn_t).

    `code` is None in older records, and where the value was returned but cannot be used.
    """

    error: str
    code: int | None = None

    @property
    def status(self) -> int | None:
        return self.code if self.code is not None else _CODE_OF_TEXT.get(self.error)


Number = float | Unavailable
Whole = int | Unavailable
Text = str | Unavailable


class GpuDevice(Struct, frozen=True):
    """What does not change while a GPU is watched. Clocks in Hz, temperatures in °C."""

    index: int
    name: Text
    uuid: Text
    pci: Text  # 0000:9b:00, as the kernel writes it in its log
    sm_clock_max: Number
    temperature_slowdown: Number
    pcie_width_max: Number
    pcie_generation_max: Number
    mig: Whole  # 1 where the GPU is partitioned
    refused: str = ""  # why the driver gives no handle to it
    refused_code: int | None = None  # the return code for that


class GpuProcess(Struct, frozen=True, omit_defaults=True):
    """A process that computes on a GPU; `memory` in bytes, None if the driver does not report it.

    `utilization` and `memory_utilization` are shares of time, as `nvidia-smi pmon` shows them.
    """

    pid: int
    memory: float | None
    name: str = ""  # as texts show it; NVML itself gives none
    utilization: float | None = None
    memory_utilization: float | None = None


class NvLink(Struct, frozen=True):
    """An NVLink that is up, and its error counters since the driver was loaded."""

    link: int
    errors: tuple[Number, ...]  # replay, recovery, CRC in flits, CRC in data


class GpuSample(Struct, frozen=True):
    """One GPU at one moment. Bytes, Hz, °C, W; shares 0..1; `time` is unix seconds UTC."""

    time: float
    index: int
    utilization: Number
    performance_state: Number  # 0 is the fastest, 8 and more are idle states
    memory_used: Number
    memory_total: Number
    sm_clock: Number
    temperature: Number
    temperature_margin: Number  # to the nearest slowdown threshold, as newer drivers report it themselves
    power: Number
    power_limit: Number
    clock_reasons: Whole  # bit mask of clocks-event reasons
    ecc_uncorrectable: Number
    row_remap_pending: Number
    row_remap_failed: Number
    pcie_width: Number
    pcie_generation: Number
    pcie_replays: Number
    processes: tuple[GpuProcess, ...] | Unavailable
    links: tuple[NvLink, ...] | Unavailable | None = None  # None where this sample did not ask


class NvmlRecord(Struct, frozen=True):
    """One look at every GPU of this machine. `own` are those GPU processes that belong to the watched `pid`."""

    schema_version: int
    driver: Text
    cuda: Text
    pid: int | None
    own: tuple[int, ...]
    devices: tuple[GpuDevice, ...]
    samples: tuple[GpuSample, ...]


def read_record(artifact: Artifact) -> NvmlRecord:
    """The record in `artifact`. Raises SourceError where it is damaged or contradicts itself."""

    def refuse(what: str) -> SourceError:
        return SourceError(what, where=artifact.source, next_step="collect it again")

    try:
        record = msgspec.json.decode(artifact.read(MAX_RECORD), type=NvmlRecord)
    except UNDECODABLE as error:
        raise refuse(f"not a record of NVML samples: {error}") from error
    if record.schema_version != SCHEMA_VERSION:
        raise refuse(f"a record of version {record.schema_version}; version {SCHEMA_VERSION} is read")
    known = {device.index for device in record.devices}
    if len(known) != len(record.devices) or len(known) > MAX_GPUS or any(index < 0 for index in known):
        raise refuse("the record has too many GPUs, or one GPU twice")
    if {sample.index for sample in record.samples} != known:
        raise refuse("the GPUs and the samples in the record do not belong together")
    times = [sample.time for sample in record.samples]
    if times != sorted(times):
        raise refuse("the samples in the record are not in the order of time")
    return record
