"""`nvidia-smi dmon` and `pmon`: rows under a heading that repeats, with and without times, as columns or CSV.

Without times the rows are samples of one moment, since the interval between them is not known.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from latdoctor.collectors.documents.nvidia_smi.evidence import PROVIDES, Machine, evidence_of
from latdoctor.collectors.documents.nvidia_smi.fields import GpuState
from latdoctor.collectors.documents.nvidia_smi.values import MISSING, number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nvml.samples import GpuProcess, Unavailable
from latdoctor.evidence.model import Evidence

_HEADING = re.compile(r"\s*#\s*(?=(?:[A-Za-z]+[\s,]+){0,2}gpu\b)(.*)")
_UNITS = re.compile(r"\s*#\s*(?:YYYYMMDD|HH:MM:SS|Idx)\b")
# The field of each column, and the factor from its unit.
_COLUMNS: Mapping[str, str] = {
    "pwr": "power.draw",
    "temp": "temperature.gpu",
    "gtemp": "temperature.gpu",
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "enc": "utilization.encoder",
    "dec": "utilization.decoder",
    "mclk": "clocks.current.memory",
    "pclk": "clocks.current.sm",
    "fb": "memory.used",
    "pviol": "violation.power",
    "tviol": "violation.thermal",
    "rxpci": "pcie.rx",
    "txpci": "pcie.tx",
    "sbecc": "ecc.errors.corrected.aggregate.total",
    "dbecc": "ecc.errors.uncorrected.aggregate.total",
    "pci": "pcie.replays",
}
_LONGEST = 500_000  # lines
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)")
_DAY = 86400.0
_DATE = re.compile(r"\d{8}")

Row = Mapping[str, str]


def read(section: Section) -> Evidence:
    """The samples of every GPU. Raises ValueError where no row fits the heading."""
    rows = list(_rows(section.text.splitlines()[:_LONGEST]))
    if not rows:
        raise ValueError("no row under its heading")
    parts = ([row for row in rows if "pid" not in row], [row for row in rows if "pid" in row])
    return Evidence.merge(_samples(part, section) for part in parts if part)


def _samples(rows: Sequence[Row], section: Section) -> Evidence:
    times = _times(rows, section.taken_at)
    if "pid" not in rows[0]:
        states = [GpuState(int(row["gpu"]), _fields(row), time) for row, time in zip(rows, times, strict=True)]
        return evidence_of(states, Machine(MISSING, MISSING, lists_all=False), section)
    latest = {int(row["gpu"]): time for row, time in zip(rows, times, strict=True)}
    listed = _processes(rows)
    states = [GpuState(index, {}, time, listed[index]) for index, time in latest.items()]
    return evidence_of(states, Machine(MISSING, MISSING, lists_all=False), section)


def _rows(lines: Sequence[str]) -> Iterator[Row]:
    names: list[str] = []
    for line in lines:
        if _UNITS.match(line):
            continue
        if found := _HEADING.match(line):
            names = _cells(found[1].lower())
            continue
        if line.lstrip().startswith("#"):
            continue
        cells = _cells(line)
        if names and len(cells) > len(names) and names[-1] in ("command", "name"):
            cells = [*cells[: len(names) - 1], " ".join(cells[len(names) - 1 :])]
        if names and len(cells) == len(names):
            row = dict(zip(names, cells, strict=True))
            if row.get("gpu", "").isdigit() and len(row["gpu"]) < 4:
                yield row


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")] if "," in line else line.split()


def _fields(row: Row) -> dict[str, str]:
    return {_COLUMNS[name]: "N/A" if text == "-" else text for name, text in row.items() if name in _COLUMNS}


def _times(rows: Sequence[Row], taken_at: float) -> Iterator[float | None]:
    """Of rows with a clock but no date, the last is of the day on which the text was read or of the one before."""
    clocks = [_clock(row.get("time", "")) for row in rows]
    dated = [_date(row.get("date", "")) for row in rows]
    last = next((clock for clock in reversed(clocks) if clock is not None), 0.0)
    day = taken_at - taken_at % _DAY
    day = day - _DAY if day + last > taken_at else day
    wraps = [0.0]
    for before, after in itertools.pairwise(clocks):
        over = before is not None and after is not None and after < before - _DAY / 2
        wraps.append(wraps[-1] + (_DAY if over else 0.0))
    for clock, date, wrapped in zip(clocks, dated, wraps, strict=False):
        if clock is None:
            yield None
        else:
            yield clock + (date if date is not None else day + wrapped - wraps[-1])


def _clock(text: str) -> float | None:
    found = _TIME.fullmatch(text)
    return int(found[1]) * 3600.0 + int(found[2]) * 60.0 + int(found[3]) if found else None


def _date(text: str) -> float | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        return datetime.strptime(text, "%Y%m%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _processes(rows: Sequence[Row]) -> dict[int, tuple[GpuProcess, ...]]:
    """The processes that each GPU has in any of the rows, by pid: the memory last shown, the mean of their shares."""
    found: dict[int, dict[int, list[Row]]] = {}
    for row in rows:
        listed, pid = found.setdefault(int(row["gpu"]), {}), number(row.get("pid"))
        if not isinstance(pid, Unavailable):
            listed.setdefault(int(pid), []).append(row)
    return {index: tuple(_process(pid, own) for pid, own in listed.items()) for index, listed in found.items()}


def _process(pid: int, rows: Sequence[Row]) -> GpuProcess:
    memory, busy, bandwidth = (_known(rows, column) for column in ("fb", "sm", "mem"))
    return GpuProcess(
        pid,
        memory[-1] * (1 << 20) if memory else None,
        rows[-1].get("command") or rows[-1].get("name") or "",
        math.fsum(busy) / len(busy) / 100 if busy else None,
        math.fsum(bandwidth) / len(bandwidth) / 100 if bandwidth else None,
    )


def _known(rows: Sequence[Row], column: str) -> list[float]:
    values = [number(row.get(column)) for row in rows]
    return [value for value in values if not isinstance(value, Unavailable)]


FORMAT = TextFormat(
    name="nvidia-smi-dmon",
    title="nvidia-smi dmon",
    begins=re.compile(
        r"^\s*#\s*(?:Date[\s,]+)?(?:Time[\s,]+)?gpu[\s,]+(?:pwr|pid|gtemp|temp|sm|mem|rxpci|fb|sbecc|mclk|pviol)\b"
    ),
    read=read,
    provides=PROVIDES,
    contains_times=True,
    repeats=True,
)
