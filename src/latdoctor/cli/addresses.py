"""Addresses as they may be shown: user names, passwords and queries in them are nobody else's business."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from latdoctor.errors import UsageError
from latdoctor.text import clean

if TYPE_CHECKING:
    from latdoctor.collect.prometheus.scrape import Target

# `http:/u:p@host` is what a Path makes of an address that was given in a file's place.
_USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2})[^\s/]*(?:/[^\s@]*)?@")
_QUERY = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2}[^\s?]*\?)[^\s'\"]+")


def masked(text: str) -> str:
    """`text` with the user parts of its addresses and all that follows their question marks hidden."""
    return _QUERY.sub(r"\1…", _USER.sub(r"\1…@", text))


def server(given: str, where: str = "--server") -> Target:
    """The metrics page at `given`. Raises UsageError for what is no http address, without telling a secret in it."""
    from latdoctor.collect.prometheus.scrape import target

    try:
        return target(given.strip())
    except ValueError as error:
        shown = clean(re.split(r"[?#]", given.rsplit("@", 1)[-1])[0], 200)
        raise UsageError(
            f"{shown!r} is not an http or https address" if shown else "the address is empty",
            where=where,
            next_step=f"write it such as {where} http://HOST:PORT/metrics",
        ) from error


def origin(given: str) -> str:
    """Scheme, host and port of a server: where its admin interface is. Raises UsageError as `server` does."""
    parts = urlsplit(server(given).url)
    return f"{parts.scheme}://{parts.netloc}"


def servers_name(servers: Sequence[str]) -> str:
    """`a:8000`, or `a:8000 and 1 more`: how the target of a look at `servers` is called."""
    first, *others = dict.fromkeys(server(given).name for given in servers)
    return f"{first} and {len(others)} more" if others else first
