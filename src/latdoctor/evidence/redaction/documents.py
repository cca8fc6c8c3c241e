"""Whole documents without credentials and prompts: a diagnosis, a page of a report, a journal entry, a message.

Every way out takes its texts through here, each as a value of its type: names and numbers stay what they are. A field
is judged by its name and its whole value, as nothing tells where the value of a label ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct, structs

from latdoctor.evidence.redaction.makers import HIDDEN
from latdoctor.evidence.redaction.names import Secrecy, looks_secret, secrecy
from latdoctor.evidence.redaction.patterns import NOTHING, NUMBER, PROMPT_NAME
from latdoctor.evidence.redaction.redactor import without_secrets

_Any = TypeVar("_Any")
_REMEMBERED = 1 << 14
_SHORTEST = 6  # characters: what is shorter holds neither a credential by its form nor a field


def without_secrets_in(value: _Any) -> _Any:
    """`value`, of structs, tuples, lists and mappings, with every text in it without credentials and prompts."""
    return _made(value)  # type: ignore[no-any-return]


@lru_cache(_REMEMBERED)
def field_without_secrets(name: str, value: str) -> str:
    """The `value` of a field, as a label or an annotation; hidden if its `name` marks a credential or a prompt."""
    kind = secrecy(name)
    empty = value in ("", *NOTHING) or NUMBER.fullmatch(value) is not None
    if kind is Secrecy.CERTAIN and not empty:
        return HIDDEN
    if kind is Secrecy.LIKELY and looks_secret(value):
        return HIDDEN
    if PROMPT_NAME.fullmatch(name) and not empty:
        return HIDDEN
    return _text(value)


@lru_cache(_REMEMBERED)
def _text(text: str) -> str:
    return without_secrets(text)


def _made(value: Any) -> Any:
    if type(value) is str:  # not one of an enumeration
        return value if len(value) < _SHORTEST else _text(value)
    if isinstance(value, Struct):
        changed = {}
        for name in value.__struct_fields__:
            given = getattr(value, name)
            made = _made(given)
            if made is not given:
                changed[name] = made
        return structs.replace(value, **changed) if changed else value
    if isinstance(value, tuple | list):
        items = [_made(one) for one in value]
        if all(made is given for made, given in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        fields = {_made(name): _of_field(name, one) for name, one in value.items()}
        return value if all(fields.get(name) is one for name, one in value.items()) else fields
    return value


def _of_field(name: object, value: Any) -> Any:
    return field_without_secrets(name, value) if type(value) is str and isinstance(name, str) else _made(value)
