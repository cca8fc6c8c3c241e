"""The router's admin interface: live configuration and replica replacement. This machine and token only.

`GET /admin/config` returns the configuration and its ETag; `PATCH /admin/config` takes a merge patch (RFC 7396) and
requires that ETag in If-Match (`*` matches any), so that concurrent changes are not lost. An ETag is never reused. A
weight of null resets it to 1. A change of `model_version`, `canary_version` or `canary_replicas` returns when the
replicas have their versions (`version_rollout`); `GET /admin/canary` compares both. `GET /admin/replicas` has an ETag
of its own, which changes whenever a process starts: with it in If-Match, a repeated
`POST /admin/replicas/NAME/replace` does not replace twice. `GET /admin/scale` returns how many replicas there should
be; `PUT /admin/scale` sets it, with the ETag in If-Match.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server.admin_http import AdminGuard, json_response, read_json
from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.load_balancing import digest, patched_router_config
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.supervisor import Supervisor
from latdoctor.lab.server.versions.canary_controller import CanaryController
from latdoctor.lab.server.versions.probe_set import read_probe_set
from latdoctor.lab.server.versions.version_rollout import VersionRollout
from latdoctor.sanitize import clean


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """How many replicas there should be."""

    replicas: int


def routes(
    pool: ReplicaPool,
    supervisor: Supervisor | None,
    token: str,
    rollout: VersionRollout | None = None,
    canary: CanaryController | None = None,
) -> list[BaseRoute]:
    """The admin routes. Without a token every request is refused; without a supervisor replacement is refused."""
    guard = AdminGuard(token)
    routes = [
        *_config_routes(pool, rollout or VersionRollout(pool, token), guard),
        *_replica_routes(pool, supervisor, guard),
        *_scale_routes(pool, supervisor, guard),
    ]
    if canary is not None:

        async def show(_: Request) -> Response:
            return json_response(canary.status())

        routes.append(guard.route("GET", "/admin/canary", show))
    return routes


def _config_routes(pool: ReplicaPool, rollout: VersionRollout, guard: AdminGuard) -> list[BaseRoute]:
    start_id = secrets.token_hex(4)

    def etag() -> str:
        """Never reused after a change, even if the configuration is the same as before."""
        return f"{digest(pool.config)}-{start_id}-{pool.changes}"

    async def show(_: Request) -> Response:
        async with rollout.lock:  # a change in progress is shown when it is complete
            return json_response(pool.config, etag=etag())

    async def patch(request: Request) -> Response:
        expected = _if_match(request)
        body = await read_json(request, dict[str, Any])
        async with rollout.lock:
            if expected not in ("*", etag()):
                raise BadRequest(412, "changed", "the configuration has changed since; read it again")
            config = patched_router_config(pool.config, body)
            if config.probe_set != pool.config.probe_set and config.probe_set:
                await asyncio.to_thread(read_probe_set, Path(config.probe_set))  # so that a bad one is refused
            await rollout.apply(config)
            return json_response(pool.config, etag=etag())

    return [guard.route("GET", "/admin/config", show), guard.route("PATCH", "/admin/config", patch)]


def _replica_routes(pool: ReplicaPool, supervisor: Supervisor | None, guard: AdminGuard) -> list[BaseRoute]:
    start_id = secrets.token_hex(8)  # the counts start anew with each router

    def etag() -> str:
        return digest((start_id, [(one.name, one.starts) for one in pool.statuses()]))

    async def replicas(_: Request) -> Response:
        return json_response(pool.statuses(), etag=etag())

    async def replace(request: Request) -> Response:
        if supervisor is None:
            raise BadRequest(409, "not-supervised", "this router does not start its replicas")
        if "if-match" in request.headers and _if_match(request) not in ("*", etag()):
            raise BadRequest(412, "changed", "a replica was started since; read the replicas again")
        with replica_errors():
            await supervisor.replace(request.path_params["name"])
        return json_response(pool.statuses(), etag=etag())

    return [
        guard.route("GET", "/admin/replicas", replicas),
        guard.route("POST", "/admin/replicas/{name}/replace", replace),
    ]


def _scale_routes(pool: ReplicaPool, supervisor: Supervisor | None, guard: AdminGuard) -> list[BaseRoute]:
    start_id, changes = secrets.token_hex(8), 0

    def supervised() -> Supervisor:
        if supervisor is None:
            raise BadRequest(409, "not-supervised", "this router does not start its replicas")
        return supervisor

    def etag() -> str:
        """Never reused, even if the number is the same as before."""
        return f"{start_id}-{changes}"

    async def show(_: Request) -> Response:
        return json_response(Scale(supervised().replicas), etag=etag())

    async def put(request: Request) -> Response:
        nonlocal changes
        expected = _if_match(request)
        body = await read_json(request, Scale)
        # No await from here on, so no other change can come between.
        if expected not in ("*", etag()):
            raise BadRequest(412, "changed", "the number of replicas was set since; read it again")
        if pool.config.canary_version or pool.changing.locked():  # its replicas are the last ones, which come and go
            raise BadRequest(409, "rollout", "versions are being changed; promote the canary or end it first")
        supervised().scale(body.replicas)
        changes += 1
        return json_response(Scale(supervised().replicas), etag=etag())

    return [guard.route("GET", "/admin/scale", show), guard.route("PUT", "/admin/scale", put)]


@contextmanager
def replica_errors() -> Iterator[None]:
    """The supervisor's errors as responses: 404 for an unknown replica, 409 for one without a process."""
    try:
        yield
    except UsageError as error:
        raise BadRequest(404, "unknown-replica", clean(str(error), 300)) from error
    except OperationError as error:
        raise BadRequest(409, "no-process", clean(str(error), 300)) from error


def _if_match(request: Request) -> str:
    etag = request.headers.get("if-match")
    if etag is None:
        raise BadRequest(428, "if-match-needed", "say which configuration you mean to change: If-Match with its ETag")
    return etag.strip().strip('"')
