"""The processes of an edge tier beside the router's replicas, and their page of the admin interface.

`GET /admin/edge` returns the nodes as `GET /admin/replicas` does the replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from latdoctor.lab.server.admin_http import AdminGuard, json_response
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.supervisor import ReplicaCommand, Supervisor, SupervisorTimeouts

# Extension with faults of the edge tier; its routes require the token.
EdgeAgent = Callable[[ReplicaPool, str], Sequence[BaseRoute]]


class EdgeGroup:
    """The nodes of one router. Used on its event loop."""

    def __init__(self, commands: Sequence[ReplicaCommand], timeouts: SupervisorTimeouts) -> None:
        self.pool = ReplicaPool({command.name: command.url for command in commands})
        self.supervisor = Supervisor(self.pool, commands, timeouts)

    def routes(self, token: str, agent: EdgeAgent | None) -> Sequence[BaseRoute]:
        guard = AdminGuard(token)

        async def show(_: Request) -> Response:
            return json_response(self.pool.statuses())

        return [guard.route("GET", "/admin/edge", show), *(agent(self.pool, token) if agent else ())]
