"""The router's admin interface: live configuration and replica replacement. Loopback and token only.

`GET /admin/config` returns the configuration and its ETag; `PATCH /admin/config` takes a merge patch (RFC 7396) and
requires that ETag in If-Match (`*` matches any), so that concurrent changes are not lost. An ETag is never reused. A
weight of null resets it to 1. `GET /admin/replicas` has an ETag of its own, which changes whenever a process starts:
with it in If-Match, a repeated `POST /admin/replicas/NAME/replace` does not replace twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server.admin import AdminGuard
from latdoctor.lab.server.errors import BadRequest, RequestRefused
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.router_config import _digest, etag, patched_router_config
from latdoctor.lab.server.supervisor import Supervisor
from latdoctor.sanitize import clean

Handler = Callable[[Request], Awaitable[Response]]
Kind = TypeVar("Kind")
MAX_PATCH_BYTES = 64 * 1024


def routes(pool: ReplicaPool, supervisor: Supervisor | None, token: str) -> list[BaseRoute]:
    """The admin routes. Without a token every request is refused; without a supervisor replacement is refused."""
    return [*_knobs(pool, token), *_replicas(pool, supervisor, token)]


def _knobs(pool: ReplicaPool, token: str) -> list[BaseRoute]:
    start_id, turns = secrets.token_hex(4), 0

    def tag() -> str:
        """Never the same again after a change, also where the configuration is."""
        return f"{etag(pool.config)}-{start_id}-{turns}"

    async def show(_: Request) -> Response:
        return _json(pool.config, etag=f'"{tag()}"')

    async def patch(request: Request) -> Response:
        nonlocal turns
        etag = _if_match(request)
        changes = await read_json(request, dict[str, Any])
        # Nothing is awaited from here on: no other change can come between.
        if etag not in ("*", tag()):
            raise BadRequest(412, "changed", "the configuration has changed since; read it again")
        try:
            pool.configure(patched_router_config(pool.config, changes))
        except UsageError as error:
            raise BadRequest(422, "invalid", clean(str(error), 300)) from error
        turns += 1
        return _json(pool.config, etag=f'"{tag()}"')

    return [
        Route("/admin/config", guarded(show, token), methods=["GET"]),
        Route("/admin/config", guarded(patch, token), methods=["PATCH"]),
    ]


def _replicas(pool: ReplicaPool, supervisor: Supervisor | None, token: str) -> list[BaseRoute]:
    start_id = secrets.token_hex(8)  # what an earlier router counted is not counted on

    def statuses() -> Response:
        shown = pool.statuses()
        tag = _digest((start_id, [(one.name, one.starts) for one in shown]))
        return _json(shown, etag=f'"{tag}"')

    async def replicas(_: Request) -> Response:
        return statuses()

    async def replace(request: Request) -> Response:
        if supervisor is None:
            raise BadRequest(409, "not-supervised", "this router does not start its replicas")
        if "if-match" in request.headers and _if_match(request) not in ("*", statuses().headers["etag"].strip('"')):
            raise BadRequest(412, "changed", "a replica was started since; read the replicas again")
        try:
            await supervisor.replace(request.path_params["name"])
        except UsageError as error:
            raise BadRequest(404, "unknown-replica", clean(str(error), 300)) from error
        except OperationError as error:
            raise BadRequest(409, "no-process", clean(str(error), 300)) from error
        return statuses()

    return [
        Route("/admin/replicas", guarded(replicas, token), methods=["GET"]),
        Route("/admin/replicas/{name}/replace", guarded(replace, token), methods=["POST"]),
    ]


def guarded(handler: Handler, token: str) -> Handler:
    """`handler` behind the admin guard, with refusals as JSON responses."""
    guard = AdminGuard(token)

    async def guarded(request: Request) -> Response:
        try:
            guard.check(request)
            return await handler(request)
        except RequestRefused as refused:
            return Response(refused.body, refused.status, refused.headers, media_type="application/json")

    return guarded


def _if_match(request: Request) -> str:
    etag = request.headers.get("if-match")
    if etag is None:
        raise BadRequest(428, "if-match-needed", "say which configuration you mean to change: If-Match with its ETag")
    return etag.strip().strip('"')


async def read_json(request: Request, kind: type[Kind]) -> Kind:
    """The body as a value of that type. Raises BadRequest: 413 too large, 400 not JSON, 422 not of that kind."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_PATCH_BYTES:
            raise BadRequest(413, "too-large", f"a body may have {MAX_PATCH_BYTES} bytes", close=True)
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except msgspec.ValidationError as error:
        raise BadRequest(422, "invalid", clean(str(error), 300)) from error
    except UNDECODABLE as error:
        raise BadRequest(400, "malformed", "the body is not JSON") from error


def _json(value: Any, **headers: str) -> Response:
    return Response(msgspec.json.encode(value), 200, headers, media_type="application/json")
