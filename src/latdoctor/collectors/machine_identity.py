"""Whose text is it? Tells the machines apart that the parsed files name, before what they say is put together.

Every machine calls its GPUs `gpu/0` or by a PCI address that others have too. A text says which machine it is of by the
host in the lines of a system log or in the prompt before a command (`Evidence.machines`). A UUID of a GPU, its path, or
that only one other machine shows GPUs may place one that does not. Where the texts are of several machines, the
subjects of each get the name of their machine (`gpu/0000:0b:00@node-a`, `node/node-a`), in a log of several machines
line by line. What cannot be placed then stays a machine of its own, and a gap says so. Where at most one machine is
named, texts that share a PCI address are taken for those of one machine, and a gap says which do not say so themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from msgspec import structs

from latdoctor.collectors.machine_names import MachineNames
from latdoctor.evidence.model import HOST, Event, Evidence, Gap, Origin, Subject
from latdoctor.evidence.subject_branch import pci_of, uuid_of
from latdoctor.gap_code import GapCode

_GPU, _LOCAL, _AT = "gpu/", "node/local", "@"
_INDEX = re.compile(r"gpu/\d{1,3}(?:/mig/\d{1,3})?")
_TEXTS = ("logs/", "documents/")  # files as text; others describe one process or are read live
_FILES = (*_TEXTS, "torch_trace/", "nsight/", "torch_memory/")
_SHOWN = 3
_STEP = "diagnose the files of one machine at a time, or put each machine's into a folder with its name"


@dataclass(frozen=True, slots=True)
class _FileEvidence:
    """What one file showed: its artifact, the machines that it names, and what identifies its GPUs."""

    evidence: Evidence
    artifact: str
    machines: tuple[str, ...]
    uuids: frozenset[str]
    addresses: frozenset[str]
    with_gpus: frozenset[str]  # the machines of whose GPUs its lines report something

    @property
    def text(self) -> str:
        return self.artifact.rpartition("/")[2]


def with_machines_apart(parts: Sequence[Evidence], sources: Mapping[str, str]) -> tuple[Evidence, ...]:
    """`parts`, each what one file showed, with the subjects of different machines named apart.

    `sources`: where each artifact came from, as the user named it.
    """
    names = MachineNames(one.name for part in parts for one in part.machines)
    known = [_file_evidence(part, names) for part in parts]
    if len(names.distinct) < 2:
        return (*parts, Evidence(gaps=tuple(_assumed(known, names))))
    owners = _owners(known, names, sources)
    apart = [
        _of_machines(part, names, owners.get(place, "")) if part.artifact.startswith(_FILES) else part.evidence
        for place, part in enumerate(known)
    ]
    return (*apart, Evidence(gaps=tuple(_unplaced(known, owners, names))))


def of_machine(evidence: Evidence, machine: str) -> Evidence:
    """What a part of a text of several machines showed, named as that of `machine`."""
    return _Renaming(evidence, MachineNames([machine]), machine, several=False).evidence()


def _file_evidence(evidence: Evidence, names: MachineNames) -> _FileEvidence:
    artifact = next(iter(_artifacts(evidence)), "")
    texts = {signal: evidence.readings_by_signal.get(signal, ()) for signal in ("gpu.uuid", "gpu.pci")}
    gpus = [one.id.removeprefix(_GPU) for one in evidence.subjects if one.id.startswith(_GPU)]
    uuids = {uuid_of(text) for text in (*gpus, *(str(one.value) for one in texts["gpu.uuid"]))}
    addresses = {pci_of(text) for text in (*gpus, *(str(one.value) for one in texts["gpu.pci"]))}
    machines = tuple(dict.fromkeys(names.of(one.name) for one in evidence.machines))
    events = (one for one in evidence.events if one.subject.startswith(_GPU))
    with_gpus = frozenset(names.of(_host(one)) for one in events) - {""}
    return _FileEvidence(evidence, artifact, machines, frozenset(uuids - {""}), frozenset(addresses - {""}), with_gpus)


def _artifacts(evidence: Evidence) -> Iterator[str]:
    yield from (one.origin.artifact for one in evidence.readings)
    yield from (one.origin.artifact for one in evidence.events)
    yield from (one.origin.artifact for one in evidence.series)
    yield from (one.origin.artifact for one in evidence.distributions)
    yield from (one.origin.artifact for one in evidence.machines)


def _owners(known: Sequence[_FileEvidence], names: MachineNames, sources: Mapping[str, str]) -> dict[int, str]:
    """The machine of each part of one machine, by its place: what it says, else a UUID, its path, or being alone."""
    found = {place: part.machines[0] for place, part in enumerate(known) if len(part.machines) == 1}
    of_uuid: dict[str, set[str]] = {}
    for place, machine in found.items():
        for uuid in known[place].uuids:
            of_uuid.setdefault(uuid, set()).add(machine)
    of_folder: dict[PurePath, set[str]] = {}
    for place, machine in found.items():
        of_folder.setdefault(PurePath(sources.get(known[place].artifact, "")).parent, set()).add(machine)
    with_gpus = {machine for part in known for machine in part.with_gpus}
    with_gpus |= {machine for place, machine in found.items() if known[place].addresses}
    for place, part in enumerate(known):
        if part.machines:
            continue
        path = PurePath(sources.get(part.artifact, ""))
        placed = {machine for uuid in part.uuids for machine in of_uuid.get(uuid, ())}
        placed = placed or names.within(path.name) or names.within(path.parent.name)
        placed = placed or (of_folder.get(path.parent, set()) if path.name else set())
        others = (other.addresses for other in known if other is not part)
        if len(placed) != 1 and part.addresses & frozenset().union(*others):
            placed = with_gpus
        if len(placed) == 1:
            (found[place],) = placed
    return found


def _of_machines(part: _FileEvidence, names: MachineNames, owner: str) -> Evidence:
    """What a file showed, of the machines that it is about."""
    if not any(_is_of_machine(one.id, part.evidence) for one in part.evidence.subjects):
        return part.evidence
    several = not owner and bool(part.machines)
    return _Renaming(part.evidence, names, "" if several else owner or part.text, several=several).evidence()


def is_local(subject: str) -> bool:
    """Whether every machine may use the name: `gpu/0`, `gpu/0000:0b:00`, `node/local`."""
    return bool(subject == _LOCAL or _INDEX.fullmatch(subject) or pci_of(subject.removeprefix(_GPU)))


def _is_of_machine(subject: str, evidence: Evidence) -> bool:
    """The same, or the subject that is the machine of a log."""
    return is_local(subject) or any(one.subject == subject for one in evidence.machines)


class _Renaming:
    """Renames the local subjects of what one file showed.

    `machine`: that of all of it. `several`: it is of several machines; each piece is of the one that it states itself,
    else it stays as it is.
    """

    def __init__(self, evidence: Evidence, names: MachineNames, machine: str, *, several: bool) -> None:
        self._evidence = evidence
        self._names = names
        self._machine = machine
        self._several = several
        self._local = {one.id for one in evidence.subjects if _is_of_machine(one.id, evidence)}
        self._subjects: dict[str, str | None] = {}
        self._variants: dict[str, dict[str, None]] = {}  # the new names of each

    def evidence(self) -> Evidence:
        old = self._evidence
        readings = tuple(structs.replace(x, subject=self._name(x.subject)) for x in old.readings)
        series = tuple(structs.replace(x, subject=self._name(x.subject)) for x in old.series)
        spread = tuple(structs.replace(x, subject=self._name(x.subject)) for x in old.distributions)
        events = tuple(structs.replace(x, subject=self._name(x.subject, _host(x))) for x in old.events)
        gaps = tuple(structs.replace(x, subject=self._name(x.subject)) if x.subject else x for x in old.gaps)
        machines = tuple(structs.replace(x, subject=self._name(x.subject, x.name)) for x in old.machines)
        for one in old.subjects:
            if not self._several:
                self._name(one.id)
            elif one.id not in self._local or one.id not in self._variants:
                self._subjects.setdefault(one.id, one.parent)
        return structs.replace(
            old,
            readings=readings,
            series=series,
            distributions=spread,
            events=events,
            gaps=gaps,
            machines=machines,
            looked=tuple(dict.fromkeys((signal, new) for signal, one in old.looked for new in self._all(one))),
            clipped=tuple(dict.fromkeys((signal, new) for signal, one in old.clipped for new in self._all(one))),
            subjects=tuple(Subject(name, parent) for name, parent in self._subjects.items()),
        )

    def _all(self, subject: str) -> Iterable[str]:
        """Every new name of a subject; a log of several machines was also searched as a whole."""
        names = self._variants.get(subject, {})
        whole = self._several and not subject.startswith(_GPU)
        return dict.fromkeys([*([subject] if whole or not names else []), *names])

    def _name(self, subject: str, host: str = "") -> str:
        machine = self._machine or self._names.of(host)
        parent = self._evidence.parents.get(subject)
        if subject not in self._local or not machine:
            above = self._name(parent, host) if parent in self._local and not self._several else parent
            self._subjects.setdefault(subject, above)
            return subject
        renamed = f"{subject}{_AT}{machine}" if subject.startswith(_GPU) else f"node/{machine}"
        self._variants.setdefault(subject, {})[renamed] = None
        if subject.startswith(_GPU):
            above = self._name(parent, host) if parent else f"node/{machine}"
        else:  # what was searched in the log of several machines was searched for each
            above = subject if self._several and subject != _LOCAL else None
            if above:
                self._subjects.setdefault(subject, None)
        if renamed != above:
            self._subjects.setdefault(renamed, above)
        return renamed


def _host(event: Event) -> str:
    return str(event.fields.get(HOST, ""))


def _unplaced(known: Sequence[_FileEvidence], owners: Mapping[int, str], names: MachineNames) -> Iterator[Gap]:
    """What says nothing of its machine, and what is placed by its path, or as no other machine's GPUs are known."""
    local = [
        (place, part)
        for place, part in enumerate(known)
        if not part.machines and any(_is_of_machine(one.id, part.evidence) for one in part.evidence.subjects)
    ]
    if unknown := [part for place, part in local if place not in owners]:
        why = f"{_listed(part.text for part in unknown)}: the name of the machine is not in it"
        reason = f"{why}, and the other files are of {_listed(names.distinct)}; it is joined with none of them"
        yield Gap("derived", reason, (), None, _STEP, Origin(unknown[0].artifact), GapCode.AMBIGUOUS)
    for place, part in local:
        if place in owners and not any(part.uuids & other.uuids for other in known if owners[place] in other.machines):
            how = "by its path, or as the only one with GPUs in the other files"
            reason = f"{part.text}: the name of the machine is not in it; it is taken for {owners[place]}'s {how}"
            yield Gap("derived", reason, (), None, _STEP, Origin(part.artifact), GapCode.AMBIGUOUS)


def _assumed(known: Sequence[_FileEvidence], names: MachineNames) -> Iterator[Gap]:
    """Texts that are joined by a PCI address, though not all of them say that they are of one machine."""
    texts = [part for part in known if part.artifact.startswith(_TEXTS) and part.addresses]
    joined = [part for part in texts if any(part.addresses & other.addresses for other in texts if other is not part)]
    silent = [part for part in joined if not part.machines and not _placed(part, joined)]
    if not silent or len(joined) < 2:
        return
    whose = f"{next(iter(names.distinct))}'s" if names.distinct else "those of one machine"
    why = f"{_listed(part.text for part in silent)}: the name of the machine is not in it"
    reason = f"{why}; its GPUs are taken for {whose}, as the PCI addresses are equal"
    yield Gap("derived", reason, (), None, _STEP, Origin(silent[0].artifact), GapCode.AMBIGUOUS)


def _placed(part: _FileEvidence, others: Sequence[_FileEvidence]) -> bool:
    return any(part.uuids & other.uuids for other in others if other is not part)


def _listed(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
