"""One playbook from its file, which is strict YAML: all that is wrong in it, each with file:line.

What only other files can tell is asked elsewhere: its stages by `playbook_files.py`, its actions, causes and findings
by `lint.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from latdoctor.errors import Problem
from latdoctor.evidence.condition_text import parse_condition
from latdoctor.evidence.conditions import Condition
from latdoctor.evidence.signals import catalogue
from latdoctor.remedy import parameters as values
from latdoctor.remedy.playbook import BEFORE, DISRUPTIONS, RISKS, Guards, Playbook, Settle, StageOf, Verify
from latdoctor.remedy.playbook_steps import check_names, identifier, parameters_of, steps_of
from latdoctor.remedy.target import KINDS
from latdoctor.units import parse_duration
from latdoctor.yamlfile import Fields, definition, one_of

LONGEST_WAIT = 3600.0  # seconds: nobody holds a service's lock for longer

_CLEARED = re.compile(r"(\S+) clear")
_FIGURES = re.compile(r"[0-9.]+\.\.[0-9.]+ x before")


def read(path: Path, problems: list[Problem]) -> Playbook | None:
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
        told = _CLEARED.fullmatch(text)
        if told:
            yield told[1]
        else:
            fields.problem(node.where if node else fields.where, f"mechanism: {text!r} does not read `FINDING clear`")


def _effect(fields: Fields) -> tuple[str, str]:
    """What is expected, and by what it was measured."""
    inner = _inner(fields, "effect", required=True)
    if inner is None:
        return "", ""
    told = [inner.text("says")]
    for signal, node in fields.items("effect"):
        if signal in catalogue():
            inner.node(signal)  # taken
            if not _FIGURES.fullmatch(node.text or ""):
                fields.problem(node.where, f"effect: {signal} reads LOW..HIGH x before")
            told.append(f"{signal} {node.text}")
    measured_by = inner.text("measured_by", required=True)
    inner.finish()
    effect = ", ".join(part for part in told if part)
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
