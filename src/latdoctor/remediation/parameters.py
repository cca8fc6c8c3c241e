"""The values of a playbook's parameters: parsed from text, kept within their range, and substituted for `$name`.

`$name` stands for a whole value, never for a part of one, and substituted text is not expanded again, so no value can
become another step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from latdoctor.errors import UsageError
from latdoctor.remediation.playbook import Parameter, ParameterType, Playbook, Scalar, Stage, Step
from latdoctor.sanitize import clean
from latdoctor.strict_yaml import one_of
from latdoctor.units import parse_duration, parse_quantity, parse_share

MAX_TEXT = 200  # characters of a text

_INTEGER = re.compile(r"[-+]?[0-9]{1,15}")
_REFERENCE = re.compile(r"\$([a-z][a-z0-9_]*)")


def parse_as(kind: ParameterType, text: str) -> Scalar:
    """Parse `text`; durations in seconds, shares from 0 to 1. Raises ValueError."""
    return _PARSERS[kind](text.strip())


def parse_value(parameter: Parameter, text: str) -> Scalar:
    """Parse `text` as a value within the parameter's range. Raises ValueError with the allowed values."""
    try:
        value = parse_as(parameter.type, text)
    except ValueError as error:
        raise ValueError(f"{error}: must be {allowed_values(parameter)}") from error
    _require_in_range(parameter, value)
    return value


def _require_in_range(parameter: Parameter, value: Scalar) -> None:
    if isinstance(value, str):
        inside = not parameter.choices or value in parameter.choices
    elif isinstance(value, bool):
        inside = True
    else:
        low, high = parameter.minimum, parameter.maximum
        inside = (low is None or value >= low) and (high is None or value <= high)
    if not inside:
        text = format_parameter(parameter, value)
        raise ValueError(f"{text} is outside the range: must be {allowed_values(parameter)}")


def allowed_values(parameter: Parameter) -> str:
    """The allowed values for people: `an integer from 128 to 65536`."""
    if parameter.choices:
        return f"one of {', '.join(parameter.choices)}"
    low, high = (
        None if end is None else format_parameter(parameter, end) for end in (parameter.minimum, parameter.maximum)
    )
    what = {ParameterType.INTEGER: "an integer", ParameterType.FLAG: "true or false"}.get(
        parameter.type, f"a {parameter.type}"
    )
    if low is not None and high is not None:
        return f"{what} from {low} to {high}"
    if low is not None:
        return f"{what} of {low} or more"
    return f"{what} of {high} or less" if high is not None else what


def format_parameter(parameter: Parameter, value: Scalar) -> str:
    """The value as text from which `parse_value` gives the same value again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if parameter.type == ParameterType.DURATION:
        short = f"{value * 1000:.15g}ms" if 0 < value < 1 else f"{value:.15g}s"
        return short if parse_duration(short) == value else f"{value!r}s"
    if parameter.type == ParameterType.SHARE:
        short = f"{value * 100:.15g}%"
        return short if parse_quantity(short).value == value else repr(value)
    whole = isinstance(value, int) or (math.isfinite(value) and value.is_integer() and abs(value) < 1e15)
    return str(int(value)) if whole else repr(value)


def parameter_values(playbook: Playbook, settings: Mapping[str, str]) -> dict[str, Scalar]:
    """The value of every parameter: from `settings`, else its default. Raises UsageError with all problems."""
    known = {parameter.name: parameter for parameter in playbook.parameters}
    problems = [_unknown_parameter(name, tuple(known)) for name in settings if name not in known]
    values: dict[str, Scalar] = {}
    for name, parameter in known.items():
        try:
            value = parse_value(parameter, settings[name]) if name in settings else parameter.default
        except ValueError as error:
            problems.append(f"{name}: {error}")
            continue
        if value is None:
            problems.append(f"{name} must be set: {allowed_values(parameter)}")
        else:
            values[name] = value
    if problems:
        raise UsageError(
            clean("; ".join(problems)), where=playbook.id, next_step=f"latdoctor playbooks show {playbook.id}"
        )
    return values


def _unknown_parameter(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=3, cutoff=0.4) or known
    return f"unknown parameter {name!r}" + (f" (known: {', '.join(near)})" if near else "")


def referenced_parameter(text: str) -> str | None:
    """The parameter that `text` refers to, or None for a literal. Raises ValueError for a misplaced $."""
    match = _REFERENCE.fullmatch(text)
    if match is None and "$" in text:
        raise ValueError(f"{text!r}: $name stands for a whole value and is written in lower case")
    return match[1] if match else None


def substituted(part: Step | Stage, playbook: Playbook, values: Mapping[str, Scalar]) -> dict[str, str]:
    """The arguments of a step or stage with the `values` of `parameter_values` for `playbook`, as texts with units."""
    known = {parameter.name: parameter for parameter in playbook.parameters}
    found: dict[str, str] = {}
    for key, text in part.arguments.items():
        name = referenced_parameter(text)
        found[key] = text if name is None else format_parameter(known[name], values[name])
    return found


def _parse_integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{clean(text, 40)!r} is not an integer")
    return int(text)


def _parse_number(text: str) -> float:
    quantity = parse_quantity(text)
    if quantity.dimension != "count":
        raise ValueError(f"{clean(text, 40)!r} is not a plain number")
    return quantity.value


def _parse_text(text: str) -> str:
    if not text or len(text) > MAX_TEXT or clean(text) != text:
        raise ValueError(f"{clean(text, 40)!r} is not a text of one line with at most {MAX_TEXT} characters")
    return text


def _parse_flag(text: str) -> bool:
    return one_of(text, ("true", "false")) == "true"


_PARSERS: Mapping[ParameterType, Callable[[str], Scalar]] = {
    ParameterType.INTEGER: _parse_integer,
    ParameterType.NUMBER: _parse_number,
    ParameterType.DURATION: parse_duration,
    ParameterType.SHARE: parse_share,
    ParameterType.TEXT: _parse_text,
    ParameterType.FLAG: _parse_flag,
}
