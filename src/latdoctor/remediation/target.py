"""The target of a remediation: the address that is changed, and the metrics pages that show the effect."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    from latdoctor.http.client import Secret


class TargetKind(StrEnum):
    """What can be changed."""

    REFERENCE = "reference"
    REFERENCE_ROUTER = "reference-router"
    PROCESS = "process"
    HTTP = "http"
    KUBERNETES = "kubernetes"
    UNKNOWN = "unknown"  # an admin interface that no action supports; not valid in a playbook


KINDS = tuple(kind for kind in TargetKind if kind is not TargetKind.UNKNOWN)


class ClusterWorkload(Struct, frozen=True):
    """A workload of a cluster, and how the cluster is logged in to: by names only, which are no secret.

    `cluster`: URL of the API server. `kind`: deployments or statefulsets. `kubeconfig`: as $KUBECONFIG names it; empty
    with an empty `context` for the service account of this Pod.
    """

    cluster: str
    namespace: str
    kind: str
    name: str
    context: str = ""
    kubeconfig: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind.removesuffix('s')}/{self.name}"


class Target(Struct, frozen=True):
    """A target as it is journaled: name, kind and address. It contains no secret."""

    name: str
    kind: TargetKind
    admin: str = ""  # base URL of the admin interface
    pid: int = 0  # of a process on this machine
    started: float = 0.0  # start of that process in clock ticks after boot; PIDs are reused
    allow: tuple[str, ...] = ()  # kind http: URLs that may be changed, as prefixes up to a `/`
    configured: str = ""  # the target in latdoctor.yaml that has the token; empty: the token is in the environment
    workload: ClusterWorkload | UnsetType = UNSET  # kind kubernetes

    @property
    def key(self) -> str:
        """The key of the target's lock: two runs must not hold it at once."""
        if self.workload is not UNSET:
            return f"{canonical_url(self.workload.cluster)} {self.workload}"
        return canonical_url(self.admin) or f"pid {self.pid} of {self.started:.0f}"


@dataclass(frozen=True, slots=True)
class Access:
    """A target and the token of its admin interface."""

    target: Target
    token: Secret


@dataclass(frozen=True, slots=True)
class Pages:
    """The metrics pages that show the effect of a change, and given pages that belong to another server of the kind.

    `guessed`: no server was named; the pages are those found on this machine.
    """

    watched: tuple[str, ...]
    siblings: tuple[str, ...] = ()
    guessed: bool = False


LOOPBACK = "127.0.0.1"
_PORTS = {"http": 80, "https": 443}
_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})


def canonical_url(url: str) -> str:
    """Return one spelling for all URLs of one place: lower case, explicit port, one name for this machine.

    Text that is not a URL is returned unchanged, as is a host name that only a resolver maps to this machine.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return url
    if not host or port is None:
        return url.rstrip("/")
    return f"{parts.scheme}://{_canonical_host(host.rstrip('.'))}:{port}{parts.path.rstrip('/')}"


def host_and_port(url: str) -> str:
    """Return `host:port` of a URL in the spelling of `canonical_url`; empty for text that is not a URL."""
    try:
        return urlsplit(canonical_url(url)).netloc
    except ValueError:
        return ""


def _canonical_host(host: str) -> str:
    if host in _LOOPBACK_NAMES or host.endswith(".localhost"):
        return LOOPBACK
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))  # 127.1 and 2130706433 are 127.0.0.1 too
        except (OSError, ValueError):
            return host
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return LOOPBACK
    return f"[{address}]" if address.version == 6 else str(address)


_PROBE_TIMEOUT = 5.0  # seconds
# A configuration field that only this kind has.
_IDENTIFYING_FIELD = {TargetKind.REFERENCE: "batching", TargetKind.REFERENCE_ROUTER: "weights"}


def detect_kind(access: Access) -> TargetKind:
    """Detect the kind from the configuration page. Raises OperationError without a response or on a refusal."""
    from latdoctor.remediation.admin_api import AdminRequest, json_object, send
    from latdoctor.remediation.change import Deadline

    url = f"{access.target.admin}/admin/config"
    config = json_object(send(AdminRequest("GET", url), access.token, Deadline.after(_PROBE_TIMEOUT)), url)
    return next((kind for kind, field in _IDENTIFYING_FIELD.items() if field in config), TargetKind.UNKNOWN)
