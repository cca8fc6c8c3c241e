"""The lines that inference engines log about themselves, as data: one YAML file a server in `engines/`.

A file lists kinds of lines. A kind has `hints`, texts of which every such line contains one, and regular expressions
for the numbers in it; `{}` stands for a number. Fields that a version of the server leaves out are simply not found.
Every number becomes a signal of the catalogue in the catalogue's unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from msgspec import Struct

from latdoctor.detectors.level_onset import ONSET
from latdoctor.errors import DefinitionError, Problem
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.strict_yaml import StructReader, load
from latdoctor.units import unit

_FOLDER = Path(__file__).parent / "engines"
NUMBER = r"([-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d{1,3})?)"
DURATION = "duration"  # as a unit: the number has its own one, as in 5.6ms
_OF_RATE = {"rate": "count", "throughput": "bytes"}  # what is counted for a rate


class ValueKind(StrEnum):
    """What a number is: the level at that time, a count since the start, a part of a sum, one observation, a fact."""

    LEVEL = "level"
    COUNTER = "counter"
    SUM = "sum"
    EACH = "each"
    FACT = "fact"


class Find(Struct, frozen=True):
    """A compiled expression with one group."""

    pattern: re.Pattern[str]


class ValueRule(Struct, frozen=True):
    """A number of a line. Of several in one line the first counts, with `largest` the largest. `over`: divided by the
    sum of these, which are in `over_unit`.
    """

    find: Find
    unit: str = "count"
    over: tuple[Find, ...] = ()
    over_unit: str = "count"
    kind: ValueKind = ValueKind.LEVEL
    largest: bool = False
    where: str = ""


class LineRule(Struct, frozen=True):
    """One kind of line. `rank` finds the engine's name, `time` a time that the line's prefix lacks, `skip` lines that
    repeat what another process logs. `event`: the line is an event of this signal; `count` finds how many in one;
    `usual_at_start`: it says nothing while the engine starts, before its last start-up fact.
    """

    id: str
    hints: tuple[str, ...]
    rank: Find | None = None
    time: Find | None = None
    skip: Find | None = None
    event: str = ""
    count: Find | None = None
    usual_at_start: bool = False
    values: Mapping[str, ValueRule] = {}
    where: str = ""

    def check(self) -> Iterator[str]:
        if not self.hints:
            yield f"{self.id}: 'hints' must not be empty"
        if not (self.values or self.event):
            yield f"{self.id}: a line needs 'values' or 'event'"
        if self.event and catalogue().get(self.event) is None:
            yield f"{self.id}: unknown signal {self.event!r}"
        for signal, rule in self.values.items():
            yield from _problems(signal, rule)


class EngineFormat(Struct, frozen=True):
    """The lines of one server. `time` finds the time within a line whose prefix is not known, and has no `time`."""

    id: str
    title: str
    lines: tuple[LineRule, ...]
    time: Find | None = None


def factor(rule: ValueRule) -> float:
    """The factor to the base unit; 1 where the number has its own unit."""
    return 1.0 if rule.unit == DURATION else unit(rule.unit).factor


def _problems(signal: str, rule: ValueRule) -> Iterator[str]:
    known = catalogue().get(signal)
    if known is None:
        yield f"unknown signal {signal!r}"
        return
    if (known.kind == SignalKind.DISTRIBUTION) != (rule.kind == ValueKind.EACH):
        yield f"{signal} is of kind {known.kind}, which {rule.kind} does not give"
    try:
        dimension = "time" if rule.unit == DURATION else unit(rule.unit).dimension
        unit(rule.over_unit)
    except ValueError as error:
        yield f"{signal}: {error}"
        return
    counted = rule.kind in (ValueKind.COUNTER, ValueKind.SUM)
    expected = _OF_RATE.get(known.dimension, known.dimension) if counted else known.dimension
    if dimension != expected:
        yield f"{signal}: {rule.unit} is a {dimension}, a {expected} is needed"


def _find(text: str) -> Find:
    found = re.compile(text.replace("{}", NUMBER))
    if found.groups != 1:
        raise ValueError(f"{text!r} must have one group or {{}}")
    return Find(found)


def read_formats(folder: Path) -> tuple[EngineFormat, ...]:
    """The formats in `folder`. Raises DefinitionError with all problems of all files."""
    problems: list[Problem] = []
    reader = StructReader(problems)
    reader.nodes[Find] = lambda node, label: _converted(node.text, node.where, problems)
    found = []
    for path in sorted(folder.glob("*.yaml")):
        form = reader.read(load(path), EngineFormat, path.stem)
        if form is not None and form.id != path.stem:
            problems.append(Problem(str(path), f"the id {form.id!r} differs from the file's name"))
        if form is not None:
            found.append(form)
    if problems:
        raise DefinitionError(problems)
    return tuple(found)


def _converted(text: str | None, where: str, problems: list[Problem]) -> Find | None:
    try:
        return _find(text or "")
    except (ValueError, re.error) as error:
        problems.append(Problem(where, str(error)))
        return None


@cache
def formats() -> tuple[EngineFormat, ...]:
    """The shipped formats. Raises DefinitionError."""
    return read_formats(_FOLDER)


@cache
def rules() -> tuple[tuple[EngineFormat, LineRule], ...]:
    """Every kind of line with its format."""
    return tuple((form, rule) for form in formats() for rule in form.lines)


@cache
def rules_by_hint() -> tuple[tuple[str, int], ...]:
    """Each hint with the index of its rule in `rules`."""
    return tuple((hint, index) for index, (_, rule) in enumerate(rules()) for hint in rule.hints)


@cache
def _hints() -> tuple[str, ...]:
    return tuple(sorted({hint for _, rule in rules() for hint in rule.hints}))


@cache
def needles() -> tuple[bytes, ...]:
    """The hints of all formats as regular expressions on bytes."""
    return tuple(_needle(hint) for hint in _hints())


def level_needles() -> tuple[bytes, ...]:
    """Those of lines that state nothing but levels at that time."""
    levels = (rule for _, rule in rules() if not rule.event and _states_levels(rule))
    other = {hint for _, rule in rules() if rule.event or not _states_levels(rule) for hint in rule.hints}
    return tuple(
        _needle(hint) for hint in dict.fromkeys(hint for rule in levels for hint in rule.hints if hint not in other)
    )


def _states_levels(rule: LineRule) -> bool:
    return all(one.kind == ValueKind.LEVEL for one in rule.values.values())


def _needle(hint: str) -> bytes:
    return re.escape(hint.encode()).replace(b"\\ ", b" ")


def has_hint(text: str) -> bool:
    """Whether one of the shipped formats may read a line with this text."""
    return any(hint in text for hint in _hints())


@cache
def given_signals() -> frozenset[str]:
    """The signals that the shipped formats may give."""
    every = [rule for _, rule in rules()]
    values = {name for rule in every for name in rule.values}
    means = {f"{name}.mean" for name in values} & catalogue().keys()
    return frozenset((*values, *means, *(rule.event for rule in every if rule.event), ONSET))
