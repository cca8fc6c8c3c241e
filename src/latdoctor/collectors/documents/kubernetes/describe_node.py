"""Nodes in the words of `kubectl describe`: their conditions, taints, accelerators, and what is reserved of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latdoctor.collectors.documents.kubernetes import conditions
from latdoctor.collectors.documents.kubernetes.conditions import ReportedCondition
from latdoctor.collectors.documents.kubernetes.described_lines import (
    DescribedLine,
    conditions_in,
    first_line,
    listed,
)
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.quantities import is_gpu, moment
from latdoctor.kubernetes_quantity import quantity

_RESOURCE = re.compile(r"\s*([a-z0-9][\w./-]*?):?\s+(\d\S*)(?:\s+\((\d{1,6})%\))?(?:\s|$)")
_SECTIONS = ("Capacity", "Allocatable", "System Info", "Allocated resources", "Events", "Addresses")
_GPUS = (
    ("node.gpus_capacity", "Capacity"),
    ("node.gpus_allocatable", "Allocatable"),
    ("node.gpus_requested", "Allocated resources"),
)
_REQUESTED = {"cpu": "node.cpu.requested_ratio", "memory": "node.memory.requested_ratio"}
_HEARTBEAT = 60.0  # seconds: a kubelet renews its lease several times in it


def read_node(gathered: Gathered, name: str, unschedulable: str, lines: Sequence[DescribedLine]) -> str:
    """Add what a described node shows; returns its subject. `unschedulable` is the value behind that key."""
    subject = gathered.node(name or "unnamed")
    renewed = [time for line in lines if line.key == "RenewTime" and (time := moment(line.value)) is not None]
    found = list(conditions_in(lines))
    if renewed and any(name == "Ready" and state == "True" for name, state, _, _ in found):
        gathered.taken_at = min(gathered.taken_at, max(renewed) + _HEARTBEAT)
    taints = listed(lines, "Taints")
    if taints:
        gathered.reading("node.taints", subject, ", ".join(taints), first_line(lines, "Taints"))
    if unschedulable in ("true", "false"):
        cordoned = float(unschedulable == "true")
        gathered.reading("node.unschedulable", subject, cordoned, first_line(lines, "Unschedulable"))
    for condition, state, cells, number in found:
        since = moment(cells[1]) if len(cells) > 1 else None
        reason, message = cells[2] if len(cells) > 2 else "", " ".join(cells[3:])
        shown = ReportedCondition(condition, state, reason, message, since, number)
        conditions.put_node(gathered, subject, shown)
    for signal, section in _GPUS:
        counts = [(quantity(one[2]), number) for one, number in _resources(lines, section) if is_gpu(one[1])]
        known = [count for count, _ in counts if count is not None]
        gathered.reading(signal, subject, sum(known) if known else None, counts[0][1] if counts else 0)
    for one, number in _resources(lines, "Allocated resources"):
        if (ratio := _REQUESTED.get(one[1])) and one[3]:
            gathered.reading(ratio, subject, float(one[3]) / 100, number)
    return subject


def _resources(lines: Sequence[DescribedLine], section: str) -> Iterator[tuple[re.Match[str], int]]:
    """The resources of a section, with the number of their lines."""
    inside = False
    for line in lines:
        if line.key == section:
            inside = True
        elif inside and line.key in _SECTIONS:
            return
        elif inside and (resource := _RESOURCE.match(line.text[:400])):
            yield resource, line.number
