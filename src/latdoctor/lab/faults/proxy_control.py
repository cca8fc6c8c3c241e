"""The fault proxy as a process: its control interface over HTTP, and its start and stop."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.lab.faults.tcp_proxy import FaultProxy
from latdoctor.lab.faults.toxics import Toxic
from latdoctor.lab.http_server import HttpServer, stop_event
from latdoctor.sanitize import clean

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
        authorization = request.headers.get("authorization", "")
        if not hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
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


HOST = "127.0.0.1"


DRAIN_SECONDS = 2.0  # of the control; what passes through the proxy is cut


class ProxyOptions(Struct, frozen=True):
    """Where everything goes, and what the control lets in. Port 0 takes a free one."""

    upstream_host: str
    upstream_port: int
    token: str
    port: int = 0
    control_port: int = 0
    seed: int = 0


def run(options: ProxyOptions, *, announce: Callable[[str], None]) -> None:
    """Passes on until SIGTERM or SIGINT. Raises OperationError where a port cannot be had."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options, announce))


async def _run(options: ProxyOptions, announce: Callable[[str], None]) -> None:
    stop_requested = stop_event()
    proxy = FaultProxy(options.upstream_host, options.upstream_port, seed=options.seed)
    listening = HttpServer(app(proxy, options.token), host=HOST, port=options.control_port, drain_seconds=DRAIN_SECONDS)
    await proxy.start(HOST, options.port)
    try:
        await listening.start()
        announce(f"{HOST}:{proxy.port}")
        announce(listening.url)
        await stop_requested.wait()
        await listening.stop()
    finally:
        await proxy.close()
