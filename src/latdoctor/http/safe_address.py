"""Hosts and addresses: resolve a name, distinguish public from private addresses, mask credentials in URLs.

A name may resolve to this machine or its network. It is resolved once, each of its addresses is checked, and the
request goes to the checked address, so that a second resolution cannot return a different one.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from latdoctor.errors import OperationError
from latdoctor.sanitize import clean

PORTS: Final = {"http": 80, "https": 443}
_AMBIGUOUS = ("%", "//", "/./", "/../", ";")  # parts of a path that two servers may interpret differently

ResolveHost = Callable[[str, int], Sequence[str]]  # host, port: its addresses. Raises OSError, UnicodeError.
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of `host` in the system's order of preference. Raises OSError, UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def parse_address(text: str) -> Address | None:
    """Parse an IP address; an IPv6 address that embeds an IPv4 address yields the latter. None if invalid."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)
    return address


def is_loopback(host: str) -> bool:
    """Whether `host` is a loopback address or `localhost`; other names are not resolved."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


class UnresolvedHostError(OperationError):
    """The name of the host has no address at present."""


class ForbiddenAddressError(OperationError):
    """The name of the host resolves to an address that is not permitted: `address`."""

    def __init__(self, what: str, address: str) -> None:
        super().__init__(what)
        self.address = address


def connect_address(url: str, is_permitted: Callable[[Address], bool], resolve: ResolveHost = resolve_host) -> str:
    """Return the address to connect to, if all addresses of the host are permitted.

    Raises UnresolvedHostError, ForbiddenAddressError.
    """
    parts = urlsplit(url)
    try:
        found = resolve(parts.hostname or "", parts.port or PORTS[parts.scheme])
    except (OSError, UnicodeError):
        raise UnresolvedHostError("the host name cannot be resolved") from None
    if not found:
        raise UnresolvedHostError("the host name has no address")
    for text in found:
        address = parse_address(text)
        if address is None or not is_permitted(address):
            raise ForbiddenAddressError(f"the host name resolves to {clean(text, 60)}", clean(text, 60))
    return found[0]


def origin(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, (parts.hostname or "").lower(), parts.port or PORTS[parts.scheme]


def is_plain_path(path: str) -> bool:
    """Whether every server interprets `path` the same way."""
    return not any(part in f"{path}/" for part in _AMBIGUOUS)


def is_under(parts: SplitResult, entry: SplitResult) -> bool:
    """Whether a URL has the origin of `entry` and its path or a path below it."""
    return origin(entry) == origin(parts) and f"{parts.path}/".startswith(f"{entry.path.rstrip('/')}/")


# pathlib turns a URL passed as a file into `http:/u:p@host`.
_USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2})[^\s/]*(?:/[^\s@]*)?@")
_QUERY = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2}[^\s?]*\?)[^\s'\"]+")


def mask_credentials(text: str) -> str:
    """Return `text` with the user info and the query of each URL in it replaced by `…`."""
    return _QUERY.sub(r"\1…", _USER.sub(r"\1…@", text))


def redact_url(url: str) -> str:
    """Return `url` without user name, password, query and fragment, which may be secrets. Never raises."""
    rest = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, slashes, place = rest.rpartition("://")
    return clean(f"{scheme}{slashes}{place.rpartition('@')[2]}", 300)  # a password may hold a slash
