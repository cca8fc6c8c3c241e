"""`nvidia-bug-report.log`: files and outputs of commands one below the other, each behind a line of underscores.

Its `dmesg` is a whole kernel log, which counts as searched. The NVIDIA lines of the present boot that it selects from
other logs stand there too and are read only where it has no dmesg.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latdoctor.collectors.documents.formats import lspci, nvidia_smi_nvlink, nvidia_smi_query, nvidia_smi_table
from latdoctor.collectors.documents.nvidia_smi.evidence import PROVIDES
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject

_RULE = re.compile(r"_{20,}\s*$")
_KERNEL_LOG = re.compile(r"(?:/\S+/)?(?:dmesg|journalctl (?:-k|--dmesg)\b).*|\*\*\* /var/log/(?:dmesg|kern\.log)\S*")
_SELECTION = "Scanning kernel log files for NVIDIA kernel messages"
_PART_OF_SELECTION = re.compile(r"\s{1,4}(\S.{0,100}):\s*$")
_EARLIER_BOOT = re.compile(r"journalctl -b -[1-9]")
_VERSION = re.compile(r"^NVRM version: .*?Kernel Module .*?(\d{3}(?:\.\d{1,3}){1,2})", re.MULTILINE)
_PARTS = (lspci.FORMAT, nvidia_smi_nvlink.FORMAT, nvidia_smi_query.FORMAT, nvidia_smi_table.FORMAT)
DRIVER = "gpu.driver_version"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines of the report; `title` is their first one that is not empty, `first_line` counts from 1."""

    title: str
    lines: Sequence[str]
    first_line: int

    @property
    def is_kernel_log(self) -> bool:
        return _KERNEL_LOG.fullmatch(self.title.rstrip(":")) is not None


def read(section: Section) -> Evidence:
    """What every piece of the report shows. Raises ValueError where none shows anything."""
    from latdoctor.collectors.documents.reader import read_kernel_log, read_lines

    pieces = list(_pieces(section.text.split("\n")))
    complete = any(piece.is_kernel_log and len(piece.lines) > 3 for piece in pieces)
    found = [_version(section)]
    for piece in pieces:
        if piece.is_kernel_log:
            found.append(read_kernel_log(piece.lines[1:], piece.first_line + 1, section))
        elif piece.title.startswith(_SELECTION):
            lines = _selected(piece.lines, all_boots=not complete)
            found.append(read_lines(lines, piece.first_line, section, formats=_PARTS))
        else:
            found.append(read_lines(piece.lines, piece.first_line, section, formats=_PARTS))
    merged = Evidence.merge(found)
    if not (merged.readings or merged.events or merged.looked):
        raise ValueError("nothing in it is recognised")
    return merged


def _pieces(lines: Sequence[str]) -> Iterator[_Piece]:
    begun = 0
    for number, line in enumerate([*lines, "_" * 44]):
        if not _RULE.match(line):
            continue
        inside = lines[begun:number]
        title = next((one.strip() for one in inside if one.strip()), "")
        skipped = next((place for place, one in enumerate(inside) if one.strip()), 0)
        if title:
            yield _Piece(title, inside[skipped:], begun + skipped + 1)
        begun = number + 1


def _selected(lines: Sequence[str], *, all_boots: bool) -> list[str]:
    """The selected lines; without `all_boots` those of the present boot are blanked."""
    kept, keep = [], all_boots
    for line in lines:
        if part := _PART_OF_SELECTION.fullmatch(line):
            keep = all_boots or _EARLIER_BOOT.match(part[1]) is not None
        kept.append(line if keep else "")
    return kept


def _version(section: Section) -> Evidence:
    found = _VERSION.search(section.text)
    if not found:
        return Evidence()
    line = section.text.count("\n", 0, found.start())
    reading = Reading(DRIVER, "node/local", found[1], section.origin(line))
    return Evidence(subjects=(Subject("node/local"),), readings=(reading,))


FORMAT = TextFormat(
    name="nvidia-bug-report",
    title="nvidia-bug-report.log",
    begins=re.compile(r"^Start of NVIDIA bug report log file", re.MULTILINE),
    read=read,
    provides=PROVIDES,
    whole=True,
)
