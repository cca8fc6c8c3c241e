"""Admission of a webhook request by its head: path, method, web pages, credentials, media type and length."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import h11

from latdoctor.http.cross_site import JSON, CrossSite, HostNames, cross_site, is_json
from latdoctor.http.server_tls import ServerTls
from latdoctor.incident.alertmanager import MAX_BYTES
from latdoctor.sanitize import clean

PATH: Final = "/alerts"
HEALTH: Final = "/healthz"
_METHODS: Final = {PATH: ("POST",), HEALTH: ("GET", "HEAD")}


@dataclass(frozen=True, slots=True)
class Access:
    """Who may send notifications, and by which names. `authorization`: required credentials; empty: none."""

    authorization: str = field(default="", repr=False)
    hosts: HostNames = field(default_factory=HostNames)
    tls: ServerTls | None = None

    @property
    def requires_credentials(self) -> bool:
        by_certificate = self.tls is not None and self.tls.requires_certificate
        return bool(self.authorization) or by_certificate


@dataclass(frozen=True, slots=True)
class Response:
    """Status, text and additional headers. `logged`: what the log says of it, with the `next_step`; empty: nothing."""

    status: HTTPStatus
    text: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    logged: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A notification whose body of `length` bytes may be read."""

    length: int


def admission(request: h11.Request, access: Access) -> Admitted | Response:
    """Admit a notification by its head, or return the response to it; credentials are checked before the body."""
    method, target = request.method.decode("latin-1"), request.target.decode("latin-1")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
    foreign = cross_site(headers, access.hosts)
    if foreign is not None:
        return _foreign(foreign, headers)
    if target not in _METHODS:
        return Response(HTTPStatus.NOT_FOUND, f"there is {PATH} and {HEALTH}")
    if method not in _METHODS[target]:
        allowed = ", ".join(_METHODS[target])
        return Response(HTTPStatus.METHOD_NOT_ALLOWED, f"{allowed} only", (("Allow", allowed),))
    if target == HEALTH:
        return Response(HTTPStatus.NO_CONTENT)
    given = [value.decode("latin-1") for name, value in request.headers if name == b"authorization"]
    if not _authorized(given, access.authorization):
        return _unauthorized(has_token=any(one.strip() for one in given))
    if not is_json(headers.get("content-type", "")):
        return Response(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type must be {JSON}",
            logged=f"its Content-Type is not {JSON}",
            next_step=f"send Alertmanager notifications, or set the header Content-Type: {JSON}",
        )
    return _sized(headers)


def _foreign(why: CrossSite, headers: Mapping[str, str]) -> Response:
    host = clean(headers.get("host", ""), 100)
    if why is CrossSite.HOST:
        return Response(
            HTTPStatus.MISDIRECTED_REQUEST,
            "this listener does not have that host name",
            logged=f"it is addressed to the host {host!r}",
            next_step="if that is a name of this listener, pass it with --host-name",
        )
    return Response(
        HTTPStatus.FORBIDDEN,
        "requests of web pages are refused",
        logged=f"a web page sent it (Origin {clean(headers.get('origin', 'absent'), 100)!r})",
        next_step="close that page: it tries to reach services of this machine",
    )


def _unauthorized(*, has_token: bool) -> Response:
    """The token is never logged: it may be a secret elsewhere."""
    return Response(
        HTTPStatus.UNAUTHORIZED,
        "send this listener's token",
        (("WWW-Authenticate", "Bearer"),),
        logged="the token is not the one of this listener" if has_token else "it has no token",
        next_step="compare its credentials with --auth-file",
    )


def _authorized(given: list[str], required: str) -> bool:
    if not required:
        return True
    if len(given) != 1:
        return False
    scheme, _, secret = given[0].strip().partition(" ")
    return hmac.compare_digest(_digest(f"{scheme.capitalize()} {secret.strip()}"), _digest(required))


def _digest(authorization: str) -> bytes:
    """Digest for a constant-time comparison that reveals nothing of a secret, not even its length."""
    return hashlib.sha256(authorization.encode("utf-8", "surrogateescape")).digest()


def _sized(headers: Mapping[str, str]) -> Admitted | Response:
    """h11 has refused lengths that are not numbers, or contradict one another."""
    if "content-length" not in headers or "transfer-encoding" in headers:
        return Response(HTTPStatus.LENGTH_REQUIRED, "Content-Length is required")
    length = int(headers["content-length"])
    if length > MAX_BYTES:
        return Response(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"more than {MAX_BYTES} bytes are not read",
            logged=f"it has {length} bytes, more than {MAX_BYTES}",
            next_step="limit max_alerts in the webhook_config",
        )
    return Admitted(length)
