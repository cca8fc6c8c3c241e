"""Addresses of servers as typed: validation, their origin, and the name of a target with several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from latdoctor.errors import UsageError
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.collectors.prometheus.scrape import ScrapeTarget


def server(address: str, where: str = "--server") -> ScrapeTarget:
    """The metrics page at `address`. Raises UsageError for a text that is no http address, without its credentials."""
    from latdoctor.collectors.prometheus.scrape import parse_target

    try:
        return parse_target(address.strip())
    except ValueError as error:
        shown = clean(re.split(r"[?#]", address.rsplit("@", 1)[-1])[0], 200)
        raise UsageError(
            f"{shown!r} is not an http or https address" if shown else "the address is empty",
            where=where,
            next_step=f"write it such as {where} http://HOST:PORT/metrics",
        ) from error


def shown_origin(address: str) -> str:
    """Scheme, host and port of a server: where its admin interface is. Raises UsageError as `server` does."""
    parts = urlsplit(server(address).url)
    return f"{parts.scheme}://{parts.netloc}"


def servers_name(servers: Sequence[str]) -> str:
    """`a:8000`, or `a:8000 and 1 more`: the name of a target with these servers."""
    first, *others = dict.fromkeys(server(address).name for address in servers)
    return f"{first} and {len(others)} more" if others else first
