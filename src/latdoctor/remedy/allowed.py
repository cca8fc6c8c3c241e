"""Which addresses of somebody else's may be changed: those that the target lists, and no way around the list.

A host name may lead to this machine or into its network. So it is looked up once, every address that it has is judged,
and the exchange goes to the very address that was judged (no second look-up that could say something else).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from urllib.parse import SplitResult, urlsplit

from latdoctor.errors import UsageError
from latdoctor.remedy.change import Refused, Unreachable
from latdoctor.remedy.http import checked
from latdoctor.text import clean

_PORTS = {"http": 80, "https": 443}
_TWISTED = ("%", "//", "/./", "/../", ";")  # ways to write a path that two readers may take for two
Resolve = Callable[[str, int], Sequence[str]]


def permitted(url: str, allow: Sequence[str]) -> str:
    """`url`, where it lies under one of `allow`. Raises UsageError."""
    parts = urlsplit(checked(url))
    path = f"{parts.path}/"
    if not url.isascii() or any(twist in path for twist in _TWISTED):
        raise UsageError("the path is written in a way that can be misread", where=clean(url, 200))
    for one in allow:
        entry = urlsplit(checked(one))
        if _origin(entry) == _origin(parts) and path.startswith(f"{entry.path.rstrip('/')}/"):
            return url
    raise UsageError(
        "it may not be changed: it is not under what the target allows",
        where=clean(url, 200),
        next_step=f"allowed are {', '.join(clean(one, 100) for one in allow) or 'none'}",
    )


def place(url: str, allow: Sequence[str], resolve: Resolve | None = None) -> str:
    """The address to connect to. Raises Refused for one that is not public and not itself in `allow`, Unreachable."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    try:
        found = (resolve or _resolved)(host, port)
    except (OSError, UnicodeError) as error:
        raise Unreachable("its name cannot be resolved", where=clean(url, 200)) from error
    named = {urlsplit(one).hostname or "" for one in allow}
    for text in found:
        address = _address(text)
        if address is None or not (_is_public(address) or _is_named(address, host, named)):
            raise Refused(
                f"{clean(host, 100)} leads to {clean(text, 60)}, an address that is not public",
                where=clean(url, 200),
                next_step="if it is meant, list the address itself in the target's `allow`",
            )
    if not found:
        raise Unreachable("its name has no address", where=clean(url, 200))
    return found[0]


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS[parts.scheme]


def _resolved(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> Address | None:
    """The address, and of an IPv6 one that stands for an IPv4 one the latter."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)
    return address


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


def _is_named(address: Address, host: str, named: set[str]) -> bool:
    if host == "localhost" and address.is_loopback:  # it is in the list itself, or `permitted` had refused
        return True
    return any(_address(one) == address for one in named)
