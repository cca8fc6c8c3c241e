"""Collector of changes: change logs with one entry per line, and the state of a process.

A change log has lines that begin with a time (`git log --format='%cI %s'`, the log of a deployment script), JSON lines,
or a JSON document with such objects (Grafana's annotations, a list of deployments).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from latdoctor.collectors import piped_input
from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log.entry import Timestamp
from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    SourceAvailability,
    SourceReader,
)
from latdoctor.collectors.changes import NAME, process
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event, Evidence, Gap, Origin, Value, to_json
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

MAX_READ = 16 << 20
MAX_EVENTS = 1000
SUBJECT = "service"
DEPLOYMENT = "change.deployment"
_KINDS = {"config": "change.config", "configuration": "change.config", "model": "change.model",
          "restart": "change.process_start", "package": "change.package"}  # fmt: skip
_TIMES = ("time", "timestamp", "@timestamp", "date", "created_at", "createdAt", "at", "ts", "when", "started_at")
_TEXTS = ("text", "message", "msg", "what", "title", "description", "summary", "subject", "event", "name")
_LISTS = ("annotations", "deployments", "changes", "items", "data")
_SHOWN = 300


def parse_change_log(artifact: Artifact) -> Evidence:
    """Return the changes in a log. Raises SourceError if none can be read."""
    content = artifact.read(MAX_READ)
    found: list[Event] = []
    unread = dropped = 0
    for place, note in _notes(content):
        event = _event(artifact, place, note) if note is not None else None
        if event is None:
            unread += 1
        else:
            found.append(event)
    if not found:
        raise SourceError(
            "contains no change with a time",
            where=artifact.source,
            next_step="write one per line, with the time first: 2026-01-31T02:49:00Z deployed v7",
        )
    if len(found) > MAX_EVENTS:
        dropped = len(found) - MAX_EVENTS
        found = sorted(found, key=lambda event: event.time or 0.0)[-MAX_EVENTS:]
    partial = (
        (unread, f"{unread} of its lines could not be read", GapCode.UNREADABLE),
        (dropped, f"{dropped} older changes were left out", GapCode.TOO_LARGE),
    )
    gaps = tuple(
        Gap("changes", f"{artifact.source}: {reason}", origin=Origin(artifact.name), code=code)
        for count, reason, code in partial
        if count
    )
    signals = dict.fromkeys((DEPLOYMENT, *(event.signal for event in found)))
    return Evidence(events=tuple(found), looked=tuple((signal, SUBJECT) for signal in signals), gaps=gaps)


Note = tuple[Timestamp, str, Mapping[str, object]]


def _notes(content: bytes) -> Iterator[tuple[str, Note | None]]:
    """Yield each entry with its position; None if unreadable."""
    document = _document(content)
    if document is not None:
        for number, one in enumerate(document, 1):
            yield f"entry {number}", _of_object(one) if isinstance(one, dict) else None
        return
    for number, raw in enumerate(io.BytesIO(content), 1):
        line = raw[:4096].decode("utf-8", "replace").strip()
        if line and not line.startswith("#"):
            yield f"line {number}", _of_line(line)


def _document(content: bytes) -> list[object] | None:
    """The objects of a JSON document; None for other text and for JSON lines."""
    if content.lstrip()[:1] not in (b"[", b"{"):
        return None
    try:
        whole = msgspec.json.decode(content)
    except UNDECODABLE:
        return None
    if isinstance(whole, dict):
        listed = next((whole[name] for name in _LISTS if isinstance(whole.get(name), list)), None)
        return [whole] if listed is None else list(listed)
    return whole if isinstance(whole, list) else None


def _of_line(line: str) -> Note | None:
    if line.startswith("{"):
        try:
            return _of_object(msgspec.json.decode(line, type=dict[str, object]))
        except UNDECODABLE:
            return None
    words = line.split(" ", 3)
    for count in (3, 2, 1):  # a time may have several words: 2026-01-31 02:49:00 +0000
        if len(words) > count - 1 and (found := times.parse_timestamp(" ".join(words[:count]).strip("[]"))) is not None:
            return found, " ".join(words[count:]).strip(" -:|\t"), {}
    return None


def _of_object(record: Mapping[str, object]) -> Note | None:
    for name in _TIMES:
        value = record.get(name)
        found: Timestamp | None = None
        if isinstance(value, str):
            found = times.parse_timestamp(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = times.unix_timestamp(float(value), fine=True)
        if found is not None:
            text = next((str(record[key]) for key in _TEXTS if isinstance(record.get(key), str)), "")
            return found, text, record
    return None


def _event(artifact: Artifact, place: str, note: Note) -> Event:
    at, text, record = note
    fields: dict[str, Value] = {}
    version = record.get("version") or record.get("ref")
    if isinstance(version, str | int) and str(version) not in text:
        fields["to"] = clean(without_secrets(str(version)), 80)
    if not at.zoned:
        fields["zone"] = "not given, read as UTC"
    signal = _KINDS.get(str(record.get("kind", "")).lower(), DEPLOYMENT)
    return Event(signal, SUBJECT, Origin(artifact.name, place), fields, at.time, clean(without_secrets(text), _SHOWN))


_PROCESS = "process"  # prefix of the group of a process's state
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def collect(request: CollectRequest, clock: Clock, root: Path = Path("/")) -> CollectResult:
    """Read the files of `request.changes` and the state of `request.pid`."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    if request.pid is not None:
        state = to_json(process.read_process_state(request.pid, root))
        name = f"{_PROCESS}-{request.pid}"
        artifacts.append(Artifact(f"{NAME}/{name}.json", NAME, name, f"process {request.pid}", clock.now(), state))
    for number, path in enumerate(request.changes, 1):
        is_stream = piped_input.is_stream(path)
        name = piped_input.shown_name(path) if is_stream else path.name
        source = clean(piped_input.display(path))
        try:
            content = _read(path, request.timeout, is_stream=is_stream)
        except SourceError as error:
            gaps.append(Gap(NAME, f"{source}: {error.what}", (), None, error.next_step, code=error.code))
            continue
        own = f"notes-{number}-{_UNSAFE.sub('_', name)[:80].strip('._') or 'file'}"
        artifacts.append(Artifact(f"{NAME}/{own}", NAME, own, source, clock.now(), content))
    return CollectResult(tuple(artifacts), tuple(gaps))


def _read(path: Path, timeout: float, *, is_stream: bool) -> bytes:
    """Raises SourceError."""
    if is_stream:
        return piped_input.read_stream(path, timeout, MAX_READ, MAX_READ).content
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "does not exist"
        raise SourceError(reason, where=str(path), next_step="check the path of --changes")
    return Artifact("", NAME, "", str(path), 0.0, path).read(MAX_READ)


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """Return the events of one file or process. Raises SourceError if there are none."""
    return Evidence.merge(
        process.parse(one) if one.group.startswith(f"{_PROCESS}-") else parse_change_log(one) for one in artifacts
    )


def preflight() -> Sequence[SourceAvailability]:
    return (
        SourceAvailability(
            "changes",
            Availability.IF_GIVEN,
            "deployments and changes with their times, to compare with the onset of a slowdown",
            "git log --format='%cI %s' > changes.log, then --changes changes.log; --pid N for a process",
            "--changes FILE",
        ),
    )


READER = SourceReader(collect, parse, preflight)
