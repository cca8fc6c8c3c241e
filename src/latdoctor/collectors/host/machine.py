"""Parser of /proc: the whole machine (node/local). Pure.

Shares of CPU time follow proc_stat(5): busy is everything except idle, iowait and steal. Pressure is the growth of the
`total` counters (microseconds) over the window, not the kernel's own averages, which lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latdoctor.collectors.host.accelerator_list import DEVICES, PCI
from latdoctor.collectors.host.sample_window import (
    HostValue,
    SampleWindow,
    SignalGroup,
    counter_growth,
    number,
    numbers,
)
from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode

STAT, VMSTAT, MEMINFO, LOADAVG = "/proc/stat", "/proc/vmstat", "/proc/meminfo", "/proc/loadavg"
ALL = "cpu"  # how the line of all processors begins
_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def processors(text: str) -> tuple[int, ...]:
    """The processor numbers in /proc/stat. Raises SourceError if there are none."""
    names = (line.split(" ", 1)[0] for line in text.splitlines() if line.startswith(ALL))
    found = tuple(int(name[3:]) for name in names if name[3:].isascii() and name[3:].isdecimal() and len(name) < 10)
    if not found:
        raise SourceError(f"{STAT}: no processor listed")
    return found


def _cpu_ticks(text: str, name: str) -> dict[str, int]:
    line = next((line for line in text.splitlines() if line.startswith(f"{name} ")), "")
    values = line.split()[1 : len(_FIELDS) + 1]
    if len(values) < len(_FIELDS) or not all(value.isascii() and value.isdecimal() for value in values):
        raise SourceError(f"{STAT}: no times for {'all processors' if name == ALL else name}")
    return dict(zip(_FIELDS, map(int, values), strict=True))


def _cpu_growth(span: SampleWindow, name: str = ALL) -> dict[str, int]:
    """Ticks per field over the window. Only iowait may decrease, as the kernel documents."""
    first, last = (_cpu_ticks(text, name) for text in span.both(STAT))
    grew = {name: counter_growth(first[name], last[name], f"{STAT}: {name}") for name in _FIELDS if name != "iowait"}
    grew["iowait"] = max(0, last["iowait"] - first["iowait"])
    if name == ALL and not sum(grew.values()):
        raise SourceError(
            f"{STAT}: no processor time passed", next_step="set a window (--window 10s)", code=GapCode.INSUFFICIENT
        )
    return grew


def worked(span: SampleWindow, cpu: int) -> tuple[int, int]:
    """Ticks that processor `cpu` worked over the window, and ticks that passed. Raises SourceError."""
    return _worked(_cpu_growth(span, f"cpu{cpu}"))


def _worked(grew: Mapping[str, int]) -> tuple[int, int]:
    total = sum(grew.values())
    return total - grew["idle"] - grew["iowait"] - grew["steal"], total


def _cpu(span: SampleWindow) -> Sequence[HostValue]:
    grew = _cpu_growth(span)
    busy, total = _worked(grew)
    return [
        HostValue("host.cpu.busy_ratio", busy / total, STAT),
        HostValue("host.cpu.steal_ratio", grew["steal"] / total, STAT),
        HostValue("host.cpu.system_ratio", (grew["system"] + grew["irq"] + grew["softirq"]) / total, STAT),
    ]


def _iowait(span: SampleWindow) -> Sequence[HostValue]:
    first, last = (_cpu_ticks(text, ALL)["iowait"] for text in span.both(STAT))
    ticks = counter_growth(first, last, f"{STAT}: iowait")
    return [HostValue("host.cpu.iowait_ratio", ticks / sum(_cpu_growth(span).values()), STAT)]


def _cpus(span: SampleWindow) -> Sequence[HostValue]:
    return [HostValue("host.cpus", float(len(processors(span.text(STAT)))), STAT)]


def _accelerators(span: SampleWindow) -> Sequence[HostValue]:
    """The PCI functions, or the device nodes where the bus shows none."""
    functions, nodes = (span.text(path).splitlines() for path in (PCI, DEVICES))
    return [HostValue("host.accelerators", float(len(functions or nodes)), PCI)]


def _load(span: SampleWindow) -> Sequence[HostValue]:
    words = span.text(LOADAVG).split()
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        raise SourceError(f"{LOADAVG}: contains no load average") from None
    if not 0 <= load < 1e6:
        raise SourceError(f"{LOADAVG}: contains no load average")
    return [HostValue("host.load_per_cpu", load / len(processors(span.text(STAT))), LOADAVG)]


def _rate(signal: str, path: str, key: str) -> SignalGroup:
    return SignalGroup((signal,), lambda span: [HostValue(signal, span.rate(path, key), path)])


def _memory(span: SampleWindow) -> Sequence[HostValue]:
    values = numbers(span.text(MEMINFO), MEMINFO)
    total = number(values, "MemTotal", MEMINFO)
    if not total:
        raise SourceError(f"{MEMINFO}: MemTotal is 0")
    return [HostValue("host.memory.available_ratio", number(values, "MemAvailable", MEMINFO) / total, MEMINFO)]


def _pressure(resource: str, *kinds: str) -> SignalGroup:
    path = f"/proc/pressure/{resource}"
    signals = {kind: f"host.psi.{resource}_{kind}" for kind in kinds}

    def read(span: SampleWindow) -> Sequence[HostValue]:
        seconds = span.seconds
        # Microseconds; the kernel may add a little that began before the window.
        return [
            HostValue(signal, span.growth(path, f"{kind}.total") / 1e6 / seconds, path)
            for kind, signal in signals.items()
        ]

    return SignalGroup(tuple(signals.values()), read)


SECTIONS: tuple[SignalGroup, ...] = (
    SignalGroup(("host.cpus",), _cpus),
    SignalGroup(("host.accelerators",), _accelerators),
    SignalGroup(("host.load_per_cpu",), _load),
    SignalGroup(("host.cpu.busy_ratio", "host.cpu.steal_ratio", "host.cpu.system_ratio"), _cpu),
    SignalGroup(("host.cpu.iowait_ratio",), _iowait),
    _rate("host.context_switch_rate", STAT, "ctxt"),
    _pressure("cpu", "some"),
    _pressure("memory", "some", "full"),
    _pressure("io", "some", "full"),
    SignalGroup(("host.memory.available_ratio",), _memory),
    _rate("host.swap.in_rate", VMSTAT, "pswpin"),
    _rate("host.major_fault_rate", VMSTAT, "pgmajfault"),
)
