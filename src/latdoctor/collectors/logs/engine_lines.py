"""Reads the lines that inference engines log about themselves (`engines/*.yaml`) and gathers their numbers.

The engine that a line names is a replica of the server, `replica/Engine-003@FILE`; a log that names none, or only its
first, is about `server/FILE`. A line has the time of its prefix, else one within it. If most lines of an engine have
none, their order stands for it.

What such a line does not say rules nothing out: no event signal is ever reported as searched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from latdoctor.collectors.access_log.entry import parse_duration, parse_timestamp
from latdoctor.collectors.logs import engine_formats, line_prefix
from latdoctor.collectors.logs.engine_evidence import EngineSamples, LoggedEvent, engine_evidence
from latdoctor.collectors.logs.engine_formats import (
    DURATION,
    EngineFormat,
    Find,
    LineRule,
    ValueRule,
    factor,
)
from latdoctor.collectors.logs.line_kind import LineKind, LineLocation
from latdoctor.collectors.time_range import TimeRange
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.sanitize import clean
from latdoctor.units import unit

MAX_LINE = 64 << 10  # bytes; what follows in a longer line is not read
MAX_ENGINES = 256
# kubectl logs --prefix, docker compose and stern name the pod or the container before each line. What has neither
# brackets nor a bar is a pod's name only with the ending that a controller gives it.
_CARRIER = re.compile(
    r"\[pod/([\w.-]{1,253})/[\w.-]{1,253}\] |([\w.-]{1,80}) {1,30}\| "
    r"|([a-z0-9][a-z0-9.-]{1,240}-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|\d{1,3})) [a-z0-9][a-z0-9-]{0,62} (?=\S)"
)
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
# A line of source code, as grep prints it: what a program may say, not what it said.
_SOURCE = re.compile(
    r"%[sdr](?=[\s\"',.:)]|$)|\bf\"|\braise \w+\(|^\s*(?:class|def|import|from) \w|\{\w[\w.]{0,60}(?:![rs])?\}[\"']"
)
_US_DATE = re.compile(r"(\d\d)-(\d\d)-(\d{4}) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)")


@dataclass(slots=True)
class _Line:
    """A line: its number from 1, the text as it stands and its time, if any. Mutable: a time within it is noted."""

    number: int
    text: str
    time: float | None
    events: set[str] = field(default_factory=set)  # signals of the events that it was taken for


@dataclass(slots=True)
class EngineReader:
    """Reads the engine lines of one log. Mutable; made anew for each log."""

    artifact: Artifact
    requested: TimeRange | None = None
    engines: dict[tuple[str, str, str], EngineSamples] = field(default_factory=dict)

    def take(self, at: LineLocation) -> None:
        """Process a line that contains one of the hints."""
        text = _text(at)
        if '\\"' in text:  # a record within the message of another one
            text = text.replace('\\"', '"')
        if at.line.writer == line_prefix.BARE and _SOURCE.search(text):
            return
        line = _Line(at.number, text, at.line.time)
        rules = dict.fromkeys(index for hint, index in engine_formats.rules_by_hint() if hint in text)
        for index in sorted(rules):
            form, rule = engine_formats.rules()[index]
            self._line(form, rule, line)

    def evidence(self, *, complete: bool) -> Evidence:
        """What the lines show; nothing depends on whether the log is complete, because nothing is ruled out."""
        return engine_evidence(tuple(self.engines.values()), self.artifact, self.requested)

    def _line(self, form: EngineFormat, rule: LineRule, line: _Line) -> None:
        if rule.skip is not None and rule.skip.pattern.search(line.text):
            return
        time = rule.time or form.time
        if line.time is None and time is not None:
            line.time = _time_within(time, line.text, self.artifact.written_by)
        values = {signal: found for signal, one in rule.values.items() if (found := _value(one, line.text)) is not None}
        if not (values or rule.event):
            return
        engine = self._engine(form.title, rule.rank, line.text)
        if engine is None:
            return
        for signal, found in values.items():
            engine.add(signal, rule.values[signal].kind, found, line.time, line.number)
        if rule.event and rule.event not in line.events:  # two servers may word it alike
            line.events.add(rule.event)
            count = _number(rule.count, line.text) if rule.count else None
            event = LoggedEvent(
                rule.event, rule.id, count or 1.0, line.time, line.number, line.text, rule.usual_at_start
            )
            engine.add_event(event)

    def _engine(self, server: str, rank: Find | None, text: str) -> EngineSamples | None:
        found = rank.pattern.search(text) if rank else None
        name = clean(found[1], 60).replace(" ", "-").replace("/", "-") if found else ""
        name = f"rank-{name}" if name.isdigit() else name
        carrier = _CARRIER.match(text)
        pod = clean(carrier[1] or carrier[2] or carrier[3], 80) if carrier else ""
        key = (server, pod, name)
        if key not in self.engines:
            if len(self.engines) >= MAX_ENGINES:
                return None
            self.engines[key] = EngineSamples(server, name, pod)
        return self.engines[key]


def _text(at: LineLocation) -> str:
    """The line without colours; of a JSON record its message, or all of it if the numbers are in other fields."""
    record = at.raw.lstrip().startswith(b"{")
    if not at.raw or (record and engine_formats.has_hint(at.text)):
        return at.text
    return _COLOUR.sub(b"", at.raw[:MAX_LINE]).decode("utf-8", "replace").rstrip("\r\n")


def _time_within(find: Find, text: str, taken_at: float) -> float | None:
    found = find.pattern.search(text)
    if found is None:
        return None
    moment = _US_DATE.sub(r"\3-\1-\2 \4", found[1].strip())
    stamp = parse_timestamp(moment)
    return stamp.time if stamp else line_prefix.parse(f"{moment} x", taken_at).time


def _value(rule: ValueRule, text: str) -> float | None:
    if rule.unit == DURATION:
        found = rule.find.pattern.search(text)
        duration = parse_duration(found[1]) if found else None
        return duration.seconds if duration else None
    value = _number(rule.find, text, largest=rule.largest)
    if value is None:
        return None
    if rule.over:
        parts = [_number(one, text) for one in rule.over]
        whole = sum(one for one in parts if one is not None)
        whole *= unit(rule.over_unit).factor
        return value / whole * factor(rule) if None not in parts and whole > 0 else None
    return value * factor(rule)


def _number(find: Find, text: str, *, largest: bool = False) -> float | None:
    found = [float(number.replace(",", "")) for number in find.pattern.findall(text)[: 64 if largest else 1]]
    return max(found) if found else None


KIND = LineKind("engines", engine_formats.needles(), EngineReader, EngineReader, levels=engine_formats.level_needles())
