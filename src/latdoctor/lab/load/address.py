"""Whom load may be sent to."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from latdoctor.errors import OperationError, UsageError
from latdoctor.web.address import is_loopback

_CONNECT_S = 3.0


def check_address(address: str, *, remote: bool) -> None:
    """Refuses what is no http address, another machine unless `remote`, and where nothing listens.

    Raises UsageError, OperationError.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError as error:
        raise UsageError(f"{address!r} is no address ({error})") from error
    if parts.scheme != "http" or not host:
        raise UsageError(f"{address!r} is no http address", next_step="such as http://127.0.0.1:8080")
    if not remote and not is_loopback(host):
        raise UsageError(f"{host} is not this machine", next_step="add --allow-remote if its owner agrees to the load")
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise OperationError(
            f"nothing answers ({error.strerror or error})", where=address, next_step="latdoctor lab serve"
        ) from error
