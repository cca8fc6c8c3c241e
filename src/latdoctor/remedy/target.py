"""What is mended: an address that can be changed, and the pages by which one sees whether that helped."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from latdoctor.remedy.secret import Secret

HERE = "127.0.0.1"
_PORTS = {"http": 80, "https": 443}
KINDS = ("reference", "reference-router", "process", "http")


class Target(Struct, frozen=True):
    """As it is journaled: a name, its kind, and where it is changed. Nothing secret."""

    name: str
    kind: str  # one of KINDS
    admin: str = ""  # base URL of what is changed
    pid: int = 0  # of a process on this machine
    started: float = 0.0  # when that process began, in clock ticks after boot: another one may get its number
    allow: tuple[str, ...] = ()  # of http: the URLs that may be changed, as prefixes up to a `/`

    @property
    def key(self) -> str:
        """What two runs must not have at once."""
        return canonical(self.admin) or f"pid {self.pid} of {self.started:.0f}"


def canonical(url: str) -> str:
    """`url` as all ways have it in common to write it: in lower case where that makes no difference, with its port.

    This machine itself is 127.0.0.1, whichever of its loopback names or addresses is written. Other names are not
    looked up, for what they mean may change. What is no address with a host is given back as it is.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return url
    if not host:
        return url
    number = _PORTS.get(parts.scheme, 0) if port is None else port
    return f"{parts.scheme}://{_host(host)}:{number}{parts.path.rstrip('/')}"


def _host(name: str) -> str:
    plain = name.rstrip(".")
    if plain == "localhost" or plain.endswith(".localhost"):  # RFC 6761, section 6.3
        return HERE
    try:
        address: IPv4Address | IPv6Address = ip_address(plain)
    except ValueError:
        try:
            address = IPv4Address(socket.inet_aton(plain))  # "127.1", "0": what connect() takes as well
        except OSError:
            return plain
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback or address.is_unspecified:
        return HERE
    return f"[{address}]" if isinstance(address, IPv6Address) else str(address)


@dataclass(frozen=True, slots=True)
class Access:
    """How a target lets us in."""

    target: Target
    token: Secret
