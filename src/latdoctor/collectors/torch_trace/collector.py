"""PyTorch profiler traces (Kineto): was the GPU busy, who launched, allocated, waited and copied, and was it warm.

A trace is read as a stream when it is parsed, so collecting one only looks whether it can be read. Old and new
category names are understood, CUDA's and HIP's calls alike; of an AMD trace nothing is said about CUDA.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from latdoctor.collectors.base import Availability, SourceAvailability
from latdoctor.collectors.input_files import FileFinder, NamedFile, file_reader, safe_name, unique_name
from latdoctor.collectors.torch_trace import NAME, SIGNALS
from latdoctor.collectors.torch_trace.json_stream import HOW_TO_RECORD, is_packed
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin

_ENDINGS = re.compile(r"(?:[._-]?(?:gz|json|pt|trace))+$")


def _named(finder: FileFinder, given: Sequence[Path]) -> Iterator[NamedFile]:
    """The traces of a folder are the ranks of one run: one group, read at the same time."""
    taken: set[str] = set()
    groups: dict[Path, str] = {}
    for file in finder.files(given):
        if file.folder is not None and file.folder not in groups:
            groups[file.folder] = unique_name(_short(file.folder), taken | {*groups.values()})
        others = {name for folder, name in groups.items() if folder != file.folder}
        own = unique_name(_short(file.path), taken | others)
        taken.add(own)
        group = own if file.folder is None else groups[file.folder]
        yield NamedFile(file.path, group, f"{own}.json{'.gz' if is_packed(file.head) else ''}")


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What each trace shows. Raises SourceError where the only one cannot be read as a whole or holds no timed event;
    one of several that cannot be read is a gap of its subject. Where not one can, there is no subject.
    """
    # Linear algebra is not used, and would have a thread for each processor as soon as numpy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imported here: it loads numpy, and only a trace needs that.
    from latdoctor.collectors.torch_trace.read_traces import read_trace, read_traces, subject_of

    if len(artifacts) == 1:
        return read_trace(artifacts[0])
    seen = list(zip(artifacts, read_traces(artifacts), strict=True))
    any_read = any(isinstance(found, Evidence) for _, found in seen)
    return Evidence.merge(
        found
        if isinstance(found, Evidence)
        else Evidence(gaps=(_unread(artifact, found, subject_of(artifact) if any_read else None),))
        for artifact, found in seen
    )


def _unread(artifact: Artifact, why: SourceError, subject: str | None) -> Gap:
    return Gap(
        source=NAME,
        reason=f"{why.where or artifact.source}: {why.what}",
        signals=SIGNALS,
        subject=subject,
        next_step=why.next_step,
        origin=Origin(artifact.name),
        code=why.code,
    )


def _short(path: Path) -> str:
    return safe_name(_ENDINGS.sub("", path.name), "trace")


READER = file_reader(
    lambda: FileFinder(NAME, SIGNALS, (".json", ".json.gz"), HOW_TO_RECORD),
    paths=lambda request: request.traces,
    named=_named,
    parse=parse,
    availability=SourceAvailability(
        "profiler traces (Kineto)",
        Availability.IF_GIVEN,
        "GPU busy, launches, allocations, synchronisation and copies of a few seconds of the service",
        "export a trace with torch.profiler on the serving thread, then --trace FILE",
        "--trace FILE",
    ),
)
