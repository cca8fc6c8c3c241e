"""A fault of a router with an edge tier: the way to the nodes is lost.

    PUT /faults/edge-route {"lifetime": 30}    requests to the nodes get no answer
    DELETE /faults/edge-route                  restores the way

The nodes themselves are well, and their ready pages, which are read on another way, say so: as when a link or a
firewall between two sites swallows the requests. A listening socket that is never read stands for the lost way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from latdoctor.lab.server.admin_http import AdminGuard, read_json
from latdoctor.lab.server.replica_pool import ReplicaPool

_BACKLOG = 1024  # connections that the kernel accepts and nothing reads


class _RouteCommand(Struct, frozen=True, forbid_unknown_fields=True):
    lifetime: Annotated[float, Meta(gt=0, le=3600)] = 60.0  # seconds


def attach(pool: ReplicaPool, token: str) -> Sequence[BaseRoute]:
    """The agent's routes, for callers on this machine that have the token."""
    agent, guard = EdgeRouteAgent(pool), AdminGuard(token)
    return [
        guard.route("PUT", "/faults/edge-route", agent.lose),
        guard.route("DELETE", "/faults/edge-route", agent.restore),
    ]


class EdgeRouteAgent:
    """Used on the router's event loop."""

    def __init__(self, pool: ReplicaPool) -> None:
        self._pool = pool
        self._urls: dict[str, str] = {}  # of the nodes, while the way to them is lost
        self._hole: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def lose(self, request: Request) -> Response:
        command = await read_json(request, _RouteCommand)
        self._stop()
        self._hole = socket.socket()
        self._hole.bind(("127.0.0.1", 0))
        self._hole.listen(_BACKLOG)
        self._urls = {one.name: one.url for one in self._pool.statuses()}
        for name in self._urls:
            self._pool.known(name).url = f"http://127.0.0.1:{self._hole.getsockname()[1]}"
        self._timer = asyncio.get_running_loop().call_later(command.lifetime, self._stop)
        return Response(status_code=204)

    async def restore(self, _: Request) -> Response:
        self._stop()
        return Response(status_code=204)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for name, url in self._urls.items():
            self._pool.known(name).url = url
        if self._hole is not None:
            self._hole.close()
        self._urls, self._hole, self._timer = {}, None, None
