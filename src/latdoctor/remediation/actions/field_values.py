"""Conversion of a playbook's text values to the typed field values of a resource, and between those and JSON."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.remediation.change import Value
from latdoctor.sanitize import clean
from latdoctor.units import Quantity, parse_quantity

_BOOLEANS = {"true": True, "false": False}
# The unit of a field by the suffix of its name: `age_ms: 250ms` is 250, `limit_mib: 1GiB` is 1024.
_SUFFIX_UNITS = {
    "_ms": ("time", 1e-3),
    "_s": ("time", 1.0),
    "_seconds": ("time", 1.0),
    "_mib": ("bytes", 2.0**20),
    "_bytes": ("bytes", 1.0),
}


def parse(name: str, text: str, now: Value) -> Value:
    """Parse `text` for the field `name` as the type of `now`: a boolean, a number, a list (as compact JSON) or a text.

    If the field does not exist now (`None`), the text itself determines the type. Raises UsageError.
    """
    text = text.strip()
    if isinstance(now, bool):
        if text.lower() not in _BOOLEANS:
            raise UsageError(f"{name} must be true or false (got {_quoted(text)})")
        return _BOOLEANS[text.lower()]
    if isinstance(now, int | float):
        return parse_number(name, text)
    if isinstance(now, str):
        return _parse_list(name, text) if is_list(now) else text
    return _parse_untyped(name, text)


def _parse_untyped(name: str, text: str) -> Value:
    if text == "null":
        return None
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    try:
        return parse_number(name, text)
    except UsageError:
        return _parse_list(name, text) if text.startswith("[") else text


def parse_number(name: str, text: str) -> int | float:
    """A number in the field's unit. Raises UsageError for other text, and for a unit that does not fit the field."""
    try:
        quantity = parse_quantity(text)
        value = _in_unit(name, quantity)
    except ValueError as error:
        raise UsageError(f"{name} cannot be {_quoted(text)}: {clean(str(error), 200)}") from error
    return int(value) if value.is_integer() else value


def _in_unit(name: str, quantity: Quantity) -> float:
    if quantity.dimension == "count":
        return quantity.value
    dimension, factor = next((unit for end, unit in _SUFFIX_UNITS.items() if name.endswith(end)), ("ratio", 1.0))
    if quantity.dimension != dimension:
        raise ValueError(f"must be a number{_EXAMPLES.get(dimension, '')}")
    value = quantity.value / factor
    return float(f"{value:.12g}")  # 250 ms are 250, not 250.00000000000003


_EXAMPLES = {
    "time": " or a time such as 250ms",
    "bytes": " or a size such as 64MiB",
    "ratio": " or a share such as 20%",
}


def is_list(value: Value) -> bool:
    """Whether the value is the compact JSON of a list."""
    if not isinstance(value, str) or not value.startswith("["):
        return False
    try:
        msgspec.json.decode(value.encode(), type=list[Any])
    except UNDECODABLE:
        return False
    return True


def _parse_list(name: str, text: str) -> str:
    try:
        items = msgspec.json.decode(text.encode(), type=list[bool | int | float | str])
    except UNDECODABLE as error:
        raise UsageError(f"{name} must be a list such as [64, 128] (got {_quoted(text)})") from error
    return msgspec.json.encode(items).decode()


def _quoted(text: str) -> str:
    return repr(clean(text, 80))


def to_json(value: Value) -> Any:
    """The JSON value of a field value."""
    return msgspec.json.decode(str(value).encode()) if is_list(value) else value


def from_json(value: Any) -> Value:
    """The field value of a JSON value. Raises ValueError for NaN, infinity and objects."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return msgspec.json.encode(value).decode()
    raise ValueError("a value is an object")


def suggest(name: str, names: Iterable[str]) -> str:
    """A hint with those of `names` that are similar to `name`."""
    known = list(names)
    close = difflib.get_close_matches(name, known, 3, 0.5)
    same_end = [one for one in known if one.rpartition(".")[2] == name.rpartition(".")[2]]
    similar = list(dict.fromkeys([*same_end, *close]))[:3]
    return f"did you mean {' or '.join(similar)}?" if similar else f"one of {', '.join(sorted(known)[:12])}"
