"""The proxy's toxics from another process: an HTTP interface for this machine only, behind a token.

`GET /toxics` · `POST /toxics` with a toxic as JSON · `DELETE /toxics/NAME` · `GET /traffic`.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.lab.faults.proxy import FaultProxy
from latdoctor.lab.faults.toxics import Toxic
from latdoctor.text import clean

Handler = Callable[[Request], Awaitable[Response]]
MAX_BODY_BYTES = 16 * 1024


def app(proxy: FaultProxy, token: str) -> Starlette:
    """The interface as an ASGI application, to be served on loopback. Raises UsageError without a token."""
    if not token:
        raise UsageError("the proxy's control needs a token")
    control = _Control(proxy)
    return Starlette(
        routes=[
            Route("/toxics", _guarded(control.show, token), methods=["GET"]),
            Route("/toxics", _guarded(control.add, token), methods=["POST"]),
            Route("/toxics/{name}", _guarded(control.remove, token), methods=["DELETE"]),
            Route("/traffic", _guarded(control.traffic, token), methods=["GET"]),
        ]
    )


class _Control:
    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    async def show(self, _: Request) -> Response:
        return _json(self._proxy.toxics.active())

    async def add(self, request: Request) -> Response:
        body = await _body(request)
        try:
            added = self._proxy.toxics.add(msgspec.json.decode(body, type=Toxic))
        except (*UNDECODABLE, UsageError) as error:
            return _error(422, "invalid", clean(str(error), 300))
        return _json(added, 201)

    async def remove(self, request: Request) -> Response:
        if not self._proxy.toxics.remove(request.path_params["name"]):
            return _error(404, "unknown-toxic", "no toxic of that name is in force")
        return Response(status_code=204)

    async def traffic(self, _: Request) -> Response:
        return _json(self._proxy.traffic())


def _guarded(handler: Handler, token: str) -> Handler:
    async def guarded(request: Request) -> Response:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return _error(401, "wrong-token", "the token is missing or wrong")
        return await handler(request)

    return guarded


async def _body(request: Request) -> bytes:
    """The body; one over the limit is cut, and then is no JSON."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            break
    return bytes(body[:MAX_BODY_BYTES])


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(status: int, error: str, detail: str) -> Response:
    return _json({"error": error, "detail": detail}, status)
