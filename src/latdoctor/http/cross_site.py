"""Protection of a local HTTP server against web pages: cross-site requests and DNS rebinding.

Any page open in a browser can send requests to 127.0.0.1. The browser marks them with `Origin` or `Sec-Fetch-Site`;
Alertmanager, curl and latdoctor send neither. A page can also let its own host name resolve to 127.0.0.1, and then
counts as same-site; its name is in `Host`, so only expected names are accepted there.
https://fetch.spec.whatwg.org/#origin-header · https://www.w3.org/TR/fetch-metadata/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from latdoctor.http.safe_address import is_loopback, parse_address

JSON: Final = "application/json"
_WILDCARDS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - the addresses of a server that listens on every interface


class CrossSite(StrEnum):
    """Why a request may come from a web page."""

    HOST = "host"  # addressed to an unexpected name
    PAGE = "page"  # sent by a page, as its browser says


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names that a `Host` header may have; names of the loopback interface always.

    `any_address`: every IP address too, for a server that listens on all interfaces. No DNS answer can make a page's
    host name an address.
    """

    names: frozenset[str] = frozenset()
    any_address: bool = False

    @classmethod
    def of(cls, listening: str, further: Sequence[str] = ()) -> HostNames:
        """Names of a server that listens on the address `listening`, and the configured ones."""
        wildcard = listening in _WILDCARDS
        names = [name for name in (*further, "" if wildcard else listening) if name]
        return cls(frozenset(name.strip("[]").rstrip(".").lower() for name in names), wildcard)

    def allows(self, host: str) -> bool:
        """Whether a `Host` header, with or without a port, names this server."""
        name = _name(host)
        if not name:
            return False
        return is_loopback(name) or name in self.names or (self.any_address and parse_address(name) is not None)


def cross_site(headers: Mapping[str, str], hosts: HostNames) -> CrossSite | None:
    """Whether a request with these headers (names in lower case) may come from a web page."""
    if not hosts.allows(headers.get("host", "")):
        return CrossSite.HOST
    if "origin" in headers or headers.get("sec-fetch-site", "none").strip().lower() != "none":
        return CrossSite.PAGE
    return None


def is_json(content_type: str) -> bool:
    """Whether a `Content-Type` is JSON. A page cannot send it to another site without a preflight request."""
    return content_type.partition(";")[0].strip().lower() == JSON


def _name(host: str) -> str:
    if any(char in host for char in "@/?#\\") or not host.isprintable():
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""
