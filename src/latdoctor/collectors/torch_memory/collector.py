"""PyTorch's CUDA allocator: statistics (`torch.cuda.memory_stats()` as JSON) and snapshots (`_dump_snapshot`).

Both see only what PyTorch allocates, not what NCCL or libraries with allocators of their own hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from latdoctor.collectors.base import Availability, SourceAvailability
from latdoctor.collectors.input_files import FileFinder, NamedFile, file_reader, safe_name, unique_name
from latdoctor.collectors.torch_memory import NAME, SIGNALS, safe_unpickle
from latdoctor.collectors.torch_memory import evidence as memory_evidence
from latdoctor.collectors.torch_memory.snapshot import MAX_BYTES, AllocatorStats, looks_like, snapshot, stats
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.gap_code import GapCode

# Files of one process are named alike: server.snapshot.pickle, server.stats-1.json, server.stats-2.json.
_FORMS = re.compile(
    r"[._-]*(?:memory|mem|cuda|torch)?[._-]*(?:snapshot|stats|history)[._-]*(?:first|last|before|after|\d+)?$",
    re.IGNORECASE,
)


def _named(finder: FileFinder, given: Sequence[Path]) -> Iterator[NamedFile]:
    """The files of one process are named alike, and read together."""
    taken: set[str] = set()
    for file in finder.files(given):
        stem, _, ending = file.path.name.rpartition(".")
        group = safe_name(_FORMS.sub("", stem), "process")
        name = unique_name(f"{group}.{ending.lower()}", taken)
        taken.add(name)
        yield NamedFile(file.path, group, name)


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What the files of one process show. Raises SourceError where none of them can be read."""
    subject = f"allocator/{artifacts[0].group}"
    parts: list[Evidence] = []
    known: dict[str, list[tuple[AllocatorStats, str]]] = {}
    refused: list[SourceError] = []
    with_stats = 0
    for artifact in artifacts:
        try:
            content = artifact.read(safe_unpickle.MAX_BYTES)
            if looks_like(content):
                for device, one in _stats(content, artifact).items():
                    known.setdefault(device, []).append((one, artifact.name))
                with_stats += 1
            else:
                found = snapshot(safe_unpickle.load(content, artifact.source), artifact.source)
                parts.append(memory_evidence.of_snapshot(found, subject, artifact.name))
        except SourceError as error:
            refused.append(error)
            reason = f"{error.where or artifact.source}: {error.what}"
            gap = Gap(NAME, reason, (), subject, error.next_step, Origin(artifact.name), error.code)
            parts.append(Evidence(gaps=(gap,)))
    if len(refused) == len(artifacts):
        raise refused[0]
    for device, states in known.items():
        parts.append(memory_evidence.of_stats(states, f"{subject}:{device}" if device else subject))
    return _with_unreported_gaps(Evidence.merge(parts), has_snapshot=with_stats < len(artifacts) - len(refused))


def _stats(content: bytes, artifact: Artifact) -> Mapping[str, AllocatorStats]:
    if len(content) > MAX_BYTES:
        raise SourceError(
            f"{len(content) >> 20} MiB is more than the {MAX_BYTES >> 20} MiB of statistics that are read at most",
            where=artifact.source,
            code=GapCode.TOO_LARGE,
        )
    return stats(content, artifact.source)


def _with_unreported_gaps(found: Evidence, *, has_snapshot: bool) -> Evidence:
    """Add gaps for what this kind of file never reports, and drop those that another file filled."""
    known = {reading.signal for reading in found.readings}
    subjects = [subject.id for subject in found.subjects]
    missing = tuple(signal for signal in SIGNALS if signal not in known)
    gaps = [gap for gap in found.gaps if not gap.signals or not known.issuperset(gap.signals)]
    hidden = {signal for gap in gaps for signal in gap.signals}
    left = tuple(signal for signal in missing if signal not in hidden)
    if left and subjects:
        what, step = (
            ("a snapshot counts no retries", memory_evidence.STATS_TOO)
            if has_snapshot
            else ("statistics hold no single blocks", memory_evidence.SNAPSHOT_TOO)
        )
        gaps.append(Gap(NAME, f"{subjects[0]}: cannot tell: {what}", left, None, step, code=GapCode.UNSUPPORTED))
    return Evidence(found.subjects, found.readings, gaps=tuple(gaps))


READER = file_reader(
    lambda: FileFinder(
        NAME,
        SIGNALS,
        (".json", ".pickle", ".pkl"),
        "give what torch.cuda.memory._dump_snapshot wrote, or torch.cuda.memory_stats() as JSON",
    ),
    paths=lambda request: request.torch_memory,
    named=_named,
    parse=parse,
    availability=SourceAvailability(
        "memory of PyTorch's allocator",
        Availability.IF_GIVEN,
        "fragmentation, retries, failures and segments taken while serving",
        "torch.cuda.memory._dump_snapshot(FILE), torch.cuda.memory_stats() as JSON; --torch-memory FILE",
        "--torch-memory FILE",
    ),
)
