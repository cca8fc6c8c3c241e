"""Xids that a monitor of the node reports as a condition or an event of the node.

    SysLogsXIDError True ErrorCode:79 PCI:0000:9b:00 GPU_UUID:GPU-3f… … Recommended Action=RESTART_BM;   (NVSentinel)
    AcceleratedHardwareReady False NvidiaXID79Error                             (node monitoring agent of EKS)
    Warning XidError node/gpu-3 NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python, …  (node-problem-detector)

One condition may hold several reports, each ended by a semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from latdoctor.collectors.logs import error_code_tables
from latdoctor.evidence.model import Value
from latdoctor.evidence.subject_branch import pci_of, uuid_of

XID, GPU_LOST = "log.xid", "log.gpu_lost"
LOST_CODE = 79
# An Xid and not an SXid, which is of a switch.
_XID_CHECK = re.compile(r"(?<!S)X(?:ID|id)")
_CODED_REASON = re.compile(r"NvidiaXID(\d{1,4})(?:Error|Warning)")
_CODE = re.compile(r"\bErrorCode:(\d{1,4})\b")
_LEGACY_CODE = re.compile(r"(?<![A-Za-z])XID(\d{1,4})\b")
_KERNEL = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{4,20})\): (\d{1,4})\b")
_ENTITY = re.compile(r"\b(GPU_UUID|GPU|PCI):([0-9A-Za-z:.-]{1,60})")


class XidReport(Struct, frozen=True):
    """An Xid of a GPU: the name of the GPU as a UUID, PCI address or index, the first that is known; or empty."""

    code: int
    gpu: str = ""

    @property
    def fields(self) -> dict[str, Value]:
        """As those of a line of the driver's log."""
        known = error_code_tables.lookup_xid(self.code).fields
        address = pci_of(self.gpu)
        return {**known, "pci": address} if address else known


def xid_reports(check: str, reason: str, message: str) -> tuple[XidReport, ...]:
    """The reports of a condition (`check` is its type) or of an event; empty for one that is about something else."""
    if lines := tuple(XidReport(int(code), pci_of(pci)) for pci, code in _KERNEL.findall(message)):
        return lines
    if coded := _CODED_REASON.fullmatch(reason):
        return (XidReport(int(coded[1]), _gpu_of(message)),)
    if not (_XID_CHECK.search(check) or _XID_CHECK.search(reason)):
        return ()
    return tuple(dict.fromkeys(one for part in message.split(";") for one in _reported(part)))


def _reported(text: str) -> Iterator[XidReport]:
    codes = _CODE.findall(text) or _LEGACY_CODE.findall(text)
    yield from (XidReport(int(code), _gpu_of(text)) for code in codes)


def _gpu_of(text: str) -> str:
    """The UUID of the GPU that is named, else its PCI address, else its index; empty where none is."""
    found = {kind: value.strip(".") for kind, value in _ENTITY.findall(text)}
    named = found.get("GPU_UUID", "") or found.get("GPU", "")
    if uuid := uuid_of(named):
        return f"GPU-{uuid}"
    return pci_of(found.get("PCI", "")) or (named if named.isdigit() else "")
