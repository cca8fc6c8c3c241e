"""Reads one playbook from its YAML file and reports all problems of the file, each with file:line.

References to other files are checked elsewhere: stages, actions, causes and findings in `playbook_library.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from latdoctor.conditions.ast import Condition
from latdoctor.conditions.parser import parse_condition
from latdoctor.errors import DefinitionError, Problem
from latdoctor.evidence.catalogue import catalogue
from latdoctor.remediation.change import Undo
from latdoctor.remediation.parameters import parse_as, parse_value, referenced_parameter
from latdoctor.remediation.playbook import (
    Argument,
    ClearedFinding,
    Effect,
    Identifier,
    Parameter,
    ParameterType,
    Playbook,
    Risk,
    Seconds,
    Stage,
    Step,
    Trigger,
    Wait,
)
from latdoctor.remediation.target import KINDS, TargetKind
from latdoctor.strict_yaml import Node, StructReader, contents, one_of, parse
from latdoctor.units import parse_duration

MAX_WAIT = 3600.0  # seconds

_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CLEARED = re.compile(r"(\S+) clear")
_FIGURES = re.compile(r"[0-9.]+\.\.[0-9.]+ x before")
_RENAMED_KEYS = {"says": "description"}  # keys of version 0.1.0


def read_playbook(path: Path, problems: list[Problem]) -> Playbook | None:
    """Read the playbook in `path` and add its problems to `problems`. None if a required part is missing or wrong."""
    try:
        raw = contents(path)
        root = parse(raw, str(path))
    except DefinitionError as error:
        problems.extend(error.problems)
        return None
    playbook = _PlaybookReader(problems).read(root, Playbook, "playbook")
    if playbook is None:
        return None
    problems.extend(_check(playbook))
    verify = root.value["verify"] if isinstance(root.value, dict) else root
    if playbook.trigger is Trigger.INCIDENT:
        if not playbook.addresses:
            problems.append(Problem(playbook.where, "playbook lacks 'addresses'"))
        if isinstance(verify.value, dict) and "load" not in verify.value:  # else less load would verify any change
            problems.append(Problem(verify.where, "verify lacks 'load'"))
    elif playbook.stages:
        problems.append(Problem(playbook.where, f"only steps have the trigger {playbook.trigger}, not stages"))
    if playbook.steps and isinstance(verify.value, dict) and "mechanism" not in verify.value:
        problems.append(Problem(verify.where, "verify lacks 'mechanism'"))
    if playbook.on_failure and not playbook.stages and isinstance(root.value, dict):
        where = root.value["on_failure"].where
        problems.append(Problem(where, "on_failure is only valid with stages; steps are always undone together"))
    if playbook.id != path.stem:
        problems.append(Problem(playbook.where, f"the id {playbook.id!r} differs from the file's name"))
    return replace(playbook, digest=hashlib.sha256(raw).hexdigest())


def _check(playbook: Playbook) -> Iterator[Problem]:
    """The problems of parts that refer to each other."""
    first = playbook.parts[0].where if playbook.parts else playbook.where
    if playbook.steps and playbook.stages:
        yield Problem(first, "a playbook has either steps or stages, not both")
    for label, names in (
        ("step", [step.id for step in playbook.steps]),
        ("stage", [stage.playbook for stage in playbook.stages]),
    ):
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield Problem(first, f"the {label} {name} is listed twice")
    for step in playbook.steps:
        if step.undo is Undo.IRREVERSIBLE and playbook.risk is not Risk.HIGH:
            yield Problem(step.where, f"the step {step.id} is irreversible, so the risk must be high")
    known = {parameter.name for parameter in playbook.parameters}
    used: set[str | None] = set()
    for part in playbook.parts:
        names_used = [referenced_parameter(text) for text in part.arguments.values()]
        used.update(names_used)
        for unknown in (name for name in names_used if name is not None and name not in known):
            yield Problem(part.where, f"${unknown} is not a parameter of this playbook")
    for parameter in playbook.parameters:
        if parameter.name not in used:
            yield Problem(playbook.where, f"the parameter {parameter.name} is not used")


class _ParameterTexts(Struct, frozen=True):
    """A parameter as written: its range and default have the type that `type` names."""

    type: ParameterType
    default: str | None = None
    minimum: str | None = None
    maximum: str | None = None
    choices: tuple[str, ...] = ()
    description: str = ""


class _PlaybookReader(StructReader):
    """Adds the types of a playbook to those of StructReader."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems, renamed_keys=_RENAMED_KEYS)
        self.scalars.update(
            {
                Identifier: identifier,
                Seconds: parse_duration,
                Wait: _parse_wait,
                Argument: _parse_argument,
                TargetKind: lambda text: TargetKind(one_of(text, KINDS)),
            }
        )
        self.nodes.update(
            {
                Condition: lambda node, _: parse_condition(node, self.problems),
                Step | Stage: self._part,
                ClearedFinding | Condition: self._mechanism,
                tuple[Parameter, ...]: self._parameters,
                Effect: self._effect,
            }
        )

    def _part(self, node: Node, _: str) -> Step | Stage | None:
        if isinstance(node.value, dict) and "playbook" in node.value:
            return self.read(node, Stage, "stage")
        return self.read(node, Step, "step")

    def _mechanism(self, node: Node, _: str) -> ClearedFinding | Condition | None:
        """`FINDING clear`, else a condition: no comparison consists of a name and that word."""
        if cleared := _CLEARED.fullmatch(node.text or ""):
            return ClearedFinding(cleared[1])
        problems: list[Problem] = []
        condition = parse_condition(node, problems)
        for problem in problems:
            self.add(problem.where, f"mechanism: neither `FINDING clear` nor a condition: {problem.what}")
        return condition

    def _parameters(self, node: Node, label: str) -> tuple[Parameter, ...]:
        return tuple(self._parameter(name, child) for name, child in self.entries(node, label))

    def _parameter(self, name: str, node: Node) -> Parameter:
        """A parameter with a problem is returned as a text, so that references to it are valid."""
        if not _NAME.fullmatch(name):
            self.add(node.where, f"the parameter {name!r} must consist of lower-case letters, digits and _")
        texts = self.read(node, _ParameterTexts, f"parameter {name}")
        if texts is None:
            return Parameter(name, ParameterType.TEXT)
        parameter = Parameter(
            name=name,
            type=texts.type,
            minimum=self._limit(node, "minimum", texts),
            maximum=self._limit(node, "maximum", texts),
            choices=texts.choices,
            description=texts.description,
        )
        for problem in parameter.check():
            self.add(node.where, problem)
        if texts.default is None:
            return parameter
        try:
            return replace(parameter, default=parse_value(parameter, texts.default))
        except ValueError as error:
            self.add(node.where, f"default: {error}")
            return parameter

    def _limit(self, node: Node, key: str, texts: _ParameterTexts) -> float | None:
        text: str | None = getattr(texts, key)
        if text is None:
            return None
        if texts.type in (ParameterType.TEXT, ParameterType.FLAG):
            self.add(node.where, f"{key}: a {texts.type} has none")
            return None
        try:
            return float(parse_as(texts.type, text))
        except ValueError as error:
            self.add(node.where, f"{key}: {error}")
            return None

    def _effect(self, node: Node, label: str) -> Effect | None:
        """Signals are keys beside those of Effect."""
        figures: dict[str, str] = {}
        others: dict[str, Node] = {}
        for key, child in self.entries(node, label):
            if key in catalogue():
                figures[key] = child.text or ""
                if not _FIGURES.fullmatch(figures[key]):
                    self.add(child.where, f"effect: {key} must be written LOW..HIGH x before")
            else:
                others[key] = child
        effect = self.read_struct(Node(others, node.file, node.line), Effect, label)
        if effect is None:
            return None
        effect = replace(effect, figures=figures)
        if not str(effect):
            self.add(node.where, "effect needs a description or the figures of a signal")
        return effect


def identifier(text: str) -> str:
    """`text` if it is a valid id. Raises ValueError."""
    if not _ID.fullmatch(text):
        raise ValueError(f"{text!r} is not an id (lower-case words joined by - or .)")
    return text


def _parse_wait(text: str) -> float:
    seconds = parse_duration(text)
    if not 0 < seconds <= MAX_WAIT:
        raise ValueError(f"{text!r} must be greater than 0 s and at most {MAX_WAIT / 60:g} min")
    return seconds


def _parse_argument(text: str) -> str:
    referenced_parameter(text)
    return text
