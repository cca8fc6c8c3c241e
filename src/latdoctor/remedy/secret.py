"""A text that is never printed: neither by `repr`, nor in a traceback's locals, nor in JSON."""

from __future__ import annotations


class Secret:
    """Holds a token. Only `reveal` gives it away, and only what sends it calls that."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(…)" if self._text else "Secret()"
