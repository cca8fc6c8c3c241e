"""The table that `nvidia-smi` prints without arguments: two or three rows a GPU, MIG devices, processes.

All layouts from driver 3xx on: cells are found by their bars and words, not by their columns. Several tables (`watch`,
`-l`) become samples over time, each with the time that stands above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from latdoctor.collectors.documents.nvidia_smi.evidence import PROVIDES, Machine, evidence_of
from latdoctor.collectors.documents.nvidia_smi.fields import GpuState
from latdoctor.collectors.documents.nvidia_smi.values import MISSING, number, time_of, word
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nvml.samples import GpuProcess, Unavailable
from latdoctor.evidence.model import Evidence, Reading, Subject

_HEADING = re.compile(r"NVIDIA-SMI\s+([\w.]{1,40})\s")
_DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*([\w.]{1,40})")
_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s*([\w./]{1,40})")
_BUS = r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
_MODE = r"(?:On|Off|N/A|ERR!|Unknown Error|Enabled|Disabled|TCC|WDDM|MCDM|WDM)"
_GPU_ROW = re.compile(rf"\s*(\d{{1,3}})\s+(\S.*?)\s+({_MODE})?\s*")
_BUS_CELL = re.compile(rf"\s*({_BUS}|ERR!|N/A)\s*(On|Off|N/A|ERR!)?\s*")
_STATE_ROW = re.compile(
    r"\s*(\d{1,3}%|N/A|ERR!|Unknown Error)\s+(-?\d{1,3}\s?C|N/A|ERR!|Unknown Error)\s+(P\d{1,2}|N/A|ERR!|Unknown Error)"
    r"\s+(?:(\d{1,5}W|N/A|ERR!|Unknown Error)\s*/\s*(\d{1,5}W|N/A|ERR!|Unknown Error)|(Unknown Error))\s*"
)
_ERROR_CELL = re.compile(r"\s*(ERR!|Unknown Error|GPU is lost|GPU requires reset)\s*", re.I)
_MEMORY_CELL = re.compile(
    r"\s*(\d{1,9}\s?Mi?B|N/A|ERR!|Unknown Error)\s*/\s*(\d{1,9}\s?Mi?B|N/A|ERR!|Unknown Error)\s*"
)
_LOAD_CELL = re.compile(r"\s*(\d{1,3}\s?%|N/A|ERR!|Unknown Error)\s+\S.*")
_LOST = re.compile(r"GPU is lost|GPU requires reset", re.I)
_MIG_ROW = re.compile(r"\s*(\d{1,3})\s+(\d{1,3})\s+(\d{1,3}|N/A)\s+(\d{1,3})\s*")
_PROCESS = re.compile(
    r"\|\s*(\d{1,3})\s+(?:(?:\d{1,3}|N/A)\s+(?:\d{1,3}|N/A)\s+)?(\d{1,10})\s+([CGM+]{1,5})\s+(\S.*?)\s+"
    r"(\d{1,9}\s?Mi?B|N/A)\s*\|"
)
_NO_PROCESSES = re.compile(r"No running (?:compute )?processes found")
_PROCESSES = re.compile(r"[Pp]rocesses:|GPU\s+(?:GI\s+CI\s+)?PID\s+Type")
_MIG = re.compile(r"MIG devices:")
_LONGEST = 1_000_000  # lines
MIG_DEVICES = "gpu.mig_devices"


class _Part(Enum):
    """The part of a table that a row belongs to."""

    GPUS = auto()
    MIG = auto()
    PROCESSES = auto()


@dataclass(slots=True)
class _Gpu:
    index: int
    fields: dict[str, str]
    processes: list[GpuProcess] = field(default_factory=list)


@dataclass(slots=True)
class _Table:
    """One output of the command. `listed`: whether it has a list of processes, which may be empty."""

    time: float | None = None
    driver: str = ""
    cuda: str = ""
    gpus: dict[int, _Gpu] = field(default_factory=dict)
    slices: list[tuple[int, str, str, str]] = field(default_factory=list)  # GPU, MIG device, used, total
    no_slices: bool = False  # it says that there is no MIG device
    listed: bool = False
    part: _Part = _Part.GPUS
    last: _Gpu | None = None  # the GPU of the last row


def read(section: Section) -> Evidence:
    """The state of every GPU in the tables. Raises ValueError where there is none."""
    tables = [table for table in _tables(section.text.splitlines()[:_LONGEST]) if table.gpus]
    if not tables:
        raise ValueError("it lists no GPU")
    last = tables[-1]
    states = [
        GpuState(gpu.index, gpu.fields, table.time, tuple(gpu.processes) if table.listed else MISSING)
        for table in tables
        for gpu in table.gpus.values()
    ]
    found = evidence_of(states, Machine(word(last.driver), word(last.cuda)), section)
    return Evidence.merge([found, _slices(last, section)])


def _tables(lines: Sequence[str]) -> Iterator[_Table]:
    time: float | None = None
    table: _Table | None = None
    for line in lines:
        if "|" not in line:
            moment = time_of(line)
            time = moment if moment is not None else time
        elif _HEADING.search(line):
            if table:
                yield table
            driver, cuda = _DRIVER.search(line), _CUDA.search(line)
            table = _Table(time, driver[1] if driver else "", cuda[1] if cuda else "")
            time = None
        elif table:
            _row(table, line)
    if table:
        yield table


def _row(table: _Table, line: str) -> None:
    if _MIG.search(line):
        table.part = _Part.MIG
    elif _PROCESSES.search(line):
        table.part = _Part.PROCESSES
    elif table.part is _Part.PROCESSES:
        _process(table, line)
    elif table.part is _Part.MIG:
        _slice(table, line)
    else:
        table.last = _gpu_row(table, table.last, line.strip().strip("|").split("|"))


def _gpu_row(table: _Table, last: _Gpu | None, cells: list[str]) -> _Gpu | None:
    """The GPU that the row is about."""
    if len(cells) < 3:
        if last is not None and (lost := _LOST.search(" ".join(cells))):
            last.fields.setdefault("utilization.gpu", lost[0])
        return last
    if (first := _GPU_ROW.fullmatch(cells[0])) and (bus := _BUS_CELL.fullmatch(cells[1])):
        fields = {"name": first[2], "pci.bus_id": bus[1], "ecc.errors.uncorrected.volatile.total": _ecc(cells[2])}
        if first[3]:
            fields["persistence_mode"] = first[3]
        gpu = table.gpus[int(first[1])] = _Gpu(int(first[1]), {k: v for k, v in fields.items() if v})
        return gpu
    if last is not None:
        _state_row(last, cells)
    return last


def _ecc(cell: str) -> str:
    """`Off` counts nothing."""
    text = cell.strip()
    return "N/A" if text == "Off" else text


def _state_row(gpu: _Gpu, cells: list[str]) -> None:
    state, memory, load = _STATE_ROW.fullmatch(cells[0]), _MEMORY_CELL.fullmatch(cells[1]), _LOAD_CELL.match(cells[2])
    if state:
        fan, temperature, level, drawn, limit, failed = state.groups()
        found = {"fan.speed": fan, "temperature.gpu": temperature, "pstate": level}
        gpu.fields |= found | {"power.draw": drawn or failed, "power.limit": limit or failed}
    if memory:
        gpu.fields["memory.used"], gpu.fields["memory.total"] = memory[1], memory[2]
    elif state and (failed_cell := _ERROR_CELL.fullmatch(cells[1])):
        gpu.fields["memory.used"] = failed_cell[1]
    if load and (state or memory):
        gpu.fields["utilization.gpu"] = load[1]
    elif state and (failed_cell := _ERROR_CELL.fullmatch(cells[2])):
        gpu.fields["utilization.gpu"] = failed_cell[1]
    elif not state and not memory and cells[2].strip().rstrip("*") in ("Enabled", "Disabled"):
        gpu.fields["mig.mode.current"] = cells[2].strip().rstrip("*")


def _process(table: _Table, line: str) -> None:
    if _NO_PROCESSES.search(line):
        table.listed = True
    elif row := _PROCESS.search(line):
        table.listed = True
        memory = number(row[5])
        gpu = table.gpus.get(int(row[1]))
        if gpu is not None:
            known = None if isinstance(memory, Unavailable) else memory
            gpu.processes.append(GpuProcess(int(row[2]), known, row[4]))


def _slice(table: _Table, line: str) -> None:
    table.no_slices = table.no_slices or "No MIG devices found" in line
    cells = line.strip().strip("|").split("|")
    row = _MIG_ROW.fullmatch(cells[0])
    memory = _MEMORY_CELL.fullmatch(cells[1]) if len(cells) > 1 else None
    if row and memory:
        table.slices.append((int(row[1]), row[4], memory[1], memory[2]))


def _slices(table: _Table, section: Section) -> Evidence:
    """The memory of each MIG device of the last table."""
    subjects, readings = [], list(_without_slices(table, section))
    for gpu, device, used_text, total_text in table.slices:
        subject = f"gpu/{gpu}/mig/{device}"
        subjects.append(Subject(subject, f"gpu/{gpu}"))
        used, total = number(used_text), number(total_text)
        values = {"gpu.memory_used": used, "gpu.memory_total": total}
        if not isinstance(used, Unavailable) and not isinstance(total, Unavailable) and total > 0:
            values["gpu.memory_used_ratio"] = used / total
        origin = section.origin(place=f"line {section.first_line}, MIG device {gpu}/{device}")
        readings += [Reading(k, subject, v, origin) for k, v in values.items() if not isinstance(v, Unavailable)]
    return Evidence(subjects=tuple(subjects), readings=tuple(readings))


def _without_slices(table: _Table, section: Section) -> Iterator[Reading]:
    """A GPU in MIG mode runs nothing but in its MIG devices."""
    for gpu in table.gpus.values() if table.no_slices and not table.slices else ():
        if gpu.fields.get("mig.mode.current") == "Enabled":
            place = f"line {section.first_line}, GPU {gpu.index}"
            yield Reading(MIG_DEVICES, f"gpu/{gpu.index}", 0.0, section.origin(place=place))


FORMAT = TextFormat(
    name="nvidia-smi-table",
    title="nvidia-smi",
    begins=re.compile(
        r"^\s*\|\s*NVIDIA-SMI\s+[\w.]+.*(?:Driver|KMD) Version:"
        r"|^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\s*$"
        r"|^Every [\d.]+s: .*nvidia-smi"
    ),
    confirms=re.compile(r"NVIDIA-SMI\s+[\w.]+"),
    read=read,
    provides=PROVIDES | {MIG_DEVICES},
    contains_times=True,
    repeats=True,
)
