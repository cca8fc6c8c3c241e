"""`nvidia-smi --query-gpu=… --format=csv` and `--query-compute-apps`: any choice of fields, with and without units and
heading, once or in a loop.

Without a heading the fields are those of the command, where it stands above; else the columns have no names.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from latdoctor.collectors.documents.nvidia_smi.evidence import PROVIDES, Machine, evidence_of
from latdoctor.collectors.documents.nvidia_smi.fields import GpuState, canonical
from latdoctor.collectors.documents.nvidia_smi.values import MIB, MISSING, number, refusal, time_of, word
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.nvml.samples import GpuProcess, Unavailable
from latdoctor.evidence.model import Evidence

_COMMAND = re.compile(r"--query-(gpu|compute-apps|apps)[= ][\"']?([\w.,-]+)")
_UNIT = re.compile(r"\s*\[[^\]]{0,8}\]\s*$")
# Names that only nvidia-smi has; one of them must stand in a heading.
_OWN = (
    "utilization.gpu|utilization.memory|memory.used|memory.total|memory.free|temperature.gpu|temperature.memory|power.draw"
    r"(?:\.\w+)?|power.limit|clocks(?:\.\w+)+|clocks_(?:event|throttle)_reasons\.\w+|pcie\.link\.\w+\.\w+|pci\.bus_id|gpu_bus_id"
    r"|gpu_uuid|gpu_name|ecc\.errors\.[\w.]+|fan\.speed|pstate|used_gpu_memory|used_memory|remapped_rows\.\w+|mig\.mode\.\w+"
    r"|driver_version|retired_pages\.[\w.]+|compute_cap"
)
_FIELD = r"[A-Za-z][\w.-]{1,80}(?: \[[^\]]{1,8}\])?"
_HEADING = re.compile(rf"^(?=[A-Za-z][\w.-]{{1,80}}(?:,| \[|\s*$))(?=.*\b(?:{_OWN})\b)(?:{_FIELD})(?:, ?{_FIELD})*\s*$")
_LONGEST = 200_000  # rows
# Rows without a heading: the time as nvidia-smi writes it, or an index and a name.
_UNNAMED = re.compile(
    r"^(?:\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}, \S|\d{1,2}, (?:NVIDIA|Tesla|GeForce|Quadro) [\w -]{1,60}, )",
    re.MULTILINE,
)
_MOST_GPUS = 16
_LOOKED_AT = 64  # rows
_LONGEST_SAMPLE = 0.5  # seconds
_PROCESS = ("pid", "process_name", "used_gpu_memory", "used_memory", "name")


def read(section: Section) -> Evidence:
    """The states in the rows of each query. Raises ValueError where no row fits a heading."""
    queries: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in _rows(section.text.splitlines()):
        queries.setdefault(tuple(row), []).append(row)
    if not queries and _UNNAMED.search(section.text):
        raise ValueError("its columns have no names: run it without noheader, or paste the command above it")
    if not queries:
        raise ValueError("no row under its heading")
    return Evidence.merge(_query(rows, section) for rows in queries.values())


def _query(rows: Sequence[Mapping[str, str]], section: Section) -> Evidence:
    processes = _processes(rows) if "pid" in rows[0] else {}
    states = [replace(state, processes=processes.get(state.index, MISSING)) for state in _states(rows)]
    if processes:
        states = list({state.index: state for state in states}.values())
    first = rows[0]
    count = number(first.get("count"))
    machine = Machine(
        word(first.get("driver_version")),
        word(first.get("cuda_version")),
        None if isinstance(count, Unavailable) else int(count),
        lists_all="pid" not in first,
    )
    return evidence_of(states, machine, section)


def _rows(lines: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """The fields of each row under the names of the heading above it; a heading may repeat in a loop.

    One name alone is a heading where it has a unit, or where the command stands above; its rows end at an empty line.
    """
    names: list[str] = []
    for line in lines[:_LONGEST]:
        if command := _COMMAND.search(line):
            names = [canonical(name) for name in command[2].split(",")]
        elif _HEADING.match(line):
            heading = [canonical(_UNIT.sub("", name.strip())) for name in line.split(",")]
            names = heading if len(heading) > 1 or heading == names or _UNIT.search(line) else []
        elif not line.strip():
            names = names if len(names) > 1 else []
        elif names:
            cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
            if len(cells) == len(names):
                yield _first_known(names, cells)


def _first_known(names: Sequence[str], cells: Sequence[str]) -> Mapping[str, str]:
    """Several fields may have one canonical name: the first with a value counts."""
    found: dict[str, str] = {}
    for name, text in zip(names, cells, strict=True):
        if name not in found or (refusal(found[name]) is not None and refusal(text) is None):
            found[name] = text
    return found


def _index(row: Mapping[str, str], known: dict[str, int]) -> int | None:
    """The index that the row itself gives; else the order in which the GPUs first stand there; None without either."""
    index = number(row.get("index"))
    if not isinstance(index, Unavailable):
        return int(index)
    identity = row.get("uuid") or row.get("pci.bus_id") or row.get("serial")
    return None if identity is None else known.setdefault(identity, len(known))


def _states(rows: Sequence[Mapping[str, str]]) -> Iterator[GpuState]:
    known: dict[str, int] = {}
    times = [time_of(row.get("timestamp", "")) for row in rows]
    gpus = _gpus_in_a_sample(times)
    for number_of, (row, time) in enumerate(zip(rows, times, strict=True)):
        fields = {name: text for name, text in row.items() if name not in _PROCESS or "pid" not in row}
        index = _index(row, known)
        yield GpuState(number_of % gpus if index is None else index, fields, time)


def _gpus_in_a_sample(times: Sequence[float | None]) -> int:
    """How many rows without identity stand for one moment: the rows of one sample are milliseconds apart.

    Without times a few rows are as many GPUs, and many rows are one GPU over time.
    """
    known = [time for time in times if time is not None]
    if len(known) < len(times) or len(known) < 2:
        return len(times) if len(times) <= _MOST_GPUS else 1
    steps = [after - before for before, after in pairwise(known)]
    longest = max(steps[:_LOOKED_AT])
    if longest < _LONGEST_SAMPLE:
        return len(times) if len(times) <= _MOST_GPUS else 1
    begins = [0, *(place for place, step in enumerate(steps, 1) if step > longest / 2)]
    sizes = {after - before for before, after in pairwise(begins)}
    return sizes.pop() if len(sizes) == 1 else 1


def _processes(rows: Sequence[Mapping[str, str]]) -> dict[int, tuple[GpuProcess, ...]]:
    """The processes of each GPU in the last output of a loop. Rows that name no GPU belong to the first."""
    known: dict[str, int] = {}
    found: dict[int, dict[int, GpuProcess]] = {}
    last: dict[int, str] = {}
    for row in rows:
        index = _index(row, known) or 0
        pid = number(row.get("pid"))
        if isinstance(pid, Unavailable):
            continue
        stamp = row.get("timestamp", "")
        if last.setdefault(index, stamp)[:19] != stamp[:19]:
            found[index] = {}
        last[index] = stamp
        memory = number(row.get("used_gpu_memory") or row.get("used_memory"), MIB)
        held = None if isinstance(memory, Unavailable) else memory
        name = row.get("process_name") or row.get("name") or ""
        found.setdefault(index, {})[int(pid)] = GpuProcess(int(pid), held, name)
    return {index: tuple(processes.values()) for index, processes in found.items()}


FORMAT = TextFormat(
    name="nvidia-smi-csv",
    title="nvidia-smi --query-gpu",
    begins=re.compile(
        rf"nvidia-smi [^\n]{{0,400}}--query-(?:gpu|compute-apps|apps)[= ]|{_UNNAMED.pattern}|{_HEADING.pattern}"
    ),
    confirms=re.compile(r"--query-|\[[^\]\n]{1,8}\]|,"),
    read=read,
    provides=PROVIDES,
    contains_times=True,
    repeats=True,
)
