"""What was changed shortly before: notes of changes (`--changes FILE`), and the watched process (`--pid N`).

Metrics pages and logs tell of changes too: a new model version, a process that started. Those stand with their sources
(`dialects/changes.py`, `logs/events.py`); all of them are events `change.*`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from latdoctor.collect import streams
from latdoctor.collect.changes import notes, process
from latdoctor.collect.source import Clock, Collected, Collector, Request, Sight
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, to_json
from latdoctor.text import clean

NAME = "changes"
_PROVIDES = frozenset({"change.process_start", "change.config", "change.package", "change.deployment", "change.model"})
_PROCESS = "process"  # begins the group of a process's state
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def collect(request: Request, clock: Clock, root: Path = Path("/")) -> Collected:
    """Reads the files of `request.changes` and the state of `request.pid`."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    if request.pid is not None:
        state = to_json(process.take(request.pid, root))
        name = f"{_PROCESS}-{request.pid}"
        artifacts.append(Artifact(f"{NAME}/{name}.json", NAME, name, f"process {request.pid}", clock.now(), state))
    for number, path in enumerate(request.changes, 1):
        is_stream = streams.is_stream(path)
        name = streams.shown_name(path) if is_stream else path.name
        source = clean(name if is_stream else str(path))
        try:
            content = _read(path, request.timeout, is_stream=is_stream)
        except SourceError as error:
            gaps.append(Gap(NAME, f"{source}: {error.what}", (), None, error.next_step))
            continue
        own = f"notes-{number}-{_UNSAFE.sub('_', name)[:80].strip('._') or 'file'}"
        artifacts.append(Artifact(f"{NAME}/{own}", NAME, own, source, clock.now(), content))
    return Collected(tuple(artifacts), tuple(gaps))


def _read(path: Path, timeout: float, *, is_stream: bool) -> bytes:
    """Raises SourceError."""
    if is_stream:
        return streams.read_stream(path, timeout, notes.MAX_READ, notes.MAX_READ).content
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "does not exist"
        raise SourceError(reason, where=str(path), next_step="look at the path given with --changes")
    return Artifact("", NAME, "", str(path), 0.0, path).read(notes.MAX_READ)


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """The events of one file or process. Raises SourceError where it holds none."""
    return Evidence.merge(
        process.parse(one) if one.group.startswith(f"{_PROCESS}-") else notes.parse(one) for one in artifacts
    )


def preflight() -> Sequence[Sight]:
    return (
        Sight(
            "changes",
            "if given",
            "what was deployed or changed when, to be held against the time since which it is slow",
            "git log --format='%cI %s' > changes.log, then --changes changes.log; --pid N for a process",
        ),
    )


COLLECTOR = Collector(
    name=NAME,
    title="changes",
    provides=_PROVIDES,
    asked=lambda request: bool(request.changes) or request.pid is not None,
    collect=collect,
    parse=parse,
    preflight=preflight,
    ask="--changes FILE",
    cost="reads a file",
)
