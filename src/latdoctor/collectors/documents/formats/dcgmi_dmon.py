"""`dcgmi dmon`: rows of fields under a heading of short names, which repeats. Rows have no times.

Shares of the profiling fields are means of the rows. A field that is not asked for is not in the text, and `N/A` is no
zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from latdoctor.collectors.documents.nvidia_smi.evidence import PROVIDES, Machine, evidence_of
from latdoctor.collectors.documents.nvidia_smi.fields import GpuState
from latdoctor.collectors.documents.nvidia_smi.values import MISSING, number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nvml.samples import Unavailable
from latdoctor.evidence.model import Evidence, Reading

# The names of DCGM's fields in a heading, and the fields of nvidia-smi that they are.
_FIELDS: Mapping[str, str] = {
    "GPUTL": "utilization.gpu",
    "MCUTL": "utilization.memory",
    "ENCUT": "utilization.encoder",
    "DECUT": "utilization.decoder",
    "TMPTR": "temperature.gpu",
    "MMTMP": "temperature.memory",
    "POWER": "power.draw",
    "SMCLK": "clocks.current.sm",
    "MMCLK": "clocks.current.memory",
    "FBTTL": "memory.total",
    "FBUSD": "memory.used",
    "FBFRE": "memory.free",
    "PRPLY": "pcie.replays",
}
# Shares of time of the profiling fields.
_SHARES: Mapping[str, str] = {
    "GRACT": "gpu.engine_active",
    "SMACT": "gpu.sm_active",
    "SMOCC": "gpu.sm_occupancy",
    "TENSO": "gpu.tensor_active",
    "DRAMA": "gpu.dram_active",
    "FP64A": "gpu.fp64_active",
    "FP32A": "gpu.fp32_active",
    "FP16A": "gpu.fp16_active",
}
# Bytes per second.
_RATES: Mapping[str, str] = {
    "PCITX": "gpu.pcie.tx_rate",
    "PCIRX": "gpu.pcie.rx_rate",
    "NVLTX": "gpu.nvlink.tx_rate",
    "NVLRX": "gpu.nvlink.rx_rate",
}
_HEADING = re.compile(r"^\s*#\s*Entity\s+((?:[A-Z0-9]{3,6}\s*)+)$")
_ROW = re.compile(r"^\s*GPU (\d{1,3})\s+(\S.*)")
_LONGEST = 200_000  # lines
_MOST = 1e15

Row = tuple[int, Mapping[str, str]]


def read(section: Section) -> Evidence:
    """The samples of every GPU. Raises ValueError where no row fits the heading."""
    rows = list(_rows(section.text.splitlines()[:_LONGEST]))
    if not rows:
        raise ValueError("no row of a GPU under its heading")
    states = [
        GpuState(gpu, {_FIELDS[name]: text for name, text in row.items() if name in _FIELDS}) for gpu, row in rows
    ]
    known = evidence_of(states, Machine(MISSING, MISSING, lists_all=False), section)
    return Evidence.merge([known, Evidence(readings=tuple(_profiled(rows, section)))])


def _rows(lines: Sequence[str]) -> Iterator[Row]:
    names: list[str] = []
    for line in lines:
        if heading := _HEADING.match(line):
            names = heading[1].split()
        elif (row := _ROW.match(line)) and len(cells := row[2].split()) == len(names):
            yield int(row[1]), dict(zip(names, cells, strict=True))


def _profiled(rows: Sequence[Row], section: Section) -> Iterator[Reading]:
    for gpu in dict.fromkeys(gpu for gpu, _ in rows):
        for name, signal in {**_SHARES, **_RATES}.items():
            texts = [row[name] for index, row in rows if index == gpu and name in row]
            highest = 1.0 if name in _SHARES else _MOST  # what is above it stands for no value in DCGM
            values = [
                value for text in texts if not isinstance(value := number(text), Unavailable) and 0 <= value <= highest
            ]
            if values:
                mean = math.fsum(values) / len(values)
                yield Reading(signal, f"gpu/{gpu}", mean, section.origin(place=f"line {section.first_line}, GPU {gpu}"))


FORMAT = TextFormat(
    name="dcgmi-dmon",
    title="dcgmi dmon",
    begins=_HEADING,
    confirms=re.compile(r"^\s*GPU \d{1,3}\s+(?:[\d.]|N/A)", re.MULTILINE),
    read=read,
    provides=PROVIDES | frozenset({*_SHARES.values(), *_RATES.values()}),
    repeats=True,
)
