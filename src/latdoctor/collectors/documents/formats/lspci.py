"""`lspci -vv` of GPUs: the speed and width of the PCIe link, its maximum, and the error bits that are set.

A link that an idle GPU has slowed down is no fault, so of the speed only the present generation is reported; the width
does not change while idle. Other devices than GPUs are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nvml import NAME as NVML
from latdoctor.evidence.gpu_access import ACCESS_ERROR, AccessFailure
from latdoctor.evidence.model import Event, Evidence, Gap, Reading, Subject, Value
from latdoctor.evidence.subject_branch import pci_of
from latdoctor.gap_code import GapCode

PCIE_ERROR, GPU_LOST = "log.pcie_error", "log.gpu_lost"
_BUS = r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_DEVICE = re.compile(rf"^({_BUS}) (?:\"?)(\w[\w ./-]{{2,60}})(?: \[[0-9a-f]{{4}}\])?:? ")
_GPU = re.compile(
    rf"^({_BUS}) (?:VGA compatible controller|3D controller|Display controller|Processing accelerators)"
    r"(?: \[[0-9a-f]{4}\])?: ((?:NVIDIA|Advanced Micro Devices|AMD"
    r"|Intel).*?)(?: \(rev ([0-9a-f]{2})\))?(?: \(prog-if.*)?\s*$"
)
_LINK = re.compile(r"^\s*Lnk(Cap|Sta):.*?Speed (\d+(?:\.\d+)?)GT/s.*?Width x(\d{1,2})")
_STATUS = re.compile(r"^\s*(UESta|CESta):\s+(.*)")
_SET = re.compile(r"\b([A-Z]\w{2,20})\+")
_UNKNOWN_HEADER = re.compile(r"!!! Unknown header type", re.I)
_GENERATIONS = {2.5: 1.0, 5.0: 2.0, 8.0: 3.0, 16.0: 4.0, 32.0: 5.0, 64.0: 6.0}
_ADVISORY = {"AdvNonFatalErr", "UnsupReq"}  # set by the probing of devices at the start of a machine


def read(section: Section) -> Evidence:
    """The links and errors of the GPUs. Raises ValueError where none is listed with them."""
    parts = list(_gpus(section.text.splitlines(), section))
    if not parts:
        raise ValueError("it lists no GPU")
    return Evidence.merge(parts)


def _gpus(lines: Sequence[str], section: Section) -> Iterator[Evidence]:
    begun: int | None = None
    for number, line in enumerate([*lines, "00:00.0 End of list: "]):
        if not _DEVICE.match(line):
            continue
        if begun is not None:
            yield _gpu(lines[begun:number], begun, section)
        begun = number if _GPU.match(line) else None


def _gpu(lines: Sequence[str], first: int, section: Section) -> Evidence:
    head = _GPU.match(lines[0])
    bus = pci_of(head[1]) if head else ""
    subject, origin = f"gpu/{bus}", section.origin(first)
    speeds: dict[str, tuple[float, float]] = {}
    events: list[Event] = []
    for line in lines[1:]:
        if link := _LINK.match(line):
            speeds.setdefault(link[1], (float(link[2]), float(link[3])))
        elif status := _STATUS.match(line):
            errors = [name for name in _SET.findall(status[2]) if name not in _ADVISORY]
            if errors:
                severity = "corrected" if status[1] == "CESta" else "uncorrected"
                fields: dict[str, Value] = {"kind": ", ".join(errors), "severity": severity, "device": bus}
                events.append(Event(PCIE_ERROR, subject, origin, fields, None, line.strip()))
    if (head and head[3] == "ff") or any(_UNKNOWN_HEADER.search(line) for line in lines):
        events.append(Event(ACCESS_ERROR, subject, origin, {"kind": AccessFailure.GPU_LOST}, None, lines[0].strip()))
        events.append(Event(GPU_LOST, subject, origin, {"pci": bus}, None, lines[0].strip()))
        speeds = {}
    readings = tuple(Reading(name, subject, value, origin) for name, value in _values(speeds).items())
    gaps = () if "Sta" in speeds else (
        Gap(NVML, "lspci shows no link of this GPU (run it as root with -vv)", ("gpu.pcie.width_ratio",), subject,
            "sudo lspci -vv", origin, GapCode.ABSENT),
    )  # fmt: skip
    return Evidence(subjects=(Subject(subject, "node/local"),), readings=readings, events=tuple(events), gaps=gaps)


def _values(speeds: dict[str, tuple[float, float]]) -> dict[str, float]:
    if "Sta" not in speeds:
        return {}
    speed, width = speeds["Sta"]
    values = {"gpu.pcie.width": width}
    if speed in _GENERATIONS:
        values["gpu.pcie.generation"] = _GENERATIONS[speed]
    if "Cap" in speeds and speeds["Cap"][1] > 0:
        values["gpu.pcie.width_max"] = speeds["Cap"][1]
        if speeds["Cap"][0] in _GENERATIONS:
            values["gpu.pcie.generation_max"] = _GENERATIONS[speeds["Cap"][0]]
        values["gpu.pcie.width_ratio"] = width / speeds["Cap"][1]
        if speed >= speeds["Cap"][0]:
            values["gpu.pcie.generation_ratio"] = 1.0
    return values


FORMAT = TextFormat(
    name="lspci",
    title="lspci -vv",
    begins=_GPU,
    confirms=re.compile(r"^\s+(?:LnkSta|LnkCap|Kernel driver in use|Subsystem|Control|!!!|Flags):|rev ff",
    re.MULTILINE),
    read=read,
    provides=frozenset({
        "gpu.pcie.width", "gpu.pcie.width_max", "gpu.pcie.generation_max",
        "gpu.pcie.width_ratio", "gpu.pcie.generation", "gpu.pcie.generation_ratio", PCIE_ERROR,
        GPU_LOST,
        ACCESS_ERROR,
    }),
    repeats=True,
)  # fmt: skip
