"""Merge the subjects under which several sources report one GPU.

NVML uses `gpu/0`, an exporter `gpu/0@gpus:9400`, a driver log `gpu/0000:9b:00`. Subjects with the same UUID are one
GPU. A driver log has only the PCI address, which is not unique across machines: its GPU is merged with the only known
GPU at that address. If several GPUs have that address, or none reports it, the subject stays separate and a gap says
so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import structs

from latdoctor.evidence.model import Evidence, Gap, Subject
from latdoctor.evidence.subject_branch import pci_of, uuid_of
from latdoctor.gap_code import GapCode

GPU, OF_SERVER = "gpu/", "@"
UUID, PCI = "gpu.uuid", "gpu.pci"
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """A GPU as named by one source, with its UUID and PCI address (empty if not reported)."""

    subject: str
    uuid: str
    pci: str

    @property
    def source(self) -> str:
        return self.subject.partition(OF_SERVER)[2]


def merge_gpu_subjects(evidence: Evidence) -> Evidence:
    """Return `evidence` with one subject per GPU: NVML's name, else an exporter's. Idempotent."""
    cards = tuple(_cards(evidence))
    names = _one_name_each(cards)
    logged = [one.id for one in evidence.subjects if pci_of(one.id.removeprefix(GPU)) and OF_SERVER not in one.id]
    parents = dict(evidence.parents)
    gaps: list[Gap] = []
    for subject in logged:
        found = sorted({names.get(card.subject, card.subject) for card in cards if card.pci == pci_of(subject[4:])})
        if len(found) == 1:
            names[subject] = found[0]
            _put_beneath(parents, found[0], parents.get(subject))
        elif found or cards:
            gaps.append(_apart(subject, found))
    if not names:
        return structs.replace(evidence, gaps=tuple(dict.fromkeys((*evidence.gaps, *gaps)))) if gaps else evidence
    return _renamed(evidence, names, parents, gaps)


def _cards(evidence: Evidence) -> Iterator[GpuRecord]:
    """Yield every GPU reported by NVML or a metrics page under a name of its own."""
    reported: dict[str, dict[str, str]] = {}
    for signal in (UUID, PCI, "gpu.name", "gpu.utilization"):
        for one in evidence.readings_by_signal.get(signal, ()):
            if one.subject.startswith(GPU) and not pci_of(one.subject.removeprefix(GPU)):
                reported.setdefault(one.subject, {})[signal] = str(one.value)
    for subject, texts in sorted(reported.items()):
        yield GpuRecord(subject, uuid_of(texts.get(UUID, "")), pci_of(texts.get(PCI, "")))


def _one_name_each(cards: tuple[GpuRecord, ...]) -> dict[str, str]:
    """Map names to the preferred name of the same UUID. MIG slices share the UUID of their GPU on one page."""
    groups: dict[str, list[GpuRecord]] = {}
    for card in cards:
        if card.uuid:
            groups.setdefault(card.uuid, []).append(card)
    names: dict[str, str] = {}
    for group in groups.values():
        sources = [card.source for card in group]
        whole = [card for card in group if sources.count(card.source) == 1]
        first = min((card.subject for card in whole), key=lambda name: (OF_SERVER in name, name), default="")
        names.update({card.subject: first for card in whole if card.subject != first})
    return names


def _put_beneath(parents: dict[str, str | None], card: str, node: str | None) -> None:
    """Insert the log's node between a GPU and its parent, so that the findings of the log still apply to it."""
    above = parents.get(card)
    if node is None or node in (above, card):
        return
    if parents.get(node) is None and node not in _lineage(parents, card):
        parents[node] = above
        parents[card] = node
    elif parents.get(node) == above:
        parents[card] = node


def _lineage(parents: Mapping[str, str | None], subject: str) -> list[str]:
    found: list[str] = []
    current: str | None = subject
    while current is not None and current not in found:
        found.append(current)
        current = parents.get(current)
    return found


def _apart(subject: str, found: list[str]) -> Gap:
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        why = f"{', '.join(found[:_SHOWN])}{more} have that PCI address and no common UUID"
    else:
        why = "no known GPU reports that PCI address"
    step = "read NVML on that machine (--nvml), or pass only its exporter's page"
    return Gap(
        "derived",
        f"{subject} of the driver log stays a separate subject: {why}",
        (),
        None,
        step,
        code=GapCode.AMBIGUOUS,
    )


def _renamed(
    evidence: Evidence, names: Mapping[str, str], parents: Mapping[str, str | None], gaps: list[Gap]
) -> Evidence:
    def name(subject: str) -> str:
        return names.get(subject, subject)

    remaining = dict.fromkeys(name(one.id) for one in evidence.subjects)
    reported = (structs.replace(gap, subject=name(gap.subject)) if gap.subject else gap for gap in evidence.gaps)
    return structs.replace(
        evidence,
        subjects=tuple(Subject(one, parents.get(one)) for one in remaining),
        readings=tuple(structs.replace(one, subject=name(one.subject)) for one in evidence.readings),
        series=tuple(structs.replace(one, subject=name(one.subject)) for one in evidence.series),
        distributions=tuple(structs.replace(one, subject=name(one.subject)) for one in evidence.distributions),
        events=tuple(structs.replace(one, subject=name(one.subject)) for one in evidence.events),
        looked=tuple(dict.fromkeys((signal, name(subject)) for signal, subject in evidence.looked)),
        gaps=tuple(dict.fromkeys((*reported, *gaps))),
        clipped=tuple(dict.fromkeys((signal, name(subject)) for signal, subject in evidence.clipped)),
    )
