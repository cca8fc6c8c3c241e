"""From the numbers of engine log lines to evidence: series, the level that each quantity has now, and its onset.

A single value is the mean over the judged time: the requested range; else the stretch in which the engine is worst off
(requests run and no token is computed; the queue, the KV cache or the wait at a higher level than before); else the
last ten minutes, as in an access log. All quantities of an engine are judged over the same time, so that they fit each
other.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from latdoctor.collectors.access_log.replica_stats import RECENT
from latdoctor.collectors.logs.engine_formats import ValueKind
from latdoctor.collectors.logs.engine_levels import stall
from latdoctor.collectors.logs.pod_names import service_of
from latdoctor.collectors.time_range import TimeRange
from latdoctor.detectors.level_change import LevelChange, worsening
from latdoctor.detectors.level_onset import level_event
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import (
    AT_LEAST,
    Bucket,
    Distribution,
    Event,
    Evidence,
    Origin,
    Reading,
    Series,
    Subject,
    Value,
    Window,
)
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.sanitize import clean

MAX_EVENTS = 200  # of one kind of one engine
MAX_STEPS = 7200  # of a series
_FEW = 4  # samples: fewer say little
_BINS_PER_DECADE = 50
_FIRST = re.compile(r"(?:Engine-|rank-|DP)0+")
_RUNNING, _OUTPUT, _INPUT = "requests.running", "output.token_rate", "input.token_rate"
# What decides on the judged time, in this order.
_FOCUS = ("queue.depth", "kv.usage", "queue.time.mean", _OUTPUT)
_OTHER_ONSETS = ("prefix_cache.hit_ratio", _RUNNING)


@dataclass(slots=True)
class Column:
    """Samples of one quantity, in the order of the log. A time is NaN for a line without one."""

    kind: ValueKind
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    lines: array[int] = field(default_factory=lambda: array("l"))


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A line that is an event; `count` is how many requests and the like it is about."""

    signal: str
    what: str
    count: float
    time: float | None
    line: int
    text: str
    usual_at_start: bool = False


@dataclass(slots=True)
class EngineSamples:
    """What the log says of one engine. `name` is empty for the only one, `pod` where no carrier of the log names it,
    `service` where the log is of one service. Mutable while the log is read.
    """

    server: str
    name: str
    pod: str = ""
    service: str = ""
    columns: dict[str, Column] = field(default_factory=dict)
    events: list[LoggedEvent] = field(default_factory=list)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, signal: str, kind: ValueKind, value: float, time: float | None, line: int) -> None:
        column = self.columns.setdefault(signal, Column(kind))
        if column.kind == kind:
            column.times.append(math.nan if time is None else time)
            column.values.append(value)
            column.lines.append(line)

    def take(self, other: EngineSamples) -> None:
        """Add all that `other` has: lines that do not name the engine are about the only one."""
        for signal, column in other.columns.items():
            own = self.columns.setdefault(signal, Column(column.kind))
            if own.kind == column.kind:
                own.times.extend(column.times)
                own.values.extend(column.values)
                own.lines.extend(column.lines)
        self.events.extend(other.events)
        self.kinds.update(other.kinds)

    def add_event(self, event: LoggedEvent) -> None:
        self.kinds[event.signal, event.what] += 1
        if self.kinds[event.signal, event.what] <= MAX_EVENTS:
            self.events.append(event)


def engine_evidence(engines: Sequence[EngineSamples], artifact: Artifact, requested: TimeRange | None) -> Evidence:
    """The evidence of all engines of one log. A single pod, and a single first engine, are the server itself.

    A log of several services, as `docker compose logs` prints, has a server for each: their engines are no replicas.
    """
    services = {(engine.server, service_of(engine.pod)) for engine in engines}
    merged: dict[tuple[str, str, str], EngineSamples] = {}
    for engine in engines:
        names = {one.name for one in engines if one.name and one.pod == engine.pod}
        rank = "" if len(names) == 1 and _FIRST.fullmatch(engine.name) else engine.name
        service = service_of(engine.pod)
        pods = {one.pod for one in engines if (one.server, service_of(one.pod)) == (engine.server, service)}
        name = "-".join(part for part in (engine.pod if len(pods) > 1 else "", rank) if part)
        titled = service or engine.server.lower().replace(" ", "-")
        key = (engine.server, titled if len(services) > 1 else "", name)
        whole = merged.setdefault(key, EngineSamples(engine.server, name, service=key[1]))
        whole.take(engine)
    return Evidence.merge(_EngineReport(engine, artifact, requested).evidence() for engine in merged.values())


