"""What the admin interfaces of server, router and fault agents share: token, guard, ETags, bodies, JSON responses."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.http.cross_site import JSON, CrossSite, HostNames, cross_site, is_json
from latdoctor.http.safe_address import is_loopback
from latdoctor.lab.server import intent_request
from latdoctor.lab.server.errors import CLIENT_GONE, AdminConflict, BadRequest, RequestRefused
from latdoctor.lab.server.idempotency import Handler, IdempotencyKeys
from latdoctor.regular_file import read_regular
from latdoctor.sanitize import clean

ADMIN_TOKEN_VARIABLE = "LATDOCTOR_ADMIN_TOKEN"  # noqa: S105 - the name of the variable
MIN_TOKEN_LENGTH = 8
MAX_TOKEN_BYTES = 4096

T = TypeVar("T")


def admin_token(file: Path | None) -> str:
    """The token in `file`, else in the environment; empty if there is none: every request is then refused.

    Raises UsageError for a file that cannot be read, or a token of less than eight characters.
    """
    token = os.environ.get(ADMIN_TOKEN_VARIABLE, "").strip()
    if file is not None:
        try:
            raw = read_regular(file, MAX_TOKEN_BYTES)
            token = raw.decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("the admin token cannot be read", where=str(file)) from error
        if not token or len(raw) > MAX_TOKEN_BYTES:
            what = "empty" if not token else f"longer than {MAX_TOKEN_BYTES} bytes"
            raise UsageError(f"the file of the admin token is {what}", where=str(file))
    if token and (len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"the admin token is shorter than {MIN_TOKEN_LENGTH} characters or not plain text",
            where=str(file or ADMIN_TOKEN_VARIABLE),
            next_step="openssl rand -hex 16",
        )
    return token


class AdminGuard:
    """Admits requests from this machine with the token, and turns errors of the handlers into JSON responses.

    Every response carries `Instance-Id`, which is another one after each start of the server: a client that compares
    it knows whether a value that it has set may have been read from the configuration since. A change with an
    `Idempotency-Key` is applied once.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._instance = secrets.token_hex(8)
        self._keys = IdempotencyKeys()

    def check(self, request: Request) -> None:
        """Raises RequestRefused: 403 from another machine, for a web page or without a token set, 401 for a wrong one,
        415 for a body that is not JSON, 421 for a host name that is not of the loopback interface.
        """
        _check_local(request)
        _check_cross_site(request)
        if not self._token:
            raise RequestRefused(
                403, "no-token", f"the server was started without an admin token ({ADMIN_TOKEN_VARIABLE})"
            )
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token):
            raise RequestRefused(401, "wrong-token", "send the admin token as `Authorization: Bearer TOKEN`")
        if _has_body(request) and not is_json(request.headers.get("content-type", "")):
            raise RequestRefused(415, "not-json", f"Content-Type must be {JSON}")

    def route(self, method: str, path: str, handler: Handler) -> BaseRoute:
        """A route to `handler` behind the guard."""

        async def answer(request: Request) -> Response:
            try:
                self.check(request)
                response = await (handler(request) if method == "GET" else self._keys.respond(request, handler))
            except ClientDisconnect:
                return Response(status_code=CLIENT_GONE)
            except LatdoctorError as error:
                response = _refused(error).response()
            response.headers["instance-id"] = self._instance
            return response

        return Route(path, answer, methods=[method])


_FORWARDED = ("forwarded", "x-forwarded-for")


def _check_local(request: Request) -> None:
    """The address is that of the connection: a client can write any into a header.

    A proxy on this machine that names its client forwards for another one, so its requests are not local.
    """
    forwarded = any(name in request.headers for name in _FORWARDED)
    if forwarded or request.client is None or not is_loopback(request.client.host):
        raise RequestRefused(403, "not-local", "the admin interface answers this machine only")


def _check_cross_site(request: Request) -> None:
    match cross_site(request.headers, HostNames.of("localhost", [socket.gethostname()])):
        case CrossSite.HOST:
            raise RequestRefused(421, "wrong-host", "address the admin interface as localhost")
        case CrossSite.PAGE:
            raise RequestRefused(403, "web-page", "requests of web pages are refused")
        case None:
            return


def _has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _refused(error: LatdoctorError) -> RequestRefused:
    match error:
        case RequestRefused():
            return error
        case UsageError():
            return RequestRefused(422, "invalid", str(error))
        case AdminConflict():
            return RequestRefused(error.status, error.reason, str(error))
        case _:
            return RequestRefused(AdminConflict.status, AdminConflict.reason, str(error))


def if_match(request: Request) -> frozenset[str]:
    """The ETags that a change names; `*` is any. Raises RequestRefused without any."""
    header = request.headers.get("if-match")
    if header is None:
        raise RequestRefused(428, "precondition-required", "send the ETag that you have read as If-Match")
    return frozenset(tag.strip().removeprefix("W/").strip('"') for tag in header.split(","))


async def read_json(request: Request, kind: type[T]) -> T:
    """The body as a value of that type. Raises BadRequest: 413 too large, 400 not JSON, 422 not of that type."""
    raw = await intent_request.read(request)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise BadRequest(422, "invalid", clean(str(error), 300)) from error
    except UNDECODABLE as error:
        raise BadRequest(400, "malformed", "the body is not JSON") from error


def json_response(value: Any, *, etag: str = "", status: int = 200) -> Response:
    """`value` as JSON, with its ETag where there is one."""
    headers = {"etag": f'"{etag}"'} if etag else None
    return Response(msgspec.json.encode(value), status, headers, "application/json")
