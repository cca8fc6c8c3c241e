"""What a host's name leads to, and whether that is a public address.

A name may lead to this machine or into its network. So it is looked up once, every address that it has is judged, and
the exchange goes to the very address that was judged: no second look-up could say something else.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult

if TYPE_CHECKING:
    pass


PORTS: Final = {"http": 80, "https": 443}
_TWISTED = ("%", "//", "/./", "/../", ";")  # ways to write a path that two readers may take for two

ResolveHost = Callable[[str, int], Sequence[str]]  # host, port: its addresses. Raises OSError, UnicodeError.
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of `host` in the order in which the system prefers them. Raises OSError, UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def parse_address(text: str) -> Address | None:
    """The address, and of an IPv6 one that stands for an IPv4 one the latter; None for what is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)
    return address


def is_loopback(host: str) -> bool:
    """Whether `host`, an address or `localhost`, is this machine; a name that only leads to it is not."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


def origin(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, (parts.hostname or "").lower(), parts.port or PORTS[parts.scheme]


def is_plain_path(path: str) -> bool:
    """Whether every reader takes `path` for the same."""
    return not any(twist in f"{path}/" for twist in _TWISTED)


def is_under(parts: SplitResult, entry: SplitResult) -> bool:
    """Whether an address has the origin of `entry`, and a path that is or begins with its path up to a `/`."""
    return origin(entry) == origin(parts) and f"{parts.path}/".startswith(f"{entry.path.rstrip('/')}/")


# `http:/u:p@host` is what a Path makes of an address that was given in a file's place.
_USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2})[^\s/]*(?:/[^\s@]*)?@")
_QUERY = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2}[^\s?]*\?)[^\s'\"]+")


def mask_credentials(text: str) -> str:
    """`text` with the user parts of its addresses and all that follows their question marks hidden."""
    return _QUERY.sub(r"\1…", _USER.sub(r"\1…@", text))
