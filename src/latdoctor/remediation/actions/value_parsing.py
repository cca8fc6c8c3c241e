"""Values as a playbook writes them, made into what the resource has in their place."""

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

_FLAGS = {"true": True, "false": False}
# What a field's number counts, by the end of its name: `age_ms: 250ms` is 250, `limit_mib: 1GiB` is 1024.
_ENDS = {
    "_ms": ("time", 1e-3),
    "_s": ("time", 1.0),
    "_seconds": ("time", 1.0),
    "_mib": ("bytes", 2.0**20),
    "_bytes": ("bytes", 1.0),
}


def typed(name: str, text: str, now: Value) -> Value:
    """`text` for the field `name`, of the kind that `now` is: a flag, a number, a list as compact JSON, or a text.

    Where the field is not there now (`None`), what the text looks like decides. Raises UsageError.
    """
    given = text.strip()
    if isinstance(now, bool):
        if given.lower() not in _FLAGS:
            raise UsageError(f"{name} is true or false, not {_shown(given)}")
        return _FLAGS[given.lower()]
    if isinstance(now, int | float):
        return number(name, given)
    if isinstance(now, str):
        return _list(name, given) if is_list(now) else given
    return looked_at(name, given)


def looked_at(name: str, given: str) -> Value:
    """The value that a text looks like, where nothing says what it shall be. Raises UsageError."""
    if given == "null":
        return None
    if given.lower() in _FLAGS:
        return _FLAGS[given.lower()]
    try:
        return number(name, given)
    except UsageError:
        return _list(name, given) if given.startswith("[") else given


def number(name: str, given: str) -> int | float:
    """A number in the field's own unit. Raises UsageError for anything else, and for a unit that does not fit."""
    try:
        quantity = parse_quantity(given)
        value = _in_unit(name, quantity)
    except ValueError as error:
        raise UsageError(f"{name} cannot be {_shown(given)}: {clean(str(error), 200)}") from error
    return int(value) if value.is_integer() else value


def _in_unit(name: str, quantity: Quantity) -> float:
    if quantity.dimension == "count":
        return quantity.value
    dimension, factor = next((unit for end, unit in _ENDS.items() if name.endswith(end)), ("ratio", 1.0))
    if quantity.dimension != dimension:
        raise ValueError(f"it is a number{_UNITS.get(dimension, '')}")
    value = quantity.value / factor
    return float(f"{value:.12g}")  # 250 ms are 250, not 250.00000000000003


_UNITS = {"time": " or a time such as 250ms", "bytes": " or a size such as 64MiB", "ratio": " or a share such as 20%"}


def compact(value: Any) -> str:
    """A list as the one text that stands for it in a state."""
    return msgspec.json.encode(value).decode()


def is_list(value: Value) -> bool:
    """Whether a state's text stands for a list."""
    if not isinstance(value, str) or not value.startswith("["):
        return False
    try:
        msgspec.json.decode(value.encode(), type=list[Any])
    except UNDECODABLE:
        return False
    return True


def _list(name: str, given: str) -> str:
    try:
        return compact(msgspec.json.decode(given.encode(), type=list[bool | int | float | str]))
    except UNDECODABLE as error:
        raise UsageError(f"{name} is a list such as [64, 128], not {_shown(given)}") from error


def _shown(given: str) -> str:
    return repr(clean(given, 80))


def as_json(value: Value) -> Any:
    """What is sent for a state's value."""
    return msgspec.json.decode(str(value).encode()) if is_list(value) else value


def scalar(value: Any) -> Value:
    """A JSON value as a state holds it. Raises ValueError for what it cannot: NaN, an object."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it is no finite number")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return compact(value)
    raise ValueError("it is no value")


def near(name: str, names: Iterable[str]) -> str:
    """Which of `names` may have been meant, as a hint."""
    known = list(names)
    close = difflib.get_close_matches(name, known, 3, 0.5)
    ends = [one for one in known if one.rpartition(".")[2] == name.rpartition(".")[2]]
    meant = list(dict.fromkeys([*ends, *close]))[:3]
    return f"did you mean {' or '.join(meant)}?" if meant else f"one of {', '.join(sorted(known)[:12])}"
