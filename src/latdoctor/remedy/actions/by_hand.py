"""The commands that a person types where a run could not finish: they run as they stand, and hold no secret."""

from __future__ import annotations

import shlex

VARIABLE = "LATDOCTOR_ADMIN_TOKEN"
ANY = "*"  # whatever stands there: a person has looked


def curl(method: str, url: str, content: bytes | None = None, *, version: str = ANY, token: bool = True) -> str:
    """One request with curl. The token comes from the environment; `version` goes into If-Match, if there is one."""
    parts = ["curl", "-fsS", "-X", method, shlex.quote(url)]
    if token:
        parts += ["-H", f'"Authorization: Bearer ${VARIABLE}"']
    if version:
        parts += ["-H", shlex.quote(f"If-Match: {version}")]
    if content is not None:
        parts += ["-H", shlex.quote("Content-Type: application/json"), "--data-raw", shlex.quote(content.decode())]
    return " ".join(parts)
