"""One playbook from its file, which is strict YAML: all that is wrong in it, each with file:line.

What only other files can tell is asked elsewhere: its stages by `playbook_files.py`, its actions, causes and findings
by `lint.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from latdoctor.conditions.ast import Condition
from latdoctor.conditions.parser import parse_condition
from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.evidence.catalogue import catalogue
from latdoctor.remediation import parameters
from latdoctor.remediation import parameters as values
from latdoctor.remediation.playbook import (
    BEFORE,
    DISRUPTIONS,
    RISKS,
    Guards,
    Playbook,
    Settle,
    StageOf,
    Verify,
)
from latdoctor.remediation.playbook_steps import check_names, identifier, parameters_of, steps_of
from latdoctor.remediation.target import KINDS
from latdoctor.resources import folder
from latdoctor.sanitize import clean
from latdoctor.strict_yaml import Fields, add, defined, definition, one_of
from latdoctor.units import parse_duration

LONGEST_WAIT = 3600.0  # seconds: nobody holds a service's lock for longer

_CLEARED = re.compile(r"(\S+) clear")
_FIGURES = re.compile(r"[0-9.]+\.\.[0-9.]+ x before")


def read_playbook(path: Path, problems: list[Problem]) -> Playbook | None:
    """The playbook in `path`; what is wrong is added to `problems`. None where not even an id could be read."""
    read_in = definition(path, "a playbook", problems)
    if read_in is None:
        return None
    fields, raw = read_in
    found = _playbook(fields, hashlib.sha256(raw).hexdigest())
    fields.finish()
    fields.must_be_named(found.id, path)
    return found if found.id else None


def _playbook(fields: Fields, digest: str) -> Playbook:
    parameters = tuple(parameters_of(fields))
    steps, stages = steps_of(fields)
    effect, measured_by = _effect(fields)
    risk = fields.choice("risk", RISKS, RISKS[0], required=True)
    for step in steps:
        if step.undo == "irreversible" and risk != "high":
            fields.problem(step.where, f"the step {step.id} is irreversible, and the risk is {risk}: it is high then")
    check_names(fields, parameters, [*steps, *stages])
    return Playbook(
        id=fields.scalar("id", identifier, "", required=True),
        title=fields.text("title", required=True),
        addresses=_list(fields, "addresses", identifier),
        targets=_list(fields, "targets", lambda text: one_of(text, KINDS)),
        risk=risk,
        disruption=fields.choice("disruption", DISRUPTIONS, DISRUPTIONS[0], required=True),
        preconditions=_conditions(fields, "preconditions"),
        guards=_guards(fields),
        verify=_verify(fields),
        where=fields.where,
        digest=digest,
        parameters=parameters,
        effect=effect,
        measured_by=measured_by,
        steps=steps,
        stages=stages,
        before=_before(fields),
        settle=_settle(fields),
        on_failure=_on_failure(fields, stages),
        explanation=fields.text("explanation", required=True),
        treats="symptom" if fields.choice("treats", ("cause", "symptom"), "cause") == "symptom" else "cause",
        references=fields.texts("references"),
    )


def _inner(fields: Fields, key: str, *, required: bool = False) -> Fields | None:
    """The mapping `key`; its problems are those of `fields`."""
    node = fields.node(key, required=required)
    return Fields(node, fields.problems, key) if node else None


def _list(fields: Fields, key: str, convert: Callable[[str], str]) -> tuple[str, ...]:
    """A list of at least one, each once."""
    node, found = fields.node(key, required=True), fields.texts(key)
    if node is not None and node.value == ():
        fields.problem(node.where, f"{key!r} is empty")
    for text in found:
        try:
            convert(text)
        except ValueError as error:
            fields.problem(node.where if node else fields.where, f"{key}: {error}")
    for text in dict.fromkeys(text for text in found if found.count(text) > 1):
        fields.problem(node.where if node else fields.where, f"{key}: {text} stands twice")
    return found


def _conditions(fields: Fields, key: str, *, required: bool = True) -> tuple[Condition, ...]:
    """A list of conditions, of at least one where it is required."""
    node = fields.node(key, required=required)
    if node is None:
        return ()
    if not isinstance(node.value, tuple) or not node.value:
        fields.problem(node.where, f"{key!r} is a list of conditions")
        return ()
    parsed = [parse_condition(item, fields.problems) for item in node.value]
    return tuple(condition for condition in parsed if condition is not None)


def _condition(fields: Fields, key: str, *, required: bool = False) -> Condition | None:
    node = fields.node(key, required=required)
    return parse_condition(node, fields.problems) if node else None


def _guards(fields: Fields) -> Guards:
    inner = _inner(fields, "guards")
    if inner is None:
        return Guards()
    usual = Guards()
    attempts = _inner(inner, "attempts")
    made = Guards(
        max_targets=inner.scalar("max_targets", _counted, usual.max_targets),
        cooldown=inner.scalar("cooldown", parse_duration, usual.cooldown),
        attempts=attempts.scalar("count", _counted, usual.attempts, required=True) if attempts else usual.attempts,
        per=attempts.scalar("per", parse_duration, usual.per, required=True) if attempts else usual.per,
    )
    for part in (inner, attempts):
        if part is not None:
            part.finish()
    return made


def _before(fields: Fields) -> float:
    inner = _inner(fields, "before")
    if inner is None:
        return BEFORE
    window = inner.scalar("window", _wait, BEFORE, required=True)
    inner.finish()
    return window


def _settle(fields: Fields) -> Settle:
    inner = _inner(fields, "settle")
    if inner is None:
        return Settle()
    made = Settle(_condition(inner, "until"), inner.scalar("at_most", _wait, 0.0, required=True))
    inner.finish()
    return made


def _verify(fields: Fields) -> Verify:
    inner = _inner(fields, "verify", required=True)
    if inner is None:
        return Verify(())
    made = Verify(
        succeed=_conditions(inner, "succeed"),
        # Without it a change that does nothing would verify whenever the load happens to fall.
        load=_condition(inner, "load", required=True),
        mechanism=tuple(_cleared(inner)),
        abort=_conditions(inner, "abort", required=False),
        hold=inner.scalar("hold", _wait, 10.0),
        within=inner.scalar("within", _wait, 60.0),
    )
    inner.choice("otherwise", ("rollback",), "rollback")
    inner.finish()
    if made.hold > made.within:
        inner.problem(inner.where, f"verify: {made.hold:g} s cannot hold within {made.within:g} s")
    return made


def _cleared(fields: Fields) -> Iterator[str]:
    """The findings of `mechanism`, each written as `finding clear`."""
    node = fields.node("mechanism")
    for text in fields.texts("mechanism"):
        known = _CLEARED.fullmatch(text)
        if known:
            yield known[1]
        else:
            fields.problem(node.where if node else fields.where, f"mechanism: {text!r} does not read `FINDING clear`")


def _effect(fields: Fields) -> tuple[str, str]:
    """What is expected, and by what it was measured."""
    inner = _inner(fields, "effect", required=True)
    if inner is None:
        return "", ""
    known = [inner.text("description")]
    for signal, node in fields.items("effect"):
        if signal in catalogue():
            inner.node(signal)  # taken
            if not _FIGURES.fullmatch(node.text or ""):
                fields.problem(node.where, f"effect: {signal} reads LOW..HIGH x before")
            known.append(f"{signal} {node.text}")
    measured_by = inner.text("measured_by", required=True)
    inner.finish()
    effect = ", ".join(part for part in known if part)
    if not effect:
        inner.problem(inner.where, "effect: it says nothing")
    return effect, measured_by


def _on_failure(fields: Fields, stages: Sequence[StageOf]) -> Literal["undo-stage", "undo-all"]:
    node = fields.node("on_failure")
    if node is not None and not stages:
        fields.problem(node.where, "on_failure is of playbooks with stages; steps are always undone together")
    chosen = fields.choice("on_failure", ("undo-stage", "undo-all"), "undo-stage")
    return "undo-all" if chosen == "undo-all" else "undo-stage"


def _counted(text: str) -> int:
    value = values.of_type("integer", text)
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{text!r} is not a count of 1 or more")
    return value


def _wait(text: str) -> float:
    seconds = parse_duration(text)
    if not 0 < seconds <= LONGEST_WAIT:
        raise ValueError(f"{text!r}: a wait is above 0 s and at most {LONGEST_WAIT / 60:g} min")
    return seconds


@dataclass(frozen=True)
class Library:
    """Every playbook there is, in the order of their ids. The stages that one names are in it."""

    playbooks: tuple[Playbook, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Playbook]:
        return {playbook.id: playbook for playbook in self.playbooks}

    def find(self, name: str) -> Playbook:
        """The playbook called `name`. Raises UsageError with near names."""
        if name not in self.by_id:
            near = get_close_matches(name, self.by_id, n=3, cutoff=0.4)
            hint = f"did you mean {', '.join(near)}?" if near else "latdoctor playbooks list shows all of them"
            raise UsageError(f"there is no playbook {clean(name, 80)!r}", next_step=hint)
        return self.by_id[name]

    def stages(self, playbook: Playbook) -> tuple[tuple[StageOf, Playbook], ...]:
        """The stages of `playbook`, each with the playbook that it is; none where it has steps of its own."""
        return tuple((stage, self.by_id[stage.playbook]) for stage in playbook.stages)

    def addressing(self, cause: str) -> tuple[Playbook, ...]:
        """The playbooks that mend `cause`: the ones of least risk first."""
        found = [playbook for playbook in self.playbooks if cause in playbook.addresses]
        return tuple(sorted(found, key=lambda one: (RISKS.index(one.risk), DISRUPTIONS.index(one.disruption), one.id)))


@cache
def shipped() -> Library:
    """The playbooks that come with latdoctor."""
    return read_library([folder("playbooks")])


@cache
def shipped_playbook(name: str) -> Playbook | None:
    """The shipped playbook `name`, as in `shipped()`, from its file and those of its stages; None if there is none.

    Raises DefinitionError.
    """
    paths = {path.stem: path for path in folder("playbooks").glob("*.yaml")}
    problems: list[Problem] = []
    found: dict[str, Playbook] = {}
    wanted = [name]
    for one in wanted:
        playbook = read_playbook(paths[one], problems) if one in paths and one not in found else None
        if playbook is not None:
            found[playbook.id] = playbook
            wanted.extend(stage.playbook for stage in playbook.stages)
    if name in found:
        _check_stages(found[name], found, problems)
    if problems:
        raise DefinitionError(problems)
    return _with_stages(found[name], found) if name in found else None


def read_library(folders: Iterable[Path]) -> Library:
    """The playbooks of all `folders` together. Raises DefinitionError with every problem of every file."""
    problems: list[Problem] = []
    found: dict[str, Playbook] = {}
    for path in defined(folders, "playbooks", problems):
        playbook = read_playbook(path, problems)
        if playbook is not None:
            add(found, playbook.id, playbook, playbook.where, problems)
    for playbook in found.values():
        _check_stages(playbook, found, problems)
    if problems:
        raise DefinitionError(problems, next_step="see docs/contributing.md for the format of playbooks")
    return Library(tuple(_with_stages(found[name], found) for name in sorted(found)))


def _with_stages(playbook: Playbook, found: Mapping[str, Playbook]) -> Playbook:
    """With a digest that changes when one of its stages does."""
    if not playbook.stages:
        return playbook
    digests = [playbook.digest, *(found[stage.playbook].digest for stage in playbook.stages)]
    return replace(playbook, digest=hashlib.sha256("\n".join(digests).encode()).hexdigest())


def _check_stages(playbook: Playbook, found: Mapping[str, Playbook], problems: list[Problem]) -> None:
    for stage in playbook.stages:
        other = found.get(stage.playbook)
        if other is None:
            near = get_close_matches(stage.playbook, found, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            problems.append(Problem(stage.where, f"there is no playbook {stage.playbook!r}{hint}"))
        elif other.stages:
            problems.append(Problem(stage.where, f"{other.id} has stages itself: there is one level of them"))
        else:
            problems.extend(Problem(stage.where, what) for what in _misfits(playbook, stage, other))


def _misfits(playbook: Playbook, stage: StageOf, other: Playbook) -> Iterable[str]:
    """What does not go together of a playbook and one of its stages."""
    lacking = sorted(set(playbook.targets) - set(other.targets))
    if lacking:
        yield f"{other.id} is not for {', '.join(lacking)}"
    for what, order in (("risk", RISKS), ("disruption", DISRUPTIONS)):
        mine, theirs = getattr(playbook, what), getattr(other, what)
        if order.index(theirs) > order.index(mine):
            yield f"{other.id} has the {what} {theirs}, and the whole only {mine}"
    known = {parameter.name: parameter for parameter in other.parameters}
    mine_by_name = {parameter.name: parameter for parameter in playbook.parameters}
    for name, text in stage.given.items():
        own = mine_by_name.get(parameters.named(text) or "")
        if name not in known:
            yield f"{other.id} has no parameter {name!r}"
        elif own is not None:
            wider = (own.type, own.choices) != (known[name].type, known[name].choices)
            wider = wider or (own.minimum, own.maximum) != (known[name].minimum, known[name].maximum)
            if wider:
                yield f"{own.name} is {parameters.allowed(own)}, {name} of {other.id} {parameters.allowed(known[name])}"
        elif parameters.named(text) is None:
            try:
                parameters.value_of(known[name], text)
            except ValueError as error:
                yield f"{other.id}: {name}: {error}"
