"""Vital signs of what connects GPUs, and of the processes on them: the worst link and the largest processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.result import Vital
from latdoctor.evidence.model import Evidence, is_unknown

_MOST_PROCESSES = 3
# From the slowest kind of connection to the fastest; NVLink is faster than all of them.
_KINDS = ("SYS", "SOC", "NODE", "PHB", "PXB", "PSB", "PIX")
_CONNECTIONS = ("gpu.peer_link", "gpu.nic_link")
_OF_MAXIMUM = {"gpu.pcie.width": "gpu.pcie.width_max", "gpu.pcie.generation": "gpu.pcie.generation_max"}
_OF_PROCESSES = ("gpu.process_memory", "gpu.process_utilization", "gpu.process_memory_utilization")


def links(evidence: Evidence) -> Iterator[Vital]:
    """The slowest connection, PCIe links below their maximum, and NVLinks that are down or have errors."""
    for signal in _CONNECTIONS:
        found = [(str(one.value), one.subject) for one in evidence.readings_by_signal.get(signal, ())]
        if found:
            text, subject = min(found, key=lambda one: _rank(one[0]))
            yield Vital(signal, subject, text, text)
    for signal, highest in _OF_MAXIMUM.items():
        if lowered := _lowered(evidence, signal, highest):
            yield lowered
    yield from _nvlinks(evidence)


def _lowered(evidence: Evidence, signal: str, highest: str) -> Vital | None:
    """`8 of 16` of the GPU that has the smallest share of its maximum; None where all have it, or it is not known."""
    now, most = _numbers(evidence, signal), _numbers(evidence, highest)
    below = {subject: now[subject] / most[subject] for subject in now if 0 < now[subject] < most.get(subject, 0)}
    if not below:
        return None
    subject = min(below, key=lambda name: below[name])
    return Vital(signal, subject, now[subject], f"{now[subject]:g} of {most[subject]:g}")


def _nvlinks(evidence: Evidence) -> Iterator[Vital]:
    active, inactive = (_numbers(evidence, f"gpu.nvlink.{state}_links") for state in ("active", "inactive"))
    down = {name: count for name, count in inactive.items() if count and any(active.values())}
    if down:
        subject = max(down, key=lambda name: down[name])
        every = down[subject] + active.get(subject, 0.0)
        yield Vital("gpu.nvlink.inactive_links", subject, down[subject], f"{down[subject]:g} of {every:g}")
    elif active:
        yield Vital("gpu.nvlink.active_links", next(iter(active)), min(active.values()), f"{min(active.values()):g}")
    errors = _numbers(evidence, "gpu.nvlink.errors")
    if errors:
        subject = max(errors, key=lambda name: errors[name])
        yield Vital("gpu.nvlink.errors", subject, errors[subject], show("gpu.nvlink.errors", errors[subject]))


def processes(evidence: Evidence) -> Iterator[Vital]:
    """The largest processes by memory and by the time they use; several of one name on one GPU are added up."""
    for signal in _OF_PROCESSES:
        readings = evidence.readings_by_signal.get(signal, ())
        several = len({one.subject for one in readings}) > 1
        held: dict[tuple[str, str], float] = defaultdict(float)
        for one in readings:
            if not isinstance(one.value, str) and not is_unknown(one.value):
                held[one.subject, dict(one.labels).get("process", "?")] += one.value
        largest = sorted(held.items(), key=lambda item: -item[1])[:_MOST_PROCESSES]
        for (subject, name), value in largest:
            short = name.replace("\\", "/").rpartition("/")[2] or name
            part = f"{short} on GPU {subject.partition('/')[2]}" if several else short
            yield Vital(signal, subject, value, show(signal, value), part)


def _numbers(evidence: Evidence, signal: str) -> dict[str, float]:
    """The last value of each GPU."""
    readings = evidence.readings_by_signal.get(signal, ())
    return {one.subject: one.value for one in readings if not isinstance(one.value, str) and not is_unknown(one.value)}


def _rank(link: str) -> float:
    number = link.removeprefix("NV")
    return float(_KINDS.index(link)) if link in _KINDS else len(_KINDS) + (float(number) if number.isdecimal() else 0)
