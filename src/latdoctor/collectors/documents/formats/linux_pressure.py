"""Files of the kernel about pressure and control groups: `/proc/pressure/*`, `cpu.stat` and `memory.events`."""

from __future__ import annotations

import re

from latdoctor.collectors.documents.formats.linux_processor import host_evidence
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_SIGNALS = {
    ("cpu", "some"): "host.psi.cpu_some",  # `full` of a machine's processors has no meaning
    ("memory", "some"): "host.psi.memory_some",
    ("memory", "full"): "host.psi.memory_full",
    ("io", "some"): "host.psi.io_some",
    ("io", "full"): "host.psi.io_full",
}
THROTTLED_RATIO, THROTTLED_TIME, QUOTA = "cgroup.cpu.throttled_ratio", "cgroup.cpu.throttled_time", "cgroup.cpu.quota"
OOM_KILLS = "cgroup.memory.oom_kills"
_STALL = re.compile(r"^(?:\S{0,200}[:\s])?(some|full) avg10=(\d+\.\d+) avg60=(\d+\.\d+) avg300=(\d+\.\d+) total=\d+")
_RESOURCE = re.compile(r"\b(cpu|memory|io)(?:\.pressure)?\b")
_COUNTER = re.compile(r"^(?:\S{1,200}:)?([a-z_]+)[ :=]+(\d{1,20})\s*$")
_CPU_MAX = re.compile(r"^(?:\S{1,200}:)?(\d{1,12}|max) (\d{1,9})\s*$")
_EVENTS = ("low", "high", "max", "oom", "oom_kill")


def read_pressure(section: Section) -> Evidence:
    """The share of the last minute in which tasks waited. Raises ValueError where no line says for what."""
    resource = _resource(section.command)
    values: dict[str, float] = {}
    for line in section.text.splitlines():
        stall = _STALL.match(line)
        named = _resource(line.partition("avg10")[0] if stall else line)
        resource = named or resource
        if stall and (signal := _SIGNALS.get((resource, stall[1]))):
            values[signal] = float(stall[3]) / 100
    return host_evidence(values, section)


def _resource(text: str) -> str:
    """The resource that a line names: the last part of a path (`memory.pressure`), or the last word of a heading."""
    found = _RESOURCE.findall(text)
    return found[-1] if found else ""


def read_cpu_stat(section: Section) -> Evidence:
    """How often a quota stopped the group: between two outputs, or since the group was made. Raises ValueError where
    no period is counted: the group has no quota then.
    """
    snapshots: list[dict[str, float]] = [{}]
    limit = _CPU_MAX.match(section.command)
    for line in section.text.splitlines():
        if counter := _COUNTER.match(line):
            name = counter[1]
            if name in snapshots[-1]:
                snapshots.append({})
            snapshots[-1][name] = float(counter[2])
        elif found := _CPU_MAX.match(line):
            limit = found
    whole = [one for one in snapshots if "nr_periods" in one and "nr_throttled" in one]
    if not whole:
        raise ValueError("it counts no periods")
    last = whole[-1]
    first = whole[0] if len(whole) > 1 and whole[0]["nr_periods"] < last["nr_periods"] else {}
    grown = {name: value - first.get(name, 0.0) for name, value in last.items()}
    values: dict[str, float] = {}
    if grown["nr_periods"] > 0:
        values[THROTTLED_RATIO] = grown["nr_throttled"] / grown["nr_periods"]
    if limit and limit[1] != "max":
        period = float(limit[2])  # microseconds
        values[QUOTA] = float(limit[1]) / period
        stopped = grown.get("throttled_usec", grown.get("throttled_time", 0.0) / 1e3)
        if grown["nr_periods"] > 0:
            values[THROTTLED_TIME] = stopped / (grown["nr_periods"] * period)
    if not values:
        raise ValueError("no period has passed: no quota is set")
    return host_evidence(values, section)


def read_memory_events(section: Section) -> Evidence:
    """Kills for the limit of a control group: between two outputs, or since the group was made."""
    counts = [float(found[2]) for line in section.text.splitlines()
              if (found := _COUNTER.match(line)) and found[1] == "oom_kill"]  # fmt: skip
    if not counts:
        raise ValueError("it counts no kills")
    return host_evidence({OOM_KILLS: counts[-1] - (counts[0] if len(counts) > 1 else 0.0)}, section)


PRESSURE = TextFormat(
    "linux-pressure", "/proc/pressure", _STALL, read_pressure, frozenset(_SIGNALS.values()), repeats=True
)
CPU_STAT = TextFormat(
    "cgroup-cpu-stat", "cpu.stat", re.compile(r"^(?:\S{1,200}:)?(?:usage_usec|nr_periods)[ :=]+\d+\s*$"), read_cpu_stat,
    frozenset({THROTTLED_RATIO, THROTTLED_TIME, QUOTA}), confirms=re.compile(r"nr_throttled[ :=]+\d"), repeats=True,
)  # fmt: skip
MEMORY_EVENTS = TextFormat(
    "cgroup-memory-events", "memory.events", re.compile(r"^(?:\S{1,200}:)?low[ :=]+\d+\s*$"), read_memory_events,
    frozenset({OOM_KILLS}), confirms=re.compile(r"\boom_kill[ :=]+\d"), repeats=True,
)  # fmt: skip
