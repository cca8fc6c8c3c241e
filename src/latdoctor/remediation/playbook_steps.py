"""The parts of a playbook file that refer to each other: its parameters, and the steps that use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from latdoctor.remediation import parameters as values
from latdoctor.remediation.playbook import (
    PARAMETER_TYPES,
    UNDOS,
    Parameter,
    Scalar,
    StageOf,
    Step,
)
from latdoctor.strict_yaml import Fields

_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")


_NAME = re.compile(r"[a-z][a-z0-9_]*")


def parameters_of(fields: Fields) -> Iterator[Parameter]:
    """The entries of `parameters`."""
    for name, node in fields.items("parameters"):
        if not _NAME.fullmatch(name):
            fields.problem(node.where, f"the parameter {name!r} is not a name (lower-case letters, digits, _)")
        inner = Fields(node, fields.problems, f"parameter {name}")
        yield _parameter(name, inner)
        inner.finish()


def _parameter(name: str, fields: Fields) -> Parameter:
    kind = fields.choice("type", PARAMETER_TYPES, "text", required=True)
    made = Parameter(
        name=name,
        type=kind,
        minimum=_end(fields, "minimum", kind),
        maximum=_end(fields, "maximum", kind),
        choices=fields.texts("choices"),
        description=fields.text("description", required=True),
    )
    if kind in ("integer", "number", "duration") and (made.minimum is None or made.maximum is None):
        fields.problem(fields.where, f"parameter {name}: a range has two ends, minimum and maximum")
    elif made.minimum is not None and made.maximum is not None and made.minimum > made.maximum:
        fields.problem(fields.where, f"parameter {name}: the minimum is above the maximum")
    if made.choices and kind != "text":
        fields.problem(fields.where, f"parameter {name}: a {kind} has no choices")
    default: Scalar | None = fields.scalar("default", partial(values.value_of, made), None)
    return replace(made, default=default)


def _end(fields: Fields, key: str, kind: str) -> float | None:
    """One end of a range, in the unit of the values. None where it is not given."""

    def converted(text: str) -> float | None:
        value = values.of_type(kind, text) if kind not in ("text", "flag") else text
        if isinstance(value, str):
            raise ValueError(f"a {kind} has none")
        return value

    return fields.scalar(key, converted, None)


def steps_of(fields: Fields) -> tuple[tuple[Step, ...], tuple[StageOf, ...]]:
    """Its steps, or the other playbooks that are its stages."""
    node = fields.node("steps", required=True)
    items = node.value if node and isinstance(node.value, tuple) else ()
    if node and not items:
        fields.problem(node.where, "'steps' is a list of steps")
    steps: list[Step] = []
    stages: list[StageOf] = []
    for item in items:
        if isinstance(item.value, dict) and "playbook" in item.value:
            stages.append(_stage(Fields(item, fields.problems, "stage")))
        else:
            steps.append(_step(Fields(item, fields.problems, "step")))
    if steps and stages:
        fields.problem(node.where if node else fields.where, "a playbook has steps of its own or stages, never both")
    for what, names in (("step", [step.id for step in steps]), ("stage", [stage.playbook for stage in stages])):
        for name in dict.fromkeys(name for name in names if name and names.count(name) > 1):
            fields.problem(node.where if node else fields.where, f"the {what} {name} stands twice")
    return tuple(steps), tuple(stages)


def _step(fields: Fields) -> Step:
    made = Step(
        id=fields.scalar("id", identifier, "", required=True),
        action=fields.scalar("action", identifier, "", required=True),
        given=_given(fields),
        undo=fields.choice("undo", UNDOS, UNDOS[0], required=True),
        where=fields.where,
    )
    fields.finish()
    return made


def _stage(fields: Fields) -> StageOf:
    made = StageOf(fields.scalar("playbook", identifier, "", required=True), _given(fields), fields.where)
    fields.finish()
    return made


def _given(fields: Fields) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, node in fields.items("with"):
        if node.text is None:
            fields.problem(node.where, f"with: {name!r} must be a single value")
            continue
        try:
            values.named(node.text)
        except ValueError as error:
            fields.problem(node.where, f"with {name}: {error}")
            continue
        found[name] = node.text
    return found


def check_names(fields: Fields, parameters: Sequence[Parameter], parts: Sequence[Step | StageOf]) -> None:
    """Every `$name` is a parameter, and every parameter is used."""
    known = {parameter.name for parameter in parameters}
    used: set[str] = set()
    for part in parts:
        for text in part.given.values():
            name = values.named(text)
            if name is not None and name not in known:
                fields.problem(part.where, f"${name} is not a parameter of this playbook")
            used.add(name or "")
    for parameter in parameters:
        if parameter.name not in used:
            fields.problem(fields.where, f"the parameter {parameter.name} is used nowhere")


def identifier(text: str) -> str:
    """`text` if it may be an id. Raises ValueError."""
    if not _ID.fullmatch(text):
        raise ValueError(f"{text!r} is not an id (lower-case words joined by - or .)")
    return text
