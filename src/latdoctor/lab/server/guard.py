"""Who may use the admin interface: a caller on this machine that knows the token."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from starlette.requests import Request

from latdoctor.errors import UsageError
from latdoctor.lab.server.refusal import Refused
from latdoctor.web.address import is_loopback

VARIABLE = "LATDOCTOR_ADMIN_TOKEN"
FEWEST_CHARACTERS = 8


def admin_token(file: Path | None) -> str:
    """The token in `file`, else in the environment; empty where none is given: then nobody is let in.

    Raises UsageError for a file that cannot be read, or a token of less than eight characters.
    """
    token = os.environ.get(VARIABLE, "").strip()
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("the admin token cannot be read", where=str(file)) from error
        if not token:
            raise UsageError("the file of the admin token is empty", where=str(file))
    if token and (len(token) < FEWEST_CHARACTERS or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"the admin token is shorter than {FEWEST_CHARACTERS} characters or not plain text",
            where=str(file or VARIABLE),
            next_step="openssl rand -hex 16",
        )
    return token


class Guard:
    """Lets a request in, or raises Refused: 403 from elsewhere or without a token set, 401 for a wrong one."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def check(self, request: Request) -> None:
        if request.client is None or not is_loopback(request.client.host):
            raise Refused(403, "not-local", "the admin interface answers this machine only")
        if not self._token:
            raise Refused(403, "no-token", f"the server was started without an admin token ({VARIABLE})")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            raise Refused(401, "wrong-token", "send the admin token as `Authorization: Bearer TOKEN`")
