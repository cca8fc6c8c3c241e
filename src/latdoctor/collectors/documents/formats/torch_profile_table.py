"""`key_averages().table()` of PyTorch's profilers: operators, calls of CUDA and kernels with their times.

Which columns it has depends on version and options; rows without device time are of the host, those without host time
are kernels and copies on the device. Long tables are cut to their first rows, so that shares are taken of the totals
printed below the table, not of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.torch_trace.event_names import CallKind, kind_of_call, kind_of_kernel
from latdoctor.evidence.model import AT_LEAST, Evidence, Reading, Subject
from latdoctor.sanitize import clean
from latdoctor.units import format_value

HOST_TIME, GPU_TIME, GPU_OVER_HOST = "profile.host_time", "profile.gpu_time", "profile.gpu_over_host"
_SIGNALS = frozenset(
    {
        HOST_TIME, GPU_TIME, GPU_OVER_HOST, "operator.gpu_share", "operator.host_time", "kernel.time_share",
        "kernel.kind_share", "launch.count", "launch.duration.mean", "launch.time_per_kernel", "kernel.duration.mean",
    }
)  # fmt: skip
_RULE = re.compile(r"\s*-{4,}(?:\s+-{4,}){2,}\s*$")
_GAP = re.compile(r"\s{2,}")
_TIME = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?)(us|μs|µs|ms|s|ns)")
_TOTAL = re.compile(r"\s*(?:Self )?(\w{2,12}) time total: (\d{1,15}(?:\.\d{1,9})?)(us|ms|s|ns)")
_FACTORS = {"ns": 1e-9, "us": 1e-6, "μs": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_DEVICES = "CUDA|XPU|HPU|MTIA|Device"
# The columns that are used, by the names that they have had.
_COLUMNS = (
    ("name", re.compile(r"Name$")),
    ("self_host", re.compile(r"Self CPU(?: total| time)?$")),
    ("host", re.compile(r"CPU total$|CPU time total$")),
    ("self_device", re.compile(rf"Self (?:{_DEVICES})(?: total| time)?$")),
    ("device", re.compile(rf"(?:{_DEVICES}) total$|(?:{_DEVICES}) time total$")),
    ("calls", re.compile(r"# of Calls$|Number of Calls$")),
)
_ON_DEVICE = re.compile(r"void |Mem(?:cpy|set) |\w+<|ampere_|volta_|sm\d\d_|cutlass|nccl|triton_")
_COPY = re.compile(r"Mem(?:cpy|set) ")
_TOP = 5
_LITTLE = 0.01


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    times: Mapping[str, float]  # seconds, by the names in _COLUMNS
    calls: str

    @property
    def on_device(self) -> bool:
        own = self.times.get("self_host")
        return own == 0 and self.times.get("self_device", 0.0) > 0 and not self.name.startswith("aten::")


def read(section: Section) -> Evidence:
    """The largest parts of the host's and the device's time. Raises ValueError where no row has a time."""
    lines = section.text.splitlines()
    rows = list(_rows(lines))
    totals = {found[1]: _seconds(found[2], found[3]) for line in lines if (found := _TOTAL.match(line))}
    if not any(row.times for row in rows):
        raise ValueError("no row of its table has a time")
    host = totals.pop("CPU", None)
    device = next(iter(totals.values()), None)
    subject = f"trace/{file_name(section)}"
    readings = (
        *_totals(host, device, section, subject),
        *_operators(rows, device, section, subject),
        *_kernels([row for row in rows if row.on_device], device, section, subject),
        *_launches(rows, device, section, subject),
    )
    return Evidence((Subject(subject),), readings)


def _rows(lines: Sequence[str]) -> Iterator[_Row]:
    """The rows of every table: a rule, the head, a rule, the rows, a rule."""
    columns: dict[str, int] = {}
    count = 0
    for number, line in enumerate(lines):
        if _RULE.match(line):
            head = lines[number - 1] if number else ""
            named = _GAP.split(head.strip())
            begun = {name: at for at, cell in enumerate(named) for name, known in _COLUMNS if known.match(cell)}
            columns, count = (begun, len(named)) if "name" in begun and len(begun) > 1 else ({}, 0)
        elif columns and line.strip():
            cells = _GAP.split(line.strip())
            if len(cells) == count:
                yield _row(cells, columns)


def _row(cells: Sequence[str], columns: Mapping[str, int]) -> _Row:
    times = {}
    for name, at in columns.items():
        if found := _TIME.fullmatch(cells[at]):
            times[name] = max(0.0, _seconds(found[1], found[2]))
    calls = cells[columns["calls"]] if "calls" in columns else ""
    return _Row(clean(cells[columns["name"]], 200), times, clean(calls, 20))


def _seconds(number: str, unit: str) -> float:
    return float(number) * _FACTORS[unit]


def _totals(host: float | None, device: float | None, section: Section, subject: str) -> Iterator[Reading]:
    if host is not None:
        yield Reading(HOST_TIME, subject, host, section.origin(place="Self CPU time total"))
    if device is not None:
        yield Reading(GPU_TIME, subject, device, section.origin(place="time total of the device"))
    if host and device is not None:
        yield Reading(GPU_OVER_HOST, subject, device / host, section.origin(place="totals below the table"))


def _operators(rows: Sequence[_Row], device: float | None, section: Section, subject: str) -> Iterator[Reading]:
    on_host = [row for row in rows if not row.on_device]
    for row in sorted(on_host, key=lambda one: -one.times.get("host", 0.0))[:_TOP]:
        if row.times.get("host"):
            place = section.origin(place=f"{row.calls or 'unknown'} calls, what they call included")
            yield Reading("operator.host_time", subject, row.times["host"], place, labels=(("operator", row.name),))
    if not device:
        return
    for row in sorted(on_host, key=lambda one: -one.times.get("self_device", 0.0))[:_TOP]:
        spent = row.times.get("self_device", 0.0)
        if spent >= _LITTLE * device and "::" in row.name:
            place = section.origin(place=f"{row.calls or 'unknown'} calls, {format_value(spent, 'time')}")
            share = min(1.0, spent / device)
            yield Reading("operator.gpu_share", subject, share, place, labels=(("operator", row.name),))


def _kernels(rows: Sequence[_Row], device: float | None, section: Section, subject: str) -> Iterator[Reading]:
    if not device:
        return
    kinds: dict[str, float] = {}
    kernels = [row for row in rows if not _COPY.match(row.name)]
    for row in kernels:
        kind = str(kind_of_kernel(row.name))
        kinds[kind] = kinds.get(kind, 0.0) + row.times["self_device"]
    for row in sorted(kernels, key=lambda one: -one.times["self_device"])[:_TOP]:
        share = min(1.0, row.times["self_device"] / device)
        if share >= _LITTLE:
            place = section.origin(place=f"{row.calls or 'unknown'} times")
            yield Reading("kernel.time_share", subject, share, place, labels=(("kernel", row.name),))
    for name, spent in kinds.items():
        if spent >= _LITTLE * device:
            place = section.origin(place=f"{format_value(spent, 'time')} in the rows printed, by name")
            labels = (("kind", name),)
            yield Reading("kernel.kind_share", subject, min(1.0, spent / device), place, labels=labels, bound=AT_LEAST)


def _launches(rows: Sequence[_Row], device: float | None, section: Section, subject: str) -> Iterator[Reading]:
    """The launch calls, and the mean kernel: where no graph is launched each call starts one."""
    found = [row for row in rows if kind_of_call(row.name) == CallKind.LAUNCH and row.calls.isdecimal()]
    count = sum(int(row.calls) for row in found)
    if not count:
        return
    place = section.origin(place=", ".join(f"{row.calls} {row.name}" for row in found[:4]))
    yield Reading("launch.count", subject, float(count), place)
    spent = sum(row.times.get("self_host", 0.0) for row in found)
    yield Reading("launch.duration.mean", subject, spent / count, place)
    if device and not any("Graph" in row.name for row in found):
        yield Reading("launch.time_per_kernel", subject, spent / count, place, note="each call launches one kernel")
        yield Reading("kernel.duration.mean", subject, device / count, place, note="copies and fills are among them")


FORMAT = TextFormat(
    name="torch-profile-table",
    title="a table of PyTorch's profiler",
    begins=re.compile(r"^\s*Name\s{2,}(?:Self CPU|CPU total|Self CUDA|CPU time)"),
    read=read,
    provides=_SIGNALS,
    confirms=re.compile(r"^\s*-{4,}(?:\s+-{4,}){2,}\s*$", re.MULTILINE),
    in_logs=True,
)
