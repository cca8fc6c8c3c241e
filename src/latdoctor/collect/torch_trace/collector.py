"""PyTorch profiler traces (Kineto): was the GPU busy, who launched, allocated, waited and copied, and was it warm.

A trace is read as a stream when it is parsed, so collecting one only looks whether it can be read. Old and new
category names are understood, CUDA's and HIP's calls alike; of an AMD trace nothing is said about CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from latdoctor.collect.source import Clock, Collected, Collector, Request, Sight
from latdoctor.collect.torch_trace import evidence as trace_evidence
from latdoctor.collect.torch_trace.columns import Columns
from latdoctor.collect.torch_trace.kineto import HOW_TO_RECORD, KinetoReader
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.text import clean

NAME = trace_evidence.NAME
MAX_FILES = 64  # of a folder
# More GPU events and calls than this are refused: they would need more than half a gigabyte.
MAX_KEPT = 20_000_000
# Above this share of damaged events the rest cannot be trusted either.
MAX_DAMAGED = 0.01

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_ENDINGS = re.compile(r"(?:[._-]?(?:gz|json|pt|trace))+$")
_LONGEST_NAME = 60


def collect(request: Request, clock: Clock) -> Collected:
    """Finds the traces of `request.traces`, files or folders of `*.json` and `*.json.gz`; what is none is a gap."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    for given in request.traces:
        for path in _files(given, gaps):
            try:
                with path.open("rb") as file:
                    packed = file.read(2) == b"\x1f\x8b"
            except OSError as error:
                gaps.append(_gap(path, f"cannot be read: {error.strerror}", "check path and rights"))
                continue
            group = _unique_name(path, {artifact.group for artifact in artifacts})
            name = f"{NAME}/{group}.json{'.gz' if packed else ''}"
            artifacts.append(Artifact(name, NAME, group, clean(str(path)), clock.now(), path))
    return Collected(tuple(artifacts), tuple(gaps))


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What each trace shows. Raises SourceError where one cannot be read as a whole or holds no timed event."""
    return Evidence.merge(_parse_one(artifact) for artifact in artifacts)


def preflight() -> Sequence[Sight]:
    return (
        Sight(
            "profiler traces (Kineto)",
            "if given",
            "GPU busy, launches, allocations, synchronisation and copies of a few seconds of the service",
            "export a trace with torch.profiler on the serving thread, then --trace FILE",
        ),
    )


def _files(given: Path, gaps: list[Gap]) -> Iterator[Path]:
    """The trace files that `given` stands for."""
    try:
        is_file, is_folder, exists = given.is_file(), given.is_dir(), given.exists()
    except OSError as error:  # its folder may not be entered
        gaps.append(_gap(given, f"cannot be read: {error.strerror}", "check path and rights"))
        return
    if is_file:
        yield given
        return
    if not is_folder:
        reason = "is not a regular file" if exists else "does not exist"
        gaps.append(_gap(given, reason, "check the path of the trace"))
        return
    try:
        found = sorted(path for path in given.iterdir() if path.name.endswith((".json", ".json.gz")) and path.is_file())
    except OSError as error:
        gaps.append(_gap(given, f"cannot be read: {error.strerror}", "check path and rights"))
        return
    if not found:
        gaps.append(_gap(given, "holds no .json or .json.gz file", HOW_TO_RECORD))
    if len(found) > MAX_FILES:
        reason = f"holds {len(found)} traces; only the first {MAX_FILES} are read"
        gaps.append(_gap(given, reason, "give the ones that cover the incident", signals=()))
    yield from found[:MAX_FILES]


def _gap(path: Path, reason: str, next_step: str, signals: tuple[str, ...] = trace_evidence.SIGNALS) -> Gap:
    return Gap(NAME, f"{clean(str(path))}: {reason}", signals, next_step=next_step)


def _unique_name(path: Path, taken: set[str]) -> str:
    stem = _UNSAFE.sub("-", _ENDINGS.sub("", path.name))[:_LONGEST_NAME].strip("._+-") or "trace"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name


def _parse_one(artifact: Artifact) -> Evidence:
    # Imported here: the analysis loads numpy only when it runs, and only a trace needs either.
    from latdoctor.collect.torch_trace.analysis import analyse

    reader = KinetoReader(artifact.content, artifact.source)
    columns = _read(reader, artifact.source)
    summary = analyse(columns)
    subject = f"trace/{artifact.group}"
    seen = trace_evidence.evidence(summary, subject, artifact.name, reader.base_time)
    if not reader.damage.count:
        return seen
    count, first = reader.damage.count, reader.damage.first
    are = "is" if count == 1 else "are"
    reason = f"{subject}: {count} of {reader.events} events {are} damaged and left out; the first: {first}"
    damage = Gap(NAME, reason, (), subject, "record again if the figures matter", Origin(artifact.name))
    return Evidence.merge((seen, Evidence(gaps=(damage,))))


def _read(reader: KinetoReader, where: str) -> Columns:
    columns = Columns(reader.damage)
    for batch in reader.batches():
        columns.add(batch)
        if columns.kept > MAX_KEPT:
            raise SourceError(
                f"more than the {MAX_KEPT} GPU events and calls that are read at most",
                where=where,
                next_step="record a shorter trace: 3 s under load are enough",
            )
    count, total = reader.damage.count, reader.events
    # One damaged event in a short trace is no reason to refuse it, unless it was the only one.
    if count > MAX_DAMAGED * total and (count > 1 or not columns.timed):
        raise SourceError(
            f"{count} of {total} events are damaged; the first: {reader.damage.first}",
            where=where,
            next_step="record the trace again",
        )
    if not columns.timed:
        held = f"only {reader.events} events without a duration" if reader.events else "no events"
        raise SourceError(f"the trace holds {held}", where=where, next_step=HOW_TO_RECORD)
    return columns


COLLECTOR = Collector(
    name=NAME,
    title="profiler traces",
    provides=frozenset(trace_evidence.SIGNALS),
    asked=lambda request: bool(request.traces),
    collect=collect,
    parse=parse,
    preflight=preflight,
    ask="--trace FILE",
    cost="reads a file",
)