@dataclass(frozen=True, slots=True)
class _Samples:
    """One quantity on the axis of its engine: times (unix seconds) or, without times, line numbers. Ascending."""

    signal: str
    kind: ValueKind
    axis: Sequence[float]
    values: Sequence[float]
    lines: Sequence[int]

    def within(self, start: float, end: float) -> range:
        return range(bisect_left(self.axis, start), bisect_right(self.axis, end))


class _EngineReport:
    """The evidence of one engine."""

    def __init__(self, engine: EngineSamples, artifact: Artifact, requested: TimeRange | None) -> None:
        self.engine, self.artifact, self.requested = engine, artifact, requested
        group = clean(artifact.group, 100)
        self.server = f"server/{engine.service}@{group}" if engine.service else f"server/{group}"
        self.subject = f"replica/{engine.name}@{group}" if engine.name else self.server
        moments = [time for column in engine.columns.values() for time in column.times]
        self.timed = sum(not math.isnan(time) for time in moments) * 2 > len(moments)
        self.samples = {signal: self._on_axis(signal, column) for signal, column in engine.columns.items()}
        self.steps = {one.signal: one for one in self._stepped() if len(one.axis)}
        self.stall = self._stall()
        self.changes = {signal: found for signal in (*_FOCUS, *_OTHER_ONSETS) if (found := self._change(signal))}
        self.start, self.end = self._judged()

    def evidence(self) -> Evidence:
        subjects = [Subject(self.server)]
        if self.subject != self.server:
            subjects.append(Subject(self.subject, parent=self.server))
        return Evidence(
            subjects=tuple(subjects),
            readings=tuple(self._readings()),
            series=tuple(self._series()) if self.timed else (),
            distributions=tuple(self._distributions()),
            events=(*self._events(), *self._onsets()),
        )

    def _on_axis(self, signal: str, column: Column) -> _Samples:
        rows: Sequence[int] = range(len(column.values))
        if self.timed:
            rows = sorted((i for i in rows if not math.isnan(column.times[i])), key=column.times.__getitem__)
        axis = column.times if self.timed else [float(line) for line in column.lines]
        return _Samples(
            signal,
            column.kind,
            [axis[i] for i in rows],
            [column.values[i] for i in rows],
            [column.lines[i] for i in rows],
        )

    def _stepped(self) -> Iterator[_Samples]:
        """Each quantity with at most one value at a time: levels, rates of counters, means of observations."""
        for one in self.samples.values():
            if one.kind == ValueKind.LEVEL:
                yield _merged(one, one.signal)
            elif one.kind == ValueKind.EACH and f"{one.signal}.mean" in catalogue():
                yield _merged(one, f"{one.signal}.mean")
            elif one.kind == ValueKind.COUNTER and self.timed:
                yield _rates(_merged(one, one.signal))

    def _stall(self) -> tuple[LevelChange, _Samples] | None:
        running, output = self.steps.get(_RUNNING), self.steps.get(_OUTPUT)
        if running is None or output is None:
            return None
        busy = dict(zip(running.axis, running.values, strict=True))
        prompts = self.steps.get(_INPUT)
        taken = dict(zip(prompts.axis, prompts.values, strict=True)) if prompts else {}
        found = stall(
            [busy.get(at, 0.0) for at in output.axis], output.values, [taken.get(at, 0.0) for at in output.axis]
        )
        return (found, output) if found else None

    def _change(self, signal: str) -> tuple[LevelChange, _Samples] | None:
        samples = self.steps.get(signal)
        if samples is None:
            return None
        if signal == _OUTPUT:
            samples = self._while_running(samples)
        found = worsening(signal, samples.values)
        return (found, samples) if found else None

    def _while_running(self, samples: _Samples) -> _Samples:
        """Without the times at which nothing was to be done: a low rate means nothing then."""
        running = self.steps.get(_RUNNING)
        busy = dict(zip(running.axis, running.values, strict=True)) if running else {}
        rows = [i for i, at in enumerate(samples.axis) if busy.get(at, 1.0) > 0]
        return _Samples(
            samples.signal,
            samples.kind,
            [samples.axis[i] for i in rows],
            [samples.values[i] for i in rows],
            [samples.lines[i] for i in rows],
        )

    def _judged(self) -> tuple[float, float]:
        """Beginning and end of the judged time on the axis."""
        if self.requested is not None:
            return self.requested.judged, self.requested.until
        found = [self.changes[name] for name in _FOCUS if name in self.changes]
        chosen = self.stall or next(iter(found), None)
        if chosen is not None:
            change, samples = chosen
            start, end = samples.axis[change.first], samples.axis[change.last]
            lasting = [one.axis[moved.first] for moved, one in found if moved.last == len(one.axis) - 1]
            latest = max(lasting, default=start)
            # What lasts is judged from when all of it has come about: the cache fills after the queue begins.
            whole = not self.stall and change.last == len(samples.axis) - 1 and len(samples.within(latest, end)) >= _FEW
            return (max(start, latest) if whole else start), end
        ends = [one.axis[-1] for one in self.samples.values() if len(one.axis)]
        end = max(ends, default=math.inf)
        return (end - RECENT if self.timed else -math.inf), end

    def _readings(self) -> Iterator[Reading]:
        for one in self.samples.values():
            rows = one.within(self.start, self.end)
            if one.kind == ValueKind.FACT and len(one.values):
                yield self._reading(one.signal, one.values[-1], one, range(len(one.values) - 1, len(one.values)))
            elif one.kind == ValueKind.LEVEL and len(rows):
                mean = math.fsum(one.values[i] for i in rows) / len(rows)
                yield self._reading(one.signal, mean, one, rows, f"mean of {len(rows)} lines" if len(rows) > 1 else "")
            elif one.kind in (ValueKind.COUNTER, ValueKind.SUM):
                yield from self._rate(one)

    def _rate(self, one: _Samples) -> Iterator[Reading]:
        """How often, of a count since the start (its growth) or of parts (their sum over the time of the log)."""
        if not self.timed or not len(one.values):
            return
        axes = [other.axis for other in self.samples.values() if len(other.axis)]
        every = [at for axis in axes for at in (axis[0], axis[-1])]
        start, end = max(self.start, min(every)), min(self.end, max(every))
        rows = one.within(start, end)
        if not len(rows) and self.requested is None:
            start, end, rows = min(every), max(every), range(len(one.values))
        if not rows or end <= start:
            return
        if one.kind == ValueKind.SUM:
            total, bound = math.fsum(one.values[i] for i in rows), ""
        else:
            first = one.values[rows[0] - 1] if rows[0] else one.values[rows[0]]
            grown = one.values[rows[-1]] - first
            total, bound = (grown, "") if grown > 0 else (1.0, AT_LEAST)  # a restart, or one line only
        yield self._reading(one.signal, total / (end - start), one, rows, f"{total:g} in {end - start:.0f} s", bound)

    def _reading(
        self, signal: str, value: float, one: _Samples, rows: range, note: str = "", bound: str = ""
    ) -> Reading:
        first, last = one.lines[rows[0]], one.lines[rows[-1]]
        place = f"line {first}" if first == last else f"lines {min(first, last)} to {max(first, last)}"
        window = Window(one.axis[rows[0]], one.axis[rows[-1]]) if self.timed else Window()
        said = "; ".join(part for part in (self.engine.server, note) if part)
        return Reading(signal, self.subject, value, Origin(self.artifact.name, place), window, (), said, bound)

    def _series(self) -> Iterator[Series]:
        for one in self.steps.values():
            if len(one.axis) > 1:
                place = f"lines {min(one.lines)} to {max(one.lines)}"
                times, values = tuple(one.axis), tuple(one.values)
                yield Series(one.signal, self.subject, times, values, Origin(self.artifact.name, place))

    def _distributions(self) -> Iterator[Distribution]:
        for one in self.samples.values():
            rows = one.within(self.start, self.end) if one.kind == ValueKind.EACH else range(0)
            if not len(rows):
                continue
            values = [one.values[i] for i in rows]
            counts = Counter(_bin(value) for value in values)
            buckets = tuple(Bucket(*edges, float(count)) for edges, count in sorted(counts.items()))
            window = Window(one.axis[rows[0]], one.axis[rows[-1]]) if self.timed else Window()
            origin = Origin(self.artifact.name, f"lines {one.lines[rows[0]]} to {one.lines[rows[-1]]}")
            yield Distribution(
                one.signal, self.subject, buckets, origin, math.fsum(values), window, (), self.engine.server
            )

    def _events(self) -> Iterator[Event]:
        for one in self.engine.events:
            if one.usual_at_start and self._is_starting(one.line):
                continue
            fields: dict[str, Value] = {"engine": self.engine.server, "what": one.what, "count": one.count}
            if self.engine.kinds[one.signal, one.what] > MAX_EVENTS:
                fields["lines"] = float(self.engine.kinds[one.signal, one.what])
            origin = Origin(self.artifact.name, f"line {one.line}")
            yield Event(one.signal, self.subject, origin, fields, one.time, clean(without_secrets(one.text), 1000))

    def _is_starting(self, line: int) -> bool:
        """Whether a start-up fact follows, and no statistics before it."""
        facts = [at for one in self.samples.values() if one.kind == ValueKind.FACT for at in one.lines if at > line]
        levels = (at for one in self.samples.values() if one.kind == ValueKind.LEVEL for at in one.lines)
        return bool(facts) and not any(line < at < min(facts) for at in levels)

    def _onsets(self) -> Iterator[Event]:
        if not self.timed:
            return
        found: Mapping[str, tuple[LevelChange, _Samples]] = self.changes
        if self.stall:
            found = {**found, _OUTPUT: self.stall}
        for signal, (change, samples) in found.items():
            origin = Origin(self.artifact.name, f"line {samples.lines[change.first]}")
            yield level_event(signal, self.subject, change, samples.axis, origin, samples.axis[change.first])


