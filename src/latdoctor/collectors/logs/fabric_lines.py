"""Lines of the fabric manager, which sets up NVSwitch: fatal errors of switches and links, and a start that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator

from latdoctor.collectors.logs import DRIVER_MISMATCH, SXID
from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.evidence.model import Value
from latdoctor.evidence.subject_branch import pci_of

FABRIC_ERROR = "log.fabric_error"

_SWITCH = re.compile(
    r"detected NVSwitch (fatal|non-fatal|non fatal) error (\d{1,6})\b(?:.{0,80}?pci bus id:? ([0-9A-Fa-f:.]{7,16}))?"
    r"(?:.{0,60}?port (?:id |num )?(\d{1,3}))?", re.I,
)  # fmt: skip
_VERSIONS = re.compile(
    r"driver interface version (\S{1,30}) don'?t match with driver version (\S{1,30}?)\.?(?:\s|$)", re.I
)
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"NV_WARN_NOTHING_TO_DO|query NVSwitch device information .{0,40}failed", re.I), "no-switch"),
    (re.compile(r"detected NVLink fatal error|NVLink.{0,60}(?:training failed|failed to train|fatal error)"
                r"|failed to (?:find|train) .{0,40}NVLink|degraded mode|not trained", re.I), "link"),
    (re.compile(r"failed to detect GPU|GPU .{0,60}(?:missing|not detected).{0,40}fabric", re.I), "gpu-missing"),
    (re.compile(r"failed to initiali[sz]e .{0,60}(?:NVSwitch|fabric)|fabric ?manager.{0,80}(?:failed|exiting)"
                r"|nvidia-fabricmanager\.service: (?:Failed|Main process exited|Control process exited)"
                r"|Failed to start .{0,10}NVIDIA fabric ?manager", re.I), "start"),
)  # fmt: skip


def find(line: LogLine) -> Iterator[Found]:
    """What a line of the fabric manager, or of the system about it, reports."""
    message = line.message
    if switch := _SWITCH.search(message):
        severity = "non-fatal" if switch[1].lower().startswith("non") else "fatal"
        fields: dict[str, Value] = {"code": float(switch[2]), "severity": severity}
        fields |= {"pci": pci_of(switch[3])} if switch[3] and pci_of(switch[3]) else {}
        fields |= {"port": switch[4]} if switch[4] else {}
        yield Found(SXID, fields)
    elif versions := _VERSIONS.search(message):
        yield Found(DRIVER_MISMATCH, {"client": versions[1], "module": versions[2]})
    else:
        kind = next((kind for pattern, kind in _FORMS if pattern.search(message)), None)
        if kind is not None:
            yield Found(FABRIC_ERROR, {"kind": kind})


KIND = LineKind(
    "fabric-manager",
    (rb"detected NVSwitch|NVLink fatal|NVSwitch device information|NV_WARN_NOTHING_TO_DO", rb"driver interface version",
     rb"[Ff]abric ?[Mm]anager|failed to detect GPU|to train .{0,40}NVLink|NVLink.{0,60}train"),
    lambda artifact: EventLines(artifact, find),
)  # fmt: skip
