"""The kernel's reports of PCIe errors (AER): one event for each error message, with the names of the errors in it."""

from __future__ import annotations

import re

from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind, LineLocation
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Value
from latdoctor.evidence.subject_branch import pci_of

PCIE_ERROR = "log.pcie_error"
_BUS_ERROR = re.compile(
    r"(?:^"
    r"|\s)([\w-]{1,40}) ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]): (?:AER: )"
    r"?PCIe Bus Error: severity=([\w -]{1,40}(?:\([\w-]{1,20}\))?)"
    r"(?:, type=([\w ]{1,40}))?"
)
_ERROR = re.compile(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]): (?:AER: )?\s*\[ ?\d{1,2}\] ([A-Z]\w{2,20})")
_GPU_DRIVERS = ("nvidia", "amdgpu", "nouveau", "xe", "i915")
_MOST_ERRORS = 8


class PcieErrors:
    """A LineReader: an error's names stand in the lines after it."""

    def __init__(self, artifact: Artifact) -> None:
        self._events = EventLines(artifact, lambda _: ())
        self._pending: tuple[LineLocation, dict[str, Value], str] | None = None  # its line, fields and device

    def take(self, at: LineLocation) -> None:
        message = at.line.message
        if found := _BUS_ERROR.search(message):
            self._finish()
            fields: dict[str, Value] = {"severity": _severity(found[3]), "device": found[2]}
            if found[4]:
                fields["layer"] = found[4].strip()
            self._pending = (at, fields, pci_of(found[2]) if found[1] in _GPU_DRIVERS else "")
        elif (named := _ERROR.search(message)) and self._pending and self._pending[1]["device"] == named[1]:
            fields = self._pending[1]
            names = str(fields.get("error", "")).split(", ") if "error" in fields else []
            if len(names) < _MOST_ERRORS:
                fields["error"] = ", ".join([*names, named[2]])

    def _finish(self) -> None:
        if self._pending:
            at, fields, gpu = self._pending
            self._events.add(Found(PCIE_ERROR, {"kind": fields.get("error", ""), **fields}, gpu), at)
            self._pending = None

    def evidence(self, *, complete: bool) -> Evidence:
        self._finish()
        return self._events.evidence(complete=complete)


def _severity(text: str) -> str:
    """corrected, non-fatal or fatal; older kernels write Correctable and Uncorrected (Non-Fatal)."""
    words = text.lower()
    if words.startswith("correct"):
        return "corrected"
    return "non-fatal" if "non-fatal" in words or "nonfatal" in words else "fatal"


KIND = LineKind(
    "pcie-errors",
    (rb"PCIe Bus Error", rb"\] (?:RxErr|BadTLP|BadDLLP|Rollover|NonFatalErr|CorrIntErr|HeaderOF|DLP|SDES|TLP"
        rb"|FCP|CmpltTO|CmpltAbrt|UnxCmplt|RxOF|MalfTLP|ECRC|UnsupReq|ACSViol|UncorrIntErr)",
     rb"\[12\] Timeout"),
    PcieErrors,
)  # fmt: skip
