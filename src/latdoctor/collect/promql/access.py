"""How a Prometheus server is reached: its address, credentials from a file or the environment, its certificate.

Credentials never stand on the command line, where every user of the machine can read them, and are never shown.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from latdoctor.collect.source import Access
from latdoctor.errors import UsageError
from latdoctor.text import clean
from latdoctor.web.address import is_loopback

AUTH, AUTH_FILE, CA_FILE = "LATDOCTOR_PROMETHEUS_AUTH", "LATDOCTOR_PROMETHEUS_AUTH_FILE", "LATDOCTOR_PROMETHEUS_CA_FILE"
_MAX_FILE = 64 << 10
_FORM = "`Bearer TOKEN` or `Basic USER:PASSWORD`"


def access(given: str, auth_file: Path | None = None, ca_file: Path | None = None) -> Access:
    """The server at `given`, with what the environment holds where no file is named. Raises UsageError."""
    url, name, host = _address(given)
    return Access(
        url=url,
        name=name,
        loopback=is_loopback(host),
        authorization=authorization(auth_file, os.environ),
        ca_file=ca_file or (Path(os.environ[CA_FILE]) if os.environ.get(CA_FILE) else None),
    )


def _address(given: str) -> tuple[str, str, str]:
    hint = "write it such as --prometheus http://HOST:9090"
    try:
        parts = urlsplit(given.strip() if "://" in given else f"http://{given.strip()}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:  # its text may hold a password
        raise UsageError("the address makes no sense", where="--prometheus", next_step=hint) from error
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "an address with a user or password: others can read it",
            where="--prometheus",
            next_step=f"put {_FORM} into a file and its name into {AUTH_FILE}",
        )
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError("not the http or https address of a server", where="--prometheus", next_step=hint)
    bare = f"[{host}]" if ":" in host else host
    place = bare if port is None else f"{bare}:{port}"
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return urlunsplit((parts.scheme, place, path, "", "")), clean(place + path, 200), host


def authorization(
    auth_file: Path | None,
    environment: Mapping[str, str],
    variable: str = AUTH,
    file_variable: str = AUTH_FILE,
    *,
    bare: bool = False,
) -> str:
    """The header's value; empty where no credentials are given. `bare`: a word alone is a bearer token.

    Raises UsageError; no error tells what stands in them.
    """
    named = auth_file or (Path(environment[file_variable]) if environment.get(file_variable) else None)
    if named is None:
        return _header(environment.get(variable, ""), variable, bare=bare)
    try:
        with named.open("rb") as file:
            raw = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise UsageError(
            f"the credentials cannot be read: {error.strerror}", where=str(named), next_step="check path and rights"
        ) from error
    text = raw.decode("utf-8", errors="replace") if len(raw) <= _MAX_FILE else "\0"
    return _header(text, str(named), given=True, bare=bare)


def _header(text: str, where: str, *, given: bool = False, bare: bool = False) -> str:
    line = text.strip()
    if bare and line and " " not in line:
        line = f"Bearer {line}"
    if not line and not given:
        return ""
    scheme, _, secret = line.partition(" ")
    secret = secret.strip()
    known = scheme.lower()
    fits = secret.isprintable() and secret.isascii() and bool(secret)
    if not fits or known not in ("bearer", "basic") or (known == "basic" and ":" not in secret):
        raise UsageError("holds no credentials that can be used", where=where, next_step=f"write {_FORM} into it")
    if known == "basic":
        return f"Basic {base64.b64encode(secret.encode()).decode()}"
    return f"Bearer {secret}"
