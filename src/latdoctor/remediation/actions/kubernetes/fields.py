"""Fields of an object by JSON pointer (RFC 6901), and the JSON Patch (RFC 6902) that sets some of them.

An element of a list is named as it names itself: `/spec/template/spec/containers/server/image` is the image of the
container `server`, wherever it is in the list. A value that is an object or a list is kept as its compact JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.remediation.change import Refused, Value, Values

Operation = dict[str, Any]
_TEXTS = ("/metadata/annotations/", "/metadata/labels/")  # whatever they contain is a text


def escaped(token: str) -> str:
    """A token of a pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def _tokens(pointer: str) -> list[str]:
    return [one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]]


def raw_at(document: Any, pointer: str) -> Any:
    """What is at `pointer`; None where there is nothing."""
    for token in _tokens(pointer):
        if isinstance(document, Mapping):
            document = document.get(token)
        elif isinstance(document, list):
            document = next((one for one in document if isinstance(one, Mapping) and one.get("name") == token), None)
        else:
            return None
    return document


def value_at(document: Any, pointer: str) -> Value:
    """The field value at `pointer`."""
    raw = raw_at(document, pointer)
    if raw is None or isinstance(raw, bool | int | float | str):
        return raw
    return compact(raw)


def compact(raw: Any) -> str:
    """One text for all spellings of a JSON value. A null is a field that is not there."""
    return msgspec.json.encode(_pruned(raw), order="sorted").decode()


def _pruned(raw: Any) -> Any:
    if isinstance(raw, Mapping):
        return {name: _pruned(one) for name, one in raw.items() if one is not None}
    return [_pruned(one) for one in raw] if isinstance(raw, list) else raw


def to_raw(pointer: str, value: Value) -> Any:
    """The JSON value of a field value."""
    if not isinstance(value, str) or not value.startswith(("{", "[")) or pointer.startswith(_TEXTS):
        return value
    try:
        return msgspec.json.decode(value.encode())
    except UNDECODABLE as error:
        raise Refused(f"{pointer} is no JSON: {error}") from error


def digest(raw: Any) -> str:
    return hashlib.sha256(compact(raw).encode()).hexdigest()[:32]


def without(document: Any, pointers: Sequence[str]) -> Any:
    """A copy of `document` in which these fields are empty."""
    copy = msgspec.json.decode(msgspec.json.encode(document))
    for pointer in pointers:
        *parents, last = _tokens(pointer)
        parent = raw_at(copy, "".join(f"/{escaped(one)}" for one in parents))
        if isinstance(parent, dict):
            parent.pop(last, None)
    return copy


def patch_of(document: Mapping[str, Any], values: Values, tested: Sequence[str]) -> list[Operation]:
    """The JSON Patch that sets `values` in `document`, provided that they and `tested` are as in `document`.

    Raises Refused for an element of a list that is not there.
    """
    tests = [{"op": "test", "path": one, "value": raw_at(document, one)} for one in tested]
    sets: list[Operation] = []
    for pointer, value in values.items():
        path, missing, old = _place(document, pointer)
        if old is not None:
            tests.append({"op": "test", "path": path, "value": old})
        raw = to_raw(pointer, value)
        if raw is None:
            sets += [{"op": "remove", "path": path}] if old is not None else []
            continue
        known = {one["path"] for one in sets}
        sets += [{"op": "add", "path": one, "value": {}} for one in missing if one not in known]
        sets.append({"op": "add" if old is None else "replace", "path": path, "value": raw})
    return [*tests, *sets]


def _place(document: Any, pointer: str) -> tuple[str, list[str], Any]:
    """The pointer with indexes for names, the parents that do not exist yet, and what is there."""
    path, missing, here = "", list[str](), document
    *parents, last = _tokens(pointer)
    for number, token in enumerate((*parents, last)):
        if isinstance(here, list):
            names = [one.get("name") if isinstance(one, Mapping) else None for one in here]
            if token not in names:
                raise Refused(f"{pointer}: there is no {token!r} in {path}")
            index = names.index(token)
            path, here = f"{path}/{index}", here[index]
            continue
        path, here = f"{path}/{escaped(token)}", here.get(token) if isinstance(here, Mapping) else None
        if here is None and number < len(parents):
            missing.append(path)
    return path, missing, here


def differing(before: Value, after: Value, pointer: str = "") -> Iterator[tuple[str, Value, Value]]:
    """The fields in which two values differ, each with both; a value that is no object is one field."""
    old, new = to_raw(pointer, before), to_raw(pointer, after)
    if not (isinstance(old, dict | list) and isinstance(new, dict | list)):
        yield pointer, before, after
        return
    for token in dict.fromkeys((*_names(old), *_names(new))):
        inner = f"/{escaped(token)}"
        one, other = value_at(old, inner), value_at(new, inner)
        if one != other:
            yield from differing(one, other, pointer + inner)
    if not (_names(old) or _names(new)):
        yield pointer, before, after


def _names(raw: Any) -> list[str]:
    """The tokens of an object, or of a list whose elements have names."""
    if isinstance(raw, dict):
        return list(raw)
    return [str(one["name"]) for one in raw if isinstance(one, dict) and "name" in one]


def merge_of(values: Values) -> dict[str, Any]:
    """The strategic merge patch that sets `values`: for a command that a person types."""
    patch: dict[str, Any] = {}
    for pointer, value in values.items():
        raw = to_raw(pointer, value)
        _merge(patch, _tokens(pointer), {"$patch": "replace", **raw} if isinstance(raw, dict) else raw)
    return patch


def _merge(here: dict[str, Any], tokens: Sequence[str], raw: Any) -> None:
    first, *rest = tokens
    if not rest:
        here[first] = raw
    elif first in _LISTS:
        elements: list[dict[str, Any]] = here.setdefault(first, [])
        if not any(one["name"] == rest[0] for one in elements):
            elements.append({"name": rest[0]})
        _merge(next(one for one in elements if one["name"] == rest[0]), rest[1:], raw)
    else:
        _merge(here.setdefault(first, {}), rest, raw)


_LISTS = frozenset({"containers", "initContainers"})
