"""Merge the subjects under which several sources report one GPU.

NVML uses `gpu/0`, an exporter `gpu/0@gpus:9400`, a driver log `gpu/0000:9b:00`. Subjects with the same UUID are one
GPU. A driver log has only the PCI address, which is not unique across machines: its GPU is merged with the only known
GPU at that address. If several GPUs have that address, or none reports it, the subject stays separate and a gap says
so. A log of one among several machines names the machine too (`gpu/0000:9b:00@node-a`), and only the GPUs of that
machine are considered. A device plugin names a GPU by its UUID.

Texts of several machines all call their GPUs `gpu/0`, …: where UUID, PCI address or driver version of two texts differ,
the GPUs of the later one get the name of the text (`gpu/0@b.txt`) first, and are merged by UUID like others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import structs

from latdoctor.detectors.renamed_subjects import renamed
from latdoctor.evidence.model import Evidence, Gap, Subject
from latdoctor.evidence.subject_branch import pci_of, uuid_of
from latdoctor.gap_code import GapCode

GPU, OF_SERVER = "gpu/", "@"
UUID, PCI, HOST = "gpu.uuid", "gpu.pci", "gpu.host"
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """A GPU as named by one source, with its UUID, PCI address and machine (empty if not reported)."""

    subject: str
    uuid: str
    pci: str
    host: str = ""

    @property
    def source(self) -> str:
        return self.subject.partition(OF_SERVER)[2]


def merge_gpu_subjects(evidence: Evidence) -> Evidence:
    """Return `evidence` with one subject per GPU: NVML's name, else an exporter's. Idempotent."""
    evidence = _with_machines_apart(evidence)
    cards = tuple(_cards(evidence))
    names = _one_name_each(cards)
    names |= _by_uuid(evidence, cards, names)
    logged = [one.id for one in evidence.subjects if _logged_address(one.id)]
    parents = dict(evidence.parents)
    gaps: list[Gap] = []
    for subject in logged:
        machine = subject.partition(OF_SERVER)[2]
        there = [card for card in cards if not machine or machine == card.host or _is_on(card.source, machine)]
        alike = [card for card in there if card.pci == _logged_address(subject)]
        found = sorted({names.get(card.subject, card.subject) for card in alike})
        if len(found) == 1:
            names[subject] = found[0]
            _put_beneath(parents, found[0], parents.get(subject))
        elif found or there:
            gaps.append(_apart(subject, found))
    if not names:
        return structs.replace(evidence, gaps=tuple(dict.fromkeys((*evidence.gaps, *gaps)))) if gaps else evidence
    return renamed(evidence, names, parents, gaps)


def _logged_address(subject: str) -> str:
    """The PCI address that a log names a GPU by, alone or with its machine (`gpu/0000:9b:00@node-a`); else empty."""
    return pci_of(subject.removeprefix(GPU).partition(OF_SERVER)[0]) if subject.startswith(GPU) else ""


def _is_on(source: str, machine: str) -> bool:
    """Whether a source (`node-a`, an exporter at `node-a.example.com:9400`) is of the machine `node-a`."""
    host = source.rpartition(":")[0] or source
    return machine in (source, host, host.partition(".")[0])


def _cards(evidence: Evidence) -> Iterator[GpuRecord]:
    """Yield every GPU reported by NVML or a metrics page under a name of its own."""
    reported: dict[str, dict[str, str]] = {}
    for signal in (UUID, PCI, HOST, "gpu.name", "gpu.utilization"):
        for one in evidence.readings_by_signal.get(signal, ()):
            if one.subject.startswith(GPU) and not _logged_address(one.subject):
                reported.setdefault(one.subject, {})[signal] = str(one.value)
    for subject, texts in sorted(reported.items()):
        yield GpuRecord(subject, uuid_of(texts.get(UUID, "")), pci_of(texts.get(PCI, "")), texts.get(HOST, ""))


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


def _by_uuid(evidence: Evidence, cards: tuple[GpuRecord, ...], names: Mapping[str, str]) -> dict[str, str]:
    """The names of the known GPUs for subjects that are named by a UUID (`gpu/GPU-1111…`)."""
    known = {card.uuid: names.get(card.subject, card.subject) for card in cards if card.uuid}
    found = ((one.id, known.get(uuid_of(one.id.removeprefix(GPU)))) for one in evidence.subjects)
    return {subject: card for subject, card in found if card is not None and card != subject}


_LOCAL = re.compile(r"gpu/\d{1,3}(?:/mig/\d{1,3})?|node/local")
_IDENTITY = (UUID, PCI, "gpu.driver_version")


def _with_machines_apart(evidence: Evidence) -> Evidence:
    """Rename what a text of another machine says of `gpu/0`, … and `node/local`."""
    identities: dict[str, dict[tuple[str, str], str]] = {}
    for signal in _IDENTITY:
        for one in evidence.readings_by_signal.get(signal, ()):
            if _LOCAL.fullmatch(one.subject):
                own = identities.setdefault(one.origin.artifact, {})
                own.setdefault((one.subject, signal), str(one.value).lower())
    kept: dict[tuple[str, str], str] = {}
    foreign: set[str] = set()
    for artifact, own in identities.items():
        if any(kept.get(key, value) != value for key, value in own.items()):
            foreign.add(artifact)
        else:
            kept |= own
    return _with_names_of(evidence, foreign) if foreign else evidence


def _with_names_of(evidence: Evidence, artifacts: set[str]) -> Evidence:
    subjects = {one.id: one for one in evidence.subjects}

    def name(subject: str, artifact: str) -> str:
        if artifact not in artifacts or not _LOCAL.fullmatch(subject):
            return subject
        text = artifact.rpartition("/")[2]
        renamed = f"node/{text}" if subject == "node/local" else f"{subject}{OF_SERVER}{text}"
        parent = subjects[subject].parent if subject in subjects else None
        above = None if parent is None or subject == "node/local" else name(parent, artifact)
        subjects.setdefault(renamed, Subject(renamed, above))
        if above is not None:
            subjects.setdefault(above, Subject(above))
        return renamed

    readings = tuple(structs.replace(one, subject=name(one.subject, one.origin.artifact)) for one in evidence.readings)
    series = tuple(structs.replace(one, subject=name(one.subject, one.origin.artifact)) for one in evidence.series)
    events = tuple(structs.replace(one, subject=name(one.subject, one.origin.artifact)) for one in evidence.events)
    gaps = tuple(
        structs.replace(gap, subject=name(gap.subject, gap.origin.artifact)) if gap.subject and gap.origin else gap
        for gap in evidence.gaps
    )
    return structs.replace(
        evidence, subjects=tuple(subjects.values()), readings=readings, series=series, events=events, gaps=gaps
    )


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
