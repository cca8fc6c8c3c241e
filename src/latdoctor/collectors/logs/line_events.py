"""A reader of log lines that report one kind of event each: it bounds, redacts and places what a finder finds.

Such lines are reported when they are there; a log without them rules nothing out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from latdoctor.collectors.logs.line_kind import LineLocation
from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import HOST, Event, Evidence, Gap, Origin, Reading, Subject, Value
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

MAX_EVENTS = 1000  # of one signal in one log; the first of each kind is kept beyond that
_MAX_KINDS = 2000


@dataclass(frozen=True, slots=True)
class Found:
    """An event, or with `value` a reading: of the GPU `gpu` (PCI address, UUID or index), else of the log's machine."""

    signal: str
    fields: Mapping[str, Value] = field(default_factory=dict)
    gpu: str = ""
    value: Value | None = None


Finder = Callable[[LogLine], Iterable[Found]]


class EventLines:
    """A LineReader. `find` returns what one line reports and must not raise."""

    def __init__(self, artifact: Artifact, find: Finder) -> None:
        self._artifact = artifact
        self._find = find
        self._node = f"node/{artifact.group}"
        self._events: list[Event] = []
        self._readings: dict[tuple[str, str], Reading] = {}
        self._counts: Counter[str] = Counter()
        self._kinds: set[tuple[str, str, str]] = set()

    def take(self, at: LineLocation) -> None:
        for found in self._find(at.line):
            self.add(found, at)

    def add(self, found: Found, at: LineLocation) -> None:
        """Keep what was found in a line."""
        subject = f"gpu/{found.gpu}" if found.gpu else self._node
        origin = Origin(self._artifact.name, f"line {at.number}")
        if found.value is not None:
            self._readings[found.signal, subject] = Reading(found.signal, subject, found.value, origin)
            return
        self._counts[found.signal] += 1
        kind = (found.signal, subject, str(found.fields.get("kind", "")))
        new = kind not in self._kinds and len(self._kinds) < _MAX_KINDS
        if self._counts[found.signal] > MAX_EVENTS and not new:
            return
        self._kinds.add(kind)
        fields = {
            name: clean(without_secrets(value), 200) if isinstance(value, str) else value
            for name, value in found.fields.items()
        }
        if at.line.uptime is not None:
            fields["uptime_s"] = at.line.uptime
        if at.line.host:
            fields[HOST] = at.line.host
        if at.line.time is not None and not at.line.zoned:
            fields["zone"] = "not given, read as UTC"
        text = clean(without_secrets(at.text), 2000)
        self._events.append(Event(found.signal, subject, origin, fields, at.line.time, text))

    def evidence(self, *, complete: bool) -> Evidence:
        if not self._events and not self._readings:
            return Evidence()
        subjects = [*(one.subject for one in self._events), *(subject for _, subject in self._readings)]
        return Evidence(
            subjects=(
                Subject(self._node),
                *(Subject(name, self._node) for name in dict.fromkeys(subjects) if name != self._node),
            ),
            readings=tuple(self._readings.values()),
            events=tuple(self._events),
            gaps=tuple(self._gap(signal, count) for signal, count in self._counts.items() if count > MAX_EVENTS),
        )

    def _gap(self, signal: str, count: int) -> Gap:
        reason = f"{self._artifact.source}: {count} {signal} lines, of which {MAX_EVENTS} were kept"
        return Gap("logs", reason, origin=Origin(self._artifact.name), code=GapCode.TOO_LARGE)
