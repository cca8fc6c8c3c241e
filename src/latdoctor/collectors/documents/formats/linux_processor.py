"""Processor and memory of a Linux machine as printed by `top`, `vmstat`, `mpstat`, `free` and `uptime`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from statistics import fmean

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject

NODE = "node/local"
BUSY, USER, SYSTEM = "host.cpu.busy_ratio", "host.cpu.user_ratio", "host.cpu.system_ratio"
IOWAIT, STEAL = "host.cpu.iowait_ratio", "host.cpu.steal_ratio"
RUNNING, BLOCKED = "host.processes.running", "host.processes.blocked"
SWAP_IN, SWAP_OUT, SWAP_USED = "host.swap.in_rate", "host.swap.out_rate", "host.swap.used_ratio"
LOAD, LOAD15 = "host.load", "host.load15"
AVAILABLE, AVAILABLE_RATIO, TOTAL = "host.memory.available", "host.memory.available_ratio", "host.memory.total"
_KIB, _PAGE = 1024.0, 4096.0  # vmstat counts KiB, the signals pages; x86-64 and most arm64 kernels have pages of 4 KiB
_MOST = 5000  # lines of one part that are read

_UPTIME = re.compile(r"\bup\b.{1,60}\bload averages?: (\d+[.,]\d+),? (\d+[.,]\d+),? (\d+[.,]\d+)")
_TOP = re.compile(r"^top - \d\d:\d\d:\d\d up ")
_TOP_CPU = re.compile(r"^%?Cpu\(s\):(.*)")
_SHARE = re.compile(r"(\d{1,3}[.,]?\d*)[ %]*(us|sy|ni|id|wa|hi|si|st)\b")
_TOP_MEMORY = re.compile(r"^([KMGTPE])iB (Mem|Swap) ?:(.*)")
_AMOUNT = re.compile(r"(\d+(?:[.,]\d+)?)\+? (total|free|used|buff/cache|avail Mem)")
_UNITS = {"B": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50, "E": 2.0**60}
_VMSTAT = re.compile(r"^ *r +b +swpd +free\b.*\bus +sy +id +wa\b")
_MPSTAT = re.compile(
    r"^(?:\d\d:\d\d:\d\d(?: [AP]M)? +|Average: +)?(?:avg-cpu: +|CPU +)?"
    r"%us(?:e?)r +%nice +%sys(?:tem)? +%iowait\b.*%idle"
)
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)?")
_FREE = re.compile(r"^\s+total\s+used\s+free\s+shared\b")
_FREE_ROW = re.compile(r"^(Mem|Swap):\s+(.*)")
_FREE_CELL = re.compile(r"(\d+(?:[.,]\d+)?)([BKMGTPE]?)i?")


def number(text: str) -> float:
    """The number in `text`, with a point or, as in many languages, a comma."""
    return float(text.replace(",", "."))


def host_evidence(values: Mapping[str, float], section: Section) -> Evidence:
    """Readings of the machine. Raises ValueError where there is none."""
    if not values:
        raise ValueError("it has no figures")
    origin = section.origin()
    return Evidence(
        subjects=(Subject(NODE),), readings=tuple(Reading(name, NODE, value, origin) for name, value in values.items())
    )


def _loads(line: str) -> dict[str, float]:
    found = _UPTIME.search(line)
    return {LOAD: number(found[1]), LOAD15: number(found[3])} if found else {}


def _shares(cells: Mapping[str, float]) -> dict[str, float]:
    """Signals of the shares of processor time, by the names of `top`; 0..100 each."""
    values = {USER: cells["us"], SYSTEM: cells["sy"], IOWAIT: cells["wa"], STEAL: cells["st"]} if cells else {}
    if cells:
        values[BUSY] = 100 - cells["id"] - cells["wa"]
    return {name: value / 100 for name, value in values.items()}


def read_uptime(section: Section) -> Evidence:
    """The load of `uptime` or `w`."""
    return host_evidence(_loads(section.text.partition("\n")[0]), section)


def read_top(section: Section) -> Evidence:
    """The last summary of `top`. Raises ValueError where it has no line of processors."""
    values: dict[str, float] = {}
    for line in section.text.splitlines()[:_MOST]:
        values |= _loads(line) if line.startswith("top - ") else {}
        if cpu := _TOP_CPU.match(line):
            cells = {name: number(share) for share, name in _SHARE.findall(cpu[1])}
            values |= _shares(cells) if {"us", "sy", "id", "wa", "st"} <= set(cells) else {}
        elif memory := _TOP_MEMORY.match(line):
            amounts = {name: number(text) * _UNITS[memory[1]] for text, name in _AMOUNT.findall(memory[3])}
            values |= _amounts(memory[2], amounts.get("total"), amounts.get("used"), amounts.get("avail Mem"))
            if memory[2] == "Swap" and "avail Mem" in amounts and TOTAL in values:
                values |= _amounts("Mem", values[TOTAL], None, amounts["avail Mem"])
    return host_evidence(values, section)


def _amounts(row: str, total: float | None, used: float | None, available: float | None) -> dict[str, float]:
    """The signals of a row of memory or swap, in bytes; a machine without swap has no share of it."""
    if not total:
        return {}
    if row == "Swap":
        return {} if used is None else {SWAP_USED: used / total}
    values = {TOTAL: total}
    return values if available is None else {**values, AVAILABLE: available, AVAILABLE_RATIO: available / total}


def read_free(section: Section) -> Evidence:
    """`free`, in any unit. Old versions have no column `available`; caches that can be dropped are then not known."""
    names = section.text.partition("\n")[0].split()
    values: dict[str, float] = {}
    for line in section.text.splitlines()[:_MOST]:
        if row := _FREE_ROW.match(line):
            cells = [number(text) * _UNITS[suffix or "B"] for text, suffix in _FREE_CELL.findall(row[2])]
            known = dict(zip(names, cells, strict=False))
            values |= _amounts(row[1], known.get("total"), known.get("used"), known.get("available"))
    unit = re.search(r"\d[BKMGTPE]", section.text) is not None
    sizes = {} if unit else {TOTAL, AVAILABLE}  # the unit of bare numbers depends on the option
    return host_evidence({name: value for name, value in values.items() if name not in sizes}, section)


def read_vmstat(section: Section) -> Evidence:
    """The mean of the samples; the first row, which is the mean since the start of the machine, only if alone."""
    names: list[str] = []
    rows: list[dict[str, float]] = []
    for line in section.text.splitlines()[:_MOST]:
        cells = line.split()
        if _VMSTAT.match(line):
            names = cells
        elif names and len(cells) >= len(names) and all(_NUMBER.fullmatch(cell) for cell in cells[: len(names)]):
            rows.append({name: number(cell) for name, cell in zip(names, cells, strict=False)})
    rows = rows[1:] or rows
    if not rows:
        raise ValueError("it has no sample")
    mean = {name: fmean(row[name] for row in rows) for name in names}
    values = {RUNNING: mean["r"], BLOCKED: mean["b"]}
    values |= {SWAP_IN: mean["si"] * _KIB / _PAGE, SWAP_OUT: mean["so"] * _KIB / _PAGE}
    values |= _shares({"st": 0.0, **{name: mean[name] for name in ("us", "sy", "id", "wa", "st") if name in mean}})
    return host_evidence(values if "st" in mean else {k: v for k, v in values.items() if k != STEAL}, section)


def read_mpstat(section: Section) -> Evidence:
    """`mpstat`, `sar -u` and the head of `iostat`: the average where there is one, else the mean of the samples."""
    names: list[str] = []
    rows: list[tuple[bool, dict[str, float]]] = []
    for line in section.text.splitlines()[:_MOST]:
        if _MPSTAT.match(line):
            names = [name for name in line.split() if name.startswith("%")]
            continue
        cells = line.split()
        shares = cells[-len(names) :] if names else []
        one_of_several = re.search(r"(?:^|\s)\d{1,4}\s+\d+[.,]\d\d\s", line[:40]) is not None
        if (
            shares
            and len(cells) >= len(names)
            and all(_NUMBER.fullmatch(cell) for cell in shares)
            and not one_of_several
        ):
            rows.append((cells[0] == "Average:", dict(zip(names, map(number, shares), strict=True))))
    averages = [row for average, row in rows if average] or [row for _, row in rows]
    return host_evidence(_mpstat_values(averages), section)


def _mpstat_values(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found = list(rows)
    if not found:
        return {}
    mean = {name: fmean(row[name] for row in found) / 100 for name in found[0] if all(name in row for row in found)}
    signals = {"%user": USER, "%usr": USER, "%system": SYSTEM, "%sys": SYSTEM, "%iowait": IOWAIT, "%steal": STEAL}
    values = {signal: mean[name] for name, signal in signals.items() if name in mean}
    return {**values, BUSY: 1 - mean["%idle"] - mean["%iowait"]} if {"%idle", "%iowait"} <= set(mean) else values


_PROCESSOR = frozenset({BUSY, USER, SYSTEM, IOWAIT, STEAL})
_MEMORY = frozenset({AVAILABLE, AVAILABLE_RATIO, TOTAL, SWAP_USED})
TOP = TextFormat(
    "top", "top", _TOP, read_top, _PROCESSOR | _MEMORY | {LOAD, LOAD15},
    confirms=re.compile(_TOP_CPU.pattern, re.MULTILINE), contains_times=True, repeats=True,
)  # fmt: skip
VMSTAT = TextFormat(
    "vmstat", "vmstat", _VMSTAT, read_vmstat, _PROCESSOR | {RUNNING, BLOCKED, SWAP_IN, SWAP_OUT}, repeats=True
)
MPSTAT = TextFormat("mpstat", "mpstat or sar -u", _MPSTAT, read_mpstat, _PROCESSOR, contains_times=True, repeats=True)
FREE = TextFormat(
    "free", "free", _FREE, read_free, _MEMORY, confirms=re.compile(r"^Mem:", re.MULTILINE), cumulative=True
)
UPTIME = TextFormat("uptime", "uptime", re.compile(r"^ ?\d\d:\d\d:\d\d " + _UPTIME.pattern), read_uptime,
                    frozenset({LOAD, LOAD15}), contains_times=True, cumulative=True)  # fmt: skip
