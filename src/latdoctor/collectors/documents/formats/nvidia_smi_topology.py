"""`nvidia-smi topo -m`: how each GPU is connected to every other one and to the network adapters.

Of the connections of a GPU the slowest to another one and the fastest to an adapter are kept.
"""

from __future__ import annotations

import re

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject

PEER_LINK, NIC_LINK = "gpu.peer_link", "gpu.nic_link"
_HEADING = re.compile(r"^\s*(?:GPU\d{1,3}\s+)+(?:\S+\s+)*(?:CPU Affinity|NUMA Affinity|NIC\d|mlx5_\d|GPU NUMA ID|$)")
_ROW = re.compile(r"^\s*GPU(\d{1,3})\s+(.*)")
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|PSB|NV\d{1,2}|SOC")
_COLUMN = re.compile(r"GPU\d{1,3}|NIC\d{1,3}|(?:mlx|rocep|roceo|ibp|hfi|bnxt|irdma|efa)\w{1,30}")
# From the slowest to the fastest; NVLink last.
_ORDER = ("SYS", "SOC", "NODE", "PHB", "PXB", "PSB", "PIX")


def read(section: Section) -> Evidence:
    """The slowest connection of each GPU to another one. Raises ValueError where no row fits."""
    lines = section.text.splitlines()
    columns = _columns(lines[0]) if lines else []
    readings = []
    for number, line in enumerate(lines[1:], 1):
        row = _ROW.match(line)
        cells = row[2].split()[: len(columns)] if row else []
        if row is None or len(cells) < len(columns) or not all(_LINK.fullmatch(cell) for cell in cells):
            continue
        subject, origin = f"gpu/{row[1]}", section.origin(number)
        peers = [cell for name, cell in zip(columns, cells, strict=True) if name.startswith("GPU") and cell != "X"]
        adapters = [cell for name, cell in zip(columns, cells, strict=True) if not name.startswith("GPU")]
        if peers:
            readings.append(Reading(PEER_LINK, subject, min(peers, key=_rank), origin))
        if adapters:
            readings.append(Reading(NIC_LINK, subject, max(adapters, key=_rank), origin))
    if not columns or not any(_ROW.match(line) for line in lines[1:]):
        raise ValueError("it has no row of a GPU")
    subjects = tuple(Subject(name, "node/local") for name in dict.fromkeys(one.subject for one in readings))
    return Evidence(subjects=subjects, readings=tuple(readings))


def _columns(heading: str) -> list[str]:
    """The GPUs and network adapters of the heading, in its order; what follows them are no connections."""
    found = []
    for word in heading.split():
        if not _COLUMN.fullmatch(word):
            break
        found.append(word)
    return found


def _rank(link: str) -> float:
    return _ORDER.index(link) if link in _ORDER else len(_ORDER) + float(link.removeprefix("NV") or 0)


FORMAT = TextFormat(
    name="nvidia-smi-topology",
    title="nvidia-smi topo -m",
    begins=_HEADING,
    confirms=re.compile(r"^\s*GPU0\s+X\b", re.MULTILINE),
    read=read,
    provides=frozenset({PEER_LINK, NIC_LINK}),
)
