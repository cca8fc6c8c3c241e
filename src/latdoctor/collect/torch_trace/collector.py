"""PyTorch profiler traces (Kineto): was the GPU busy, who launched, allocated, waited and copied, and was it warm.

A trace is read as a stream when it is parsed, so collecting one only looks whether it can be read. Old and new
category names are understood, CUDA's and HIP's calls alike; of an AMD trace nothing is said about CUDA.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from latdoctor.collect.files import unique
from latdoctor.collect.source import Clock, Collected, Collector, Request, Sight
from latdoctor.collect.torch_trace import evidence as trace_evidence
from latdoctor.collect.torch_trace.kineto import HOW_TO_RECORD
from latdoctor.collect.torch_trace.writer import NAME
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.text import clean

MAX_FILES = 64  # of a folder
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_ENDINGS = re.compile(r"(?:[._-]?(?:gz|json|pt|trace))+$")
_LONGEST_NAME = 60


def collect(request: Request, clock: Clock) -> Collected:
    """Finds the traces of `request.traces`, files or folders of `*.json` and `*.json.gz`; what is none is a gap."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    taken: set[str] = set()
    for given in request.traces:
        # The traces of a folder are the ranks of one run: one group, read at the same time.
        folder = _unique_name(given, taken) if _is_folder(given) else ""
        for path in _files(given, gaps):
            try:
                with path.open("rb") as file:
                    packed = file.read(2) == b"\x1f\x8b"
            except OSError as error:
                gaps.append(_gap(path, f"cannot be read: {error.strerror}", "check path and rights"))
                continue
            own = _unique_name(path, taken)
            taken.add(own)
            name = f"{NAME}/{own}.json{'.gz' if packed else ''}"
            artifacts.append(Artifact(name, NAME, folder or own, clean(str(path)), clock.now(), path))
        taken.add(folder)
    return Collected(tuple(artifacts), tuple(gaps))


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What each trace shows. Raises SourceError where the only one cannot be read as a whole or holds no timed event;
    one of several that cannot be read is a gap of its subject.
    """
    # Linear algebra is not used, and would have a thread for each processor as soon as numpy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imported here: it loads numpy, and only a trace needs that.
    from latdoctor.collect.torch_trace.reading import read_trace, read_traces, subject_of

    if len(artifacts) == 1:
        return read_trace(artifacts[0])
    parts = []
    for artifact, found in zip(artifacts, read_traces(artifacts), strict=True):
        if isinstance(found, SourceError):
            gap = Gap(
                source=NAME,
                reason=f"{found.where or artifact.source}: {found.what}",
                signals=trace_evidence.SIGNALS,
                subject=subject_of(artifact),
                next_step=found.next_step,
                origin=Origin(artifact.name),
            )
            parts.append(Evidence(gaps=(gap,)))
        else:
            parts.append(found)
    return Evidence.merge(parts)


def preflight() -> Sequence[Sight]:
    return (
        Sight(
            "profiler traces (Kineto)",
            "if given",
            "GPU busy, launches, allocations, synchronisation and copies of a few seconds of the service",
            "export a trace with torch.profiler on the serving thread, then --trace FILE",
        ),
    )


def _is_folder(given: Path) -> bool:
    try:
        return given.is_dir()
    except OSError:  # told by _files
        return False


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
    return unique(stem, taken)


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
