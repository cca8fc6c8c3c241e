"""What Nsight Compute (`ncu`) prints: for each profiled kernel its limits, as shares of the peak of the GPU.

The profiler runs every kernel alone, several times: its durations are not those of the service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject
from latdoctor.sanitize import clean

_SIGNALS = {
    "compute (sm) throughput": "ncu.compute_throughput",
    "compute (sm) [%]": "ncu.compute_throughput",
    "sm [%]": "ncu.compute_throughput",
    "memory throughput": "ncu.memory_throughput",
    "memory [%]": "ncu.memory_throughput",
    "dram throughput": "ncu.dram_throughput",
    "achieved occupancy": "ncu.occupancy",
    "duration": "ncu.duration",
}
_KERNEL = re.compile(
    r"^  (?P<name>\S.{0,1000}?)(?: \(\d+, ?\d+, ?\d+\)x\(\d+, ?\d+, ?\d+\))?"
    r", (?:[\w-]+ [\d:]+, )?Context \d+, Stream \d+"
)
_ROW = re.compile(r"^\s{4,}(\S.{1,60}?)\s{2,}(\S{1,24})\s+(-?\d[\d,]*(?:\.\d+)?)\s*$")
_TIMES = {
    "nsecond": 1e-9,
    "ns": 1e-9,
    "usecond": 1e-6,
    "us": 1e-6,
    "msecond": 1e-3,
    "ms": 1e-3,
    "second": 1.0,
    "s": 1.0,
}
_MAX_KERNELS = 100_000
_TOP = 5


@dataclass(slots=True)
class _Kernel:
    name: str
    line: int
    values: dict[str, float] = field(default_factory=dict)


def read(section: Section) -> Evidence:
    """The kernels that took longest. Raises ValueError where none has a value."""
    kernels = [kernel for kernel in _kernels(section.text.splitlines()) if kernel.values]
    if not kernels:
        raise ValueError("it lists no kernel with values")
    subject = f"trace/{file_name(section)}"
    return Evidence((Subject(subject),), tuple(_readings(kernels, section, subject)))


def _kernels(lines: Sequence[str]) -> Iterator[_Kernel]:
    current: _Kernel | None = None
    count = 0
    for number, line in enumerate(lines):
        if found := _KERNEL.match(line[:2000]):
            if current is not None:
                yield current
            count += 1
            if count > _MAX_KERNELS:
                return
            current = _Kernel(clean(found["name"], 120), number)
        elif current is not None and (row := _ROW.match(line[:400])):
            signal = _SIGNALS.get(row[1].lower())
            if signal is not None and (value := _value(row[3], row[2])) is not None:
                current.values.setdefault(signal, value)
    if current is not None:
        yield current


def _value(number: str, unit: str) -> float | None:
    value = float(number.replace(",", ""))
    if unit == "%":
        return value / 100
    return value * _TIMES[unit] if unit in _TIMES else None


def _readings(kernels: Sequence[_Kernel], section: Section, subject: str) -> Iterator[Reading]:
    """Of each name the launch that took longest; the five longest names."""
    longest: dict[str, _Kernel] = {}
    for kernel in kernels:
        if kernel.name not in longest or _duration(kernel) > _duration(longest[kernel.name]):
            longest[kernel.name] = kernel
    yield Reading("ncu.kernels", subject, float(len(kernels)), section.origin(kernels[0].line))
    for kernel in sorted(longest.values(), key=_duration, reverse=True)[:_TOP]:
        for signal, value in kernel.values.items():
            yield Reading(signal, subject, value, section.origin(kernel.line), labels=(("kernel", kernel.name),))


def _duration(kernel: _Kernel) -> float:
    return kernel.values.get("ncu.duration", 0.0)


FORMAT = TextFormat(
    name="nsight-compute",
    title="ncu",
    begins=re.compile(
        r"^==PROF== |^\s+Section: (?:GPU Speed Of Light|Launch Statistics|Occupancy)"
        r"|^  \S.{0,1000}?, Context \d+, Stream \d+"
    ),
    read=read,
    provides=frozenset((*_SIGNALS.values(), "ncu.kernels")),
    confirms=re.compile(r"^\s+Section: ", re.MULTILINE),
    repeats=True,
)