def _merged(one: _Samples, signal: str) -> _Samples:
    """Samples of the same time, and of the same step if there are too many, as their mean."""
    span = one.axis[-1] - one.axis[0] if len(one.axis) else 0.0
    step = math.ceil(span / MAX_STEPS) if len(one.axis) > MAX_STEPS else 0
    axis: list[float] = []
    values: list[list[float]] = []
    lines: list[int] = []
    for at, value, line in zip(one.axis, one.values, one.lines, strict=True):
        place = at // step * step if step else at
        if axis and axis[-1] == place:
            values[-1].append(value)
        else:
            axis.append(place)
            values.append([value])
            lines.append(line)
    means = [found[0] if len(found) == 1 else math.fsum(found) / len(found) for found in values]
    return _Samples(signal, one.kind, axis, means, lines)


def _rates(one: _Samples) -> _Samples:
    """Growth per second from sample to sample; a smaller count is that of a new process."""
    rates = [
        (after - before if after >= before else after) / (at - earlier)
        for (earlier, before), (at, after) in pairwise(zip(one.axis, one.values, strict=True))
    ]
    return _Samples(one.signal, one.kind, one.axis[1:], rates, one.lines[1:])


def _bin(value: float) -> tuple[float, float]:
    """The bucket of `value`, 4.7 % wide; zero and what is below are exact."""
    if value <= 0 or not math.isfinite(value):
        return (value, value)
    place = math.ceil(math.log10(value) * _BINS_PER_DECADE - 1e-9)
    return (10 ** ((place - 1) / _BINS_PER_DECADE), 10 ** (place / _BINS_PER_DECADE))
