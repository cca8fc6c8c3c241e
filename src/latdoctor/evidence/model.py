"""The forms of evidence, frozen: readings, series, distributions, events and gaps.

A Reading, Series or Distribution belongs to one signal of the catalogue and one subject; each carries its window and
its Origin, so that a person can go and look. What could not be seen is a Gap, never a zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from latdoctor.gap_code import GapCode

Value = float | str
AT_LEAST, AT_MOST = "at least", "at most"  # what `bound` of a Reading may say
Labels = tuple[tuple[str, str], ...]


class Origin(Struct, frozen=True):
    """Where something was read: the artifact's name in its bundle, and the place in it."""

    artifact: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.artifact} ({self.place})" if self.place else self.artifact


class Window(Struct, frozen=True):
    """The time that a piece of evidence covers, unix seconds UTC; None where the source does not report it."""

    start: float | None = None
    end: float | None = None

    @property
    def seconds(self) -> float | None:
        return None if self.start is None or self.end is None else self.end - self.start


class Subject(Struct, frozen=True):
    """What something was measured on (`gpu/0`, `model/densenet`), and what that is part of or runs on."""

    id: str
    parent: str | None = None


class Reading(Struct, frozen=True):
    """One value of a signal in base units (see units.py), or a text for signals of unit `text`."""

    signal: str
    subject: str
    value: Value
    origin: Origin
    window: Window = Window()
    labels: Labels = ()
    note: str = ""  # what a reader must know: "lifetime average", "interpolated within a bucket of 0.3–0.5 s"
    bound: str = ""  # AT_LEAST or AT_MOST where the source reports only a bound; empty where `value` is the value


class Series(Struct, frozen=True):
    """Samples of a signal over time; `times` are unix seconds, ascending, as long as `values`."""

    signal: str
    subject: str
    times: tuple[float, ...]
    values: tuple[float, ...]
    origin: Origin
    labels: Labels = ()


class Bucket(Struct, frozen=True):
    """`count` observations in (low, high]; low equals high for a value known exactly."""

    low: float
    high: float
    count: float


class Distribution(Struct, frozen=True):
    """How the observations of a signal spread over a window. `total` is their sum where the source reports it."""

    signal: str
    subject: str
    buckets: tuple[Bucket, ...]
    origin: Origin
    total: float | None = None
    window: Window = Window()
    labels: Labels = ()
    note: str = ""

    @property
    def count(self) -> float:
        return sum(bucket.count for bucket in self.buckets)


HOST = "host"  # the field of an event of a log: the machine that wrote the line, where the line states it


class Event(Struct, frozen=True):
    """Something that happened: an Xid line, a CUDA error. `fields` are what was parsed out of it."""

    signal: str
    subject: str
    origin: Origin
    fields: Annotated[dict[str, Value], Meta(description="parsed parts, e.g. code, pci")] = {}
    time: float | None = None
    text: str = ""


class Gap(Struct, frozen=True):
    """A part of the evidence that is missing, why, and the signals that are therefore unknown (of one subject, or all).

    Decisions use `code`; `reason` is for people.
    """

    source: str
    reason: str
    signals: tuple[str, ...] = ()
    subject: str | None = None
    next_step: str = ""
    origin: Origin | None = None
    code: GapCode = GapCode.UNSPECIFIED

    @property
    def message(self) -> str:
        """The reason, with the subject that it is about."""
        return f"{self.subject}: {self.reason}" if self.subject else self.reason


class SourceQuery(Struct, frozen=True):
    """The query that gives a signal in the system where it was read: PromQL, to paste. `at`: unix seconds UTC."""

    signal: str
    subject: str
    expression: str
    at: float


class MachineName(Struct, frozen=True):
    """What a text says of the machine that `subject` is or is a part of: its name, and where it says so."""

    subject: str
    name: str
    origin: Origin


class LogClock(Struct, frozen=True):
    """From when to when the lines of a log have times: with a zone, and without one as if they were UTC.

    `ahead`: seconds that those without are ahead of UTC, which their evidence considers; None where the log does not
    show it, so that they are taken as UTC.
    """

    origin: Origin
    zoned: Window = Window()
    local: Window = Window()
    ahead: float | None = None

    @property
    def in_utc(self) -> Window:
        """The times without a zone in UTC, as far as that is known."""
        ahead, local = self.ahead or 0.0, self.local
        if local.start is None or local.end is None:
            return local
        return Window(local.start - ahead, local.end - ahead)


class CoverageStatus(StrEnum):
    """How much of one collector's source was read."""

    READ = "read"
    PARTLY = "partly"
    FAILED = "failed"
    NOT_REQUESTED = "not-asked"


class Coverage(Struct, frozen=True):
    """What one collector yielded."""

    collector: str
    title: str
    status: CoverageStatus
    artifacts: int
    detail: str = ""


