"""`nvidia-smi nvlink -s` and `-e`: the speed and the error counters of every NVLink of every GPU,
and `nvidia-smi -L`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject, Value

ACTIVE, INACTIVE, ERRORS = "gpu.nvlink.active_links", "gpu.nvlink.inactive_links", "gpu.nvlink.errors"
_GPU = re.compile(r"^\s*GPU (\d{1,3}): (.{1,80}?) \(UUID: (GPU-[0-9a-fA-F-]{36})\)")
_SPEED = re.compile(r"^\s*Link (\d{1,2}): (?:(\d{1,5}(?:\.\d+)?) GB/s|<?(inactive|disabled|down)>?)", re.I)
_ERROR = re.compile(
    r"^\s*Link (\d{1,2}): .{0,40}?(?:Replay|Recovery|CRC|ECC|Malformed|Buffer|Link|Rx|Tx|Effective"
    r"|Symbol).{0,40}?: (\d{1,18})\s*$"
)
_PEER = re.compile(r"^\s*MIG \S")


@dataclass(slots=True)
class _Gpu:
    name: str
    uuid: str
    active: int = 0
    inactive: int = 0
    errors: dict[str, int] = field(default_factory=dict)


def read(section: Section) -> Evidence:
    """The links of every GPU. Raises ValueError where no GPU is listed."""
    gpus: dict[int, _Gpu] = {}
    current: _Gpu | None = None
    for line in section.text.splitlines():
        if found := _GPU.match(line):
            current = gpus.setdefault(int(found[1]), _Gpu(found[2], found[3]))
        elif current is None or _PEER.match(line):
            continue
        elif speed := _SPEED.match(line):
            active = speed[2] is not None and float(speed[2]) > 0
            current.active, current.inactive = current.active + active, current.inactive + (not active)
        elif counter := _ERROR.match(line):
            key = line.rpartition(":")[0].strip()
            current.errors[key] = int(counter[2])
    if not gpus:
        raise ValueError("it lists no GPU")
    readings = tuple(one for index, gpu in sorted(gpus.items()) for one in _readings(index, gpu, section))
    return Evidence(subjects=tuple(Subject(f"gpu/{index}", "node/local") for index in sorted(gpus)), readings=readings)


def _readings(index: int, gpu: _Gpu, section: Section) -> list[Reading]:
    values: dict[str, Value] = {"gpu.name": gpu.name, "gpu.uuid": gpu.uuid}
    if gpu.active or gpu.inactive:
        values |= {ACTIVE: float(gpu.active), INACTIVE: float(gpu.inactive)}
    if gpu.errors:
        values[ERRORS] = float(sum(gpu.errors.values()))
    origin = section.origin(place=f"line {section.first_line}, GPU {index}")
    return [Reading(signal, f"gpu/{index}", value, origin) for signal, value in values.items()]


FORMAT = TextFormat(
    name="nvidia-smi-nvlink",
    title="nvidia-smi nvlink",
    begins=_GPU,
    read=read,
    provides=frozenset({"gpu.name", "gpu.uuid", ACTIVE, INACTIVE, ERRORS}),
    repeats=True,
)
