"""A text that is never printed: neither by `repr`, nor in a traceback's locals, nor in JSON."""

from __future__ import annotations

from collections.abc import Iterable

from latdoctor.text import clean


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


def without(text: str, secrets: Iterable[Secret], limit: int = 300) -> str:
    """`text` as it may be shown, where a server, or a proxy before it, repeats what it was sent.

    Cleaned before: characters that are not seen could otherwise hide a secret from the search for it. The longest goes
    first, as one may be a part of another.
    """
    safe = clean(text, len(text) + 1)
    for secret in sorted((one.reveal() for one in secrets if one), key=len, reverse=True):
        safe = safe.replace(secret, "…")
    return clean(safe, limit)
