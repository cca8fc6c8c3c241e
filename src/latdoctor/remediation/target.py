"""What is mended: an address that can be changed, and the pages by which one sees whether that helped."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from msgspec import Struct

from latdoctor.http.client import Secret
from latdoctor.remediation.admin_api import AdminRequest, exchange, json_object
from latdoctor.remediation.change import Deadline

KINDS = ("reference", "reference-router", "process", "http")


class Target(Struct, frozen=True):
    """As it is journaled: a name, its kind, and where it is changed. Nothing secret."""

    name: str
    kind: str  # one of KINDS
    admin: str = ""  # base URL of what is changed
    pid: int = 0  # of a process on this machine
    started: float = 0.0  # when that process began, in clock ticks after boot: another one may get its number
    allow: tuple[str, ...] = ()  # of http: the URLs that may be changed, as prefixes up to a `/`
    configured: str = ""  # the target of latdoctor.yaml whose token lets us in; empty: the environment's does

    @property
    def key(self) -> str:
        """What two runs must not have at once."""
        return canonical(self.admin) or f"pid {self.pid} of {self.started:.0f}"


@dataclass(frozen=True, slots=True)
class Access:
    """How a target lets us in."""

    target: Target
    token: Secret


@dataclass(frozen=True, slots=True)
class Pages:
    """What shows whether a change helps, and what was given and does not: it is of another server of the kind.

    `guessed`: nobody named a server, and the pages are those that were found on this machine.
    """

    watched: tuple[str, ...]
    siblings: tuple[str, ...] = ()
    guessed: bool = False


HERE = "127.0.0.1"
_PORTS = {"http": 80, "https": 443}
_HERE = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})


def canonical(url: str) -> str:
    """One spelling for all that name the same place: lower case, with the port, and one name for all of this machine.

    What is no address stays as it is; so does a name that only a resolver knows to be this machine.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return url
    if not host or port is None:
        return url.rstrip("/")
    return f"{parts.scheme}://{_one_name(host.rstrip('.'))}:{port}{parts.path.rstrip('/')}"


def place_of(url: str) -> str:
    """`host:port` of an address, as `canonical` spells it; empty for what is none."""
    try:
        return urlsplit(canonical(url)).netloc
    except ValueError:
        return ""


def _one_name(host: str) -> str:
    if host in _HERE or host.endswith(".localhost"):
        return HERE
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))  # 127.1 and 2130706433 are 127.0.0.1 too
        except (OSError, ValueError):
            return host
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return HERE
    return f"[{address}]" if address.version == 6 else str(address)


READING = 5.0  # seconds
# A group or field that only this kind has.
_TELLING = {"reference": "batching", "reference-router": "weights"}


def kind_of(access: Access) -> str:
    """`reference`, `reference-router`, or `unknown`. Raises OperationError where it does not answer, or refuses us."""
    url = f"{access.target.admin}/admin/config"
    found = json_object(exchange(AdminRequest("GET", url), access.token, Deadline.after(READING)), url)
    return next((kind for kind, field in _TELLING.items() if field in found), "unknown")
