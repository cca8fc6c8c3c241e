"""The values of a playbook's parameters: given as text, typed, kept within their range, and put where `$name` stands.

`$name` stands for a whole value, never for a part of one, and what is put in is not looked at again: no value can
become another step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from latdoctor.errors import UsageError
from latdoctor.remediation.playbook import Parameter, Playbook, Scalar, StageOf, Step
from latdoctor.sanitize import clean
from latdoctor.strict_yaml import one_of
from latdoctor.units import parse_duration, parse_quantity, parse_share

MAX_TEXT = 200  # characters of a text: no knob holds more

_INTEGER = re.compile(r"[-+]?[0-9]{1,15}")
_NAMED = re.compile(r"\$([a-z][a-z0-9_]*)")
_NUMBERS = ("integer", "number", "duration", "share")


def of_type(kind: str, text: str) -> Scalar:
    """`text` as a value of one of PARAMETER_TYPES; durations in seconds, shares 0..1. Raises ValueError."""
    return _TYPES[kind](text.strip())


def value_of(parameter: Parameter, text: str) -> Scalar:
    """`text` as a value of the parameter, within its range. Raises ValueError that says what it may be."""
    try:
        value = of_type(parameter.type, text)
    except ValueError as error:
        raise ValueError(f"{error}: it is {allowed(parameter)}") from error
    within(parameter, value)
    return value


def within(parameter: Parameter, value: Scalar) -> None:
    """Raises ValueError where `value`, which is of the parameter's type, is outside its range."""
    if isinstance(value, str):
        inside = not parameter.choices or value in parameter.choices
    elif isinstance(value, bool):
        inside = True
    else:
        low, high = parameter.minimum, parameter.maximum
        inside = (low is None or value >= low) and (high is None or value <= high)
    if not inside:
        raise ValueError(f"{shown(parameter, value)} is outside the range: it is {allowed(parameter)}")


def allowed(parameter: Parameter) -> str:
    """What the parameter may be, for people: `an integer from 128 to 65536`."""
    if parameter.choices:
        return f"one of {', '.join(parameter.choices)}"
    low, high = (None if end is None else shown(parameter, end) for end in (parameter.minimum, parameter.maximum))
    what = {"integer": "an integer", "flag": "true or false"}.get(parameter.type, f"a {parameter.type}")
    if low is not None and high is not None:
        return f"{what} from {low} to {high}"
    if low is not None:
        return f"{what} of {low} or more"
    return f"{what} of {high} or less" if high is not None else what


def shown(parameter: Parameter, value: Scalar) -> str:
    """`value` as a person would give it; `value_of` gives the same value again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if parameter.type == "duration":
        short = f"{value * 1000:.15g}ms" if 0 < value < 1 else f"{value:.15g}s"
        return short if parse_duration(short) == value else f"{value!r}s"
    if parameter.type == "share":
        short = f"{value * 100:.15g}%"
        return short if parse_quantity(short).value == value else repr(value)
    return _plain(value)


def typed(playbook: Playbook, given: Mapping[str, str]) -> dict[str, Scalar]:
    """The value of every parameter: as given, else its default. Raises UsageError with all that is wrong in `given`."""
    known = {parameter.name: parameter for parameter in playbook.parameters}
    wrong = [_unknown(name, tuple(known)) for name in given if name not in known]
    values: dict[str, Scalar] = {}
    for name, parameter in known.items():
        try:
            value = value_of(parameter, given[name]) if name in given else parameter.default
        except ValueError as error:
            wrong.append(f"{name}: {error}")
            continue
        if value is None:
            wrong.append(f"{name} must be given: it is {allowed(parameter)}")
        else:
            values[name] = value
    if wrong:
        raise UsageError(
            clean("; ".join(wrong)), where=playbook.id, next_step=f"latdoctor playbooks show {playbook.id}"
        )
    return values


def _unknown(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=3, cutoff=0.4) or known
    return f"there is no parameter {name!r}" + (f" (there is {', '.join(near)})" if near else "")


def named(text: str) -> str | None:
    """The parameter that `text` stands for, or None where it stands for itself. Raises ValueError for a misplaced $."""
    match = _NAMED.fullmatch(text)
    if match is None and "$" in text:
        raise ValueError(f"{text!r}: $name stands for a whole value and is written in lower case")
    return match[1] if match else None


def filled(part: Step | StageOf, playbook: Playbook, values: Mapping[str, Scalar]) -> dict[str, str]:
    """What the action of a step, or the playbook of a stage, is given; `values` are what `typed` gave for `playbook`.

    Texts with their units, `250ms`, as people write them.
    """
    known = {parameter.name: parameter for parameter in playbook.parameters}
    found: dict[str, str] = {}
    for key, text in part.given.items():
        name = named(text)
        found[key] = text if name is None else shown(known[name], values[name])
    return found


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{clean(text, 40)!r} is not an integer")
    return int(text)


def _number(text: str) -> float:
    quantity = parse_quantity(text)
    if quantity.dimension != "count":
        raise ValueError(f"{clean(text, 40)!r} is not a plain number")
    return quantity.value


def _text(text: str) -> str:
    if not text or len(text) > MAX_TEXT or clean(text) != text:
        raise ValueError(f"{clean(text, 40)!r} is not a text of one line with at most {MAX_TEXT} characters")
    return text


def _flag(text: str) -> bool:
    return one_of(text, ("true", "false")) == "true"


_TYPES: Mapping[str, Callable[[str], Scalar]] = {
    "integer": _integer,
    "number": _number,
    "duration": parse_duration,
    "share": parse_share,
    "text": _text,
    "flag": _flag,
}


def _plain(value: float) -> str:
    """A number without needless digits: 1024, 0.3."""
    whole = isinstance(value, int) or (math.isfinite(value) and value.is_integer() and abs(value) < 1e15)
    return str(int(value)) if whole else repr(value)
