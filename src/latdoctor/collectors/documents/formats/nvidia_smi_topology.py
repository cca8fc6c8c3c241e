"""`nvidia-smi topo -m`: how each GPU is connected to every other one. The slowest connection of each is kept."""

from __future__ import annotations

import re

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject

PEER_LINK = "gpu.peer_link"
_HEADING = re.compile(r"^\s*(?:GPU\d{1,3}\s+)+(?:\S+\s+)*(?:CPU Affinity|NUMA Affinity|NIC\d|mlx5_\d|GPU NUMA ID|$)")
_ROW = re.compile(r"^\s*GPU(\d{1,3})\s+(.*)")
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|PSB|NV\d{1,2}|SOC")
# From the slowest to the fastest; NVLink last.
_ORDER = ("SYS", "SOC", "NODE", "PHB", "PXB", "PSB", "PIX")


def read(section: Section) -> Evidence:
    """The slowest connection of each GPU to another one. Raises ValueError where no row fits."""
    lines = section.text.splitlines()
    columns = re.findall(r"GPU\d{1,3}\b", lines[0]) if lines else []
    readings = []
    for number, line in enumerate(lines[1:], 1):
        row = _ROW.match(line)
        if not row:
            continue
        cells = [cell for cell in row[2].split()[: len(columns)] if _LINK.fullmatch(cell)]
        others = [cell for cell in cells if cell != "X"]
        if len(cells) == len(columns) and others:
            slowest = min(others, key=_rank)
            readings.append(Reading(PEER_LINK, f"gpu/{row[1]}", slowest, section.origin(number)))
    if not columns or not any(_ROW.match(line) for line in lines[1:]):
        raise ValueError("it has no row of a GPU")
    return Evidence(subjects=tuple(Subject(one.subject, "node/local") for one in readings), readings=tuple(readings))


def _rank(link: str) -> float:
    return _ORDER.index(link) if link in _ORDER else len(_ORDER) + float(link.removeprefix("NV") or 0)


FORMAT = TextFormat(
    name="nvidia-smi-topology",
    title="nvidia-smi topo -m",
    begins=_HEADING,
    confirms=re.compile(r"^\s*GPU0\s+X\b", re.MULTILINE),
    read=read,
    provides=frozenset({PEER_LINK}),
)
