"""`rocm-smi`: the concise table of AMD GPUs, old and new columns alike; cells are found by their units."""

from __future__ import annotations

import re

from latdoctor.collectors.documents.nvidia_smi.evidence import PROVIDES, Machine, evidence_of
from latdoctor.collectors.documents.nvidia_smi.fields import GpuState
from latdoctor.collectors.documents.nvidia_smi.values import MISSING
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading

_HEADING = re.compile(r"^\s*(?:GPU|Device)\s.*\bTemp\b.*\bVRAM%\s+(?:GPU%|Use%)")
_ROW = re.compile(r"^\s*(\d{1,3})\s+\S")
_TEMPERATURE = re.compile(r"(\d{1,3}(?:\.\d+)?)\s?°?[cC]\b")
_WATTS = re.compile(r"(\d{1,4}(?:\.\d+)?)W\b")
_CLOCKS = re.compile(r"(\d{1,5})M[hH]z")
_SHARES = re.compile(r"(\d{1,3}(?:\.\d+)?)%")
_WHERE = "gpu.memory_used_ratio"


def read(section: Section) -> Evidence:
    """The state of every GPU. Raises ValueError where no row fits the heading."""
    heading: str | None = None
    states: list[GpuState] = []
    shares: list[Reading] = []
    for number, line in enumerate(section.text.splitlines()):
        if _HEADING.match(line):
            heading = line
        elif heading and (row := _ROW.match(line)) and "%" in line:
            index = int(row[1])
            fields, memory = _fields(heading, line)
            states.append(GpuState(index, fields))
            if memory is not None:
                shares.append(Reading(_WHERE, f"gpu/{index}", memory, section.origin(number)))
    found = evidence_of(states, Machine(MISSING, MISSING), section)
    return Evidence.merge([found, Evidence(readings=tuple(shares))])


def _fields(heading: str, line: str) -> tuple[dict[str, str], float | None]:
    """The fields of a row, and the share of memory in use; a cell without its unit (`N/A`) has no field."""
    fields: dict[str, str] = {}
    if temperature := _TEMPERATURE.search(line):
        fields["temperature.gpu"] = temperature[1]
    watts, clocks, shares = _WATTS.findall(line), _CLOCKS.findall(line), _SHARES.findall(line)
    if len(watts) == 2 and "PwrCap" in heading:
        fields["power.draw"], fields["power.limit"] = watts
    if len(clocks) == 2:
        fields["clocks.current.sm"], fields["clocks.current.memory"] = clocks
    if len(shares) >= 2:
        fields["utilization.gpu"] = shares[-1]
    if len(shares) == 3 and "Fan" in heading:
        fields["fan.speed"] = shares[0]
    return fields, float(shares[-2]) / 100 if len(shares) >= 2 else None


FORMAT = TextFormat(
    name="rocm-smi",
    title="rocm-smi",
    begins=_HEADING,
    confirms=re.compile(r"^\s*\d{1,3}\s.*%", re.MULTILINE),
    read=read,
    provides=PROVIDES,
    repeats=True,
)
