"""Faults of a router that was started with `--fault-agent`: uneven weights, and a replica that is lost.

    PUT /faults/weights {"weights": {"0": 9, "1": 1}, "lifetime": 30}    balances by these weights
    DELETE /faults/weights                                               takes them back
    PUT /faults/kill {"replica": "1"}                                    SIGKILL; the supervisor replaces it
    GET /faults                                                          the names of those at work

The previous weights are restored after the lifetime, except those that another client has changed since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.router_admin import guarded, read_json
from latdoctor.lab.server.router_config import RouterConfig, Weight
from latdoctor.lab.server.supervisor import Supervisor
from latdoctor.sanitize import clean


class _Weights(Struct, frozen=True, forbid_unknown_fields=True):
    weights: Annotated[dict[str, Weight], Meta(min_length=1)]
    lifetime: Annotated[float, Meta(gt=0, le=3600)] = 60.0  # seconds


class _Kill(Struct, frozen=True, forbid_unknown_fields=True):
    replica: str


def attach(pool: ReplicaPool, supervisor: Supervisor, token: str) -> Sequence[BaseRoute]:
    """The agent's routes, for callers on this machine that know the token."""
    agent = RouterAgent(pool, supervisor)
    return [
        Route("/faults", guarded(agent.listing, token), methods=["GET"]),
        Route("/faults/weights", guarded(agent.weigh, token), methods=["PUT"]),
        Route("/faults/weights", guarded(agent.unweigh, token), methods=["DELETE"]),
        Route("/faults/kill", guarded(agent.kill, token), methods=["PUT"]),
    ]


class RouterAgent:
    """What is at work in one router. Used on its event loop."""

    def __init__(self, pool: ReplicaPool, supervisor: Supervisor) -> None:
        self._pool = pool
        self._supervisor = supervisor
        self._before: RouterConfig | None = None  # of the weights at work
        self._during: RouterConfig | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def listing(self, _: Request) -> Response:
        at_work = ["weights"] if self._during else []
        return Response(msgspec.json.encode(at_work), media_type="application/json")

    async def weigh(self, request: Request) -> Response:
        command = await read_json(request, _Weights)
        self._stop()
        before = self._pool.config
        weights = {**before.weights, **command.weights}
        during = msgspec.structs.replace(before, policy="weighted", weights=weights)
        try:
            self._pool.configure(during)
        except UsageError as error:
            raise BadRequest(422, "invalid", clean(str(error), 300)) from error
        self._before, self._during = before, self._pool.config
        self._timer = asyncio.get_running_loop().call_later(command.lifetime, self._stop)
        return Response(status_code=204)

    async def unweigh(self, _: Request) -> Response:
        self._stop()
        return Response(status_code=204)

    async def kill(self, request: Request) -> Response:
        command = await read_json(request, _Kill)
        try:
            self._supervisor.kill(command.replica)
        except UsageError as error:
            raise BadRequest(404, "unknown-replica", clean(str(error), 300)) from error
        except OperationError as error:
            raise BadRequest(409, "no-process", clean(str(error), 300)) from error
        return Response(status_code=204)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._before is not None and self._during is not None:
            self._pool.configure(restore_weights(self._pool.config, self._during, self._before))
        self._before = self._during = self._timer = None


def restore_weights(now: RouterConfig, during: RouterConfig, before: RouterConfig) -> RouterConfig:
    """`now` with what the step from `before` to `during` has changed changed back, and nothing that came after it."""
    weights = dict(now.weights)
    for name, weight in during.weights.items():
        if weights.get(name) == weight:
            del weights[name]
            if name in before.weights:
                weights[name] = before.weights[name]
    policy = before.policy if now.policy == during.policy else now.policy
    return msgspec.structs.replace(now, policy=policy, weights=weights)