class Evidence(Struct, frozen=True, dict=True):
    """Everything seen and everything known not to have been seen. `looked` names event signals searched for.

    An event signal in `looked` without events is a count of zero; one that is absent from it is unknown, and where it
    has events nevertheless (only a part could be read) these are at least so many. `clipped` names those of `looked`
    that happened more often than there are events here: one of every kind was kept, so that none is still none.
    """

    subjects: tuple[Subject, ...] = ()
    readings: tuple[Reading, ...] = ()
    series: tuple[Series, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    events: tuple[Event, ...] = ()
    looked: tuple[tuple[str, str], ...] = ()  # (event signal, subject)
    gaps: tuple[Gap, ...] = ()
    clipped: tuple[tuple[str, str], ...] = ()  # (event signal, subject)
    queries: tuple[SourceQuery, ...] = ()  # of readings that came from a database of metrics
    services: tuple[tuple[str, str], ...] = ()  # (subject, name of the service that it belongs to)
    clocks: tuple[LogClock, ...] = ()
    machines: tuple[MachineName, ...] = ()  # of a text of several machines, several for one subject

    @classmethod
    def merge(cls, parts: Iterable[Evidence]) -> Evidence:
        """All parts as one, in their order; a subject declared twice keeps the first parent it was given."""
        seen = list(parts)
        subjects: dict[str, Subject] = {}
        for subject in (subject for part in seen for subject in part.subjects):
            if subject.id not in subjects or subjects[subject.id].parent is None:
                subjects[subject.id] = subject
        return cls(
            subjects=tuple(subjects.values()),
            readings=tuple(x for part in seen for x in part.readings),
            series=tuple(x for part in seen for x in part.series),
            distributions=tuple(x for part in seen for x in part.distributions),
            events=tuple(x for part in seen for x in part.events),
            looked=tuple(dict.fromkeys(x for part in seen for x in part.looked)),
            gaps=tuple(dict.fromkeys(x for part in seen for x in part.gaps)),
            clipped=tuple(dict.fromkeys(x for part in seen for x in part.clipped)),
            queries=tuple(x for part in seen for x in part.queries),
            services=tuple(dict.fromkeys(x for part in seen for x in part.services)),
            clocks=tuple(x for part in seen for x in part.clocks),
            machines=tuple(x for part in seen for x in part.machines),
        )

    @cached_property
    def parents(self) -> Mapping[str, str | None]:
        return {subject.id: subject.parent for subject in self.subjects}

    @cached_property
    def readings_by_signal(self) -> Mapping[str, tuple[Reading, ...]]:
        grouped: dict[str, list[Reading]] = {}
        for reading in self.readings:
            grouped.setdefault(reading.signal, []).append(reading)
        return {signal: tuple(found) for signal, found in grouped.items()}

    @cached_property
    def events_by_signal(self) -> Mapping[str, tuple[Event, ...]]:
        grouped: dict[str, list[Event]] = {}
        for event in self.events:
            grouped.setdefault(event.signal, []).append(event)
        return {signal: tuple(found) for signal, found in grouped.items()}

    @cached_property
    def gaps_by_signal(self) -> Mapping[str, tuple[Gap, ...]]:
        grouped: dict[str, list[Gap]] = {}
        for gap in self.gaps:
            for signal in gap.signals:
                grouped.setdefault(signal, []).append(gap)
        return {signal: tuple(found) for signal, found in grouped.items()}

    @property
    def time(self) -> Window:
        """From when to when the pieces say that they speak, as far as they do."""
        known = [x.window for x in self.readings] + [x.window for x in self.distributions]
        known += [Window(x.times[0], x.times[-1]) for x in self.series if x.times]
        # A change is often older than what it explains.
        known += [Window(x.time, x.time) for x in self.events if not x.signal.startswith("change.")]
        moments = [moment for window in known for moment in (window.start, window.end) if moment is not None]
        return Window(min(moments), max(moments)) if moments else Window()

    def lineage(self, subject: str) -> tuple[str, ...]:
        """`subject` and its declared ancestors, nearest first; a loop in the declarations ends the walk."""
        found: list[str] = []
        current: str | None = subject
        while current is not None and current not in found:
            found.append(current)
            current = self.parents.get(current)
        return tuple(found)


def kind_of(subject: str) -> str:
    """`replica` of `replica/0@127.0.0.1:8000`."""
    return subject.partition("/")[0]


def is_unknown(value: Value) -> bool:
    """NaN and infinities are unknown everywhere; texts and finite numbers are known."""
    return not isinstance(value, str) and not math.isfinite(value)


def to_json(value: object) -> bytes:
    """Canonical JSON: sorted keys, so that equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")
