"""Protocol buffers as text, such as Triton's `config.pbtxt`: nested fields with numbers, strings, words and lists.

A field that occurs again is a list, as are fields written in brackets; the text does not show which fields of the
schema repeat. Format: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<mark>[{}<>\[\]:,;])|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>[\w.+-]+)"""
)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_CLOSES = {"{": "}", "<": ">"}
MOST_TOKENS, MOST_DEPTH = 50_000, 32

Value = str | float | bool | dict[str, "Value"] | list["Value"]
Message = dict[str, Value]


def decode(text: str) -> Message:
    """The fields of the message. Raises ValueError for a text that is none, is too long or nested too deeply."""
    reader = _FieldReader(_tokens(text))
    found = reader.message("", 0)
    if not found:
        raise ValueError("it has no field")
    return found


def _tokens(text: str) -> Iterator[str]:
    position = count = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"character {position + 1} cannot be read: {text[position]!r}")
        position = found.end()
        if found.lastgroup:
            count += 1
            if count > MOST_TOKENS:
                raise ValueError(f"it has more than {MOST_TOKENS} fields and values")
            yield found[0]


class _FieldReader:
    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self._next = next(tokens, "")

    def message(self, closing: str, depth: int) -> Message:
        """Read fields up to `closing`, or to the end of the text if that is empty."""
        if depth > MOST_DEPTH:
            raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep")
        found: Message = {}
        while self._next != closing:
            name = self._take()
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise ValueError(f"{name!r} is no name of a field")
            _add(found, name, self._value(depth))
            while self._next in (",", ";"):
                self._take()
        if closing:
            self._take()
        return found

    def _value(self, depth: int) -> Value:
        if self._next == ":":
            self._take()
        first = self._take()
        if first in _CLOSES:
            return self.message(_CLOSES[first], depth + 1)
        return self._list(depth + 1) if first == "[" else _scalar(first)

    def _list(self, depth: int) -> list[Value]:
        if depth > MOST_DEPTH:
            raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep")
        values: list[Value] = []
        while self._next != "]":
            values.append(self._value(depth))
            if self._next == ",":
                self._take()
        self._take()
        return values

    def _take(self) -> str:
        token = self._next
        if not token:
            raise ValueError("it ends in the middle of a field")
        self._next = next(self._tokens, "")
        return token


def _add(fields: Message, name: str, value: Value) -> None:
    if name not in fields:
        fields[name] = value
        return
    earlier = fields[name]
    values = earlier if isinstance(earlier, list) else [earlier]
    fields[name] = [*values, *(value if isinstance(value, list) else [value])]


def _scalar(text: str) -> Value:
    if text[0] in "\"'":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text)
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        return text  # a value of an enumeration
    raise ValueError(f"{text!r} is no value")
