"""Values of a repeated `--set NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable

from latdoctor.errors import UsageError


def named_values(texts: Iterable[str]) -> dict[str, str]:
    """Raises UsageError for a text that is not NAME=VALUE, or a name that was given before."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            raise UsageError(f"must be NAME=VALUE, each name once (got {text!r})", where="--set")
        found[name] = value
    return found
