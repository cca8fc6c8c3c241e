"""Faults of a router that was started with `--fault-agent`: uneven weights, a bad canary, and a replica that is lost.

    PUT /faults/weights {"weights": {"0": 9, "1": 1}, "lifetime": 30}    balances by these weights
    DELETE /faults/weights                                               restores the previous ones
    PUT /faults/canary {"version": "v2+8", "share": 0.2, "lifetime": 30}  a canary of that version of the model
    DELETE /faults/canary                                                ends it
    PUT /faults/kill {"replica": "1"}                                    SIGKILL; the supervisor replaces it
    GET /faults                                                          the names of the active ones

The previous weights are restored after the lifetime, except those that another client has changed since; a canary that
another client has promoted or rolled back stays so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from latdoctor.lab.server.admin_http import AdminGuard, json_response, read_json
from latdoctor.lab.server.load_balancing import Policy, RouterConfig, Weight
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.router_admin import replica_errors
from latdoctor.lab.server.supervisor import Supervisor
from latdoctor.lab.server.versions.version_rollout import VersionRollout


class _WeightsCommand(Struct, frozen=True, forbid_unknown_fields=True):
    weights: Annotated[dict[str, Weight], Meta(min_length=1)]
    lifetime: Annotated[float, Meta(gt=0, le=3600)] = 60.0  # seconds


class _CanaryCommand(Struct, frozen=True, forbid_unknown_fields=True):
    version: Annotated[str, Meta(min_length=1, max_length=40)]
    share: Annotated[float, Meta(gt=0, le=1)] = 0.1
    lifetime: Annotated[float, Meta(gt=0, le=3600)] = 60.0  # seconds


class _KillCommand(Struct, frozen=True, forbid_unknown_fields=True):
    replica: str


def attach(pool: ReplicaPool, supervisor: Supervisor, token: str) -> Sequence[BaseRoute]:
    """The agent's routes, for callers on this machine that have the token."""
    agent, guard = RouterAgent(pool, supervisor, VersionRollout(pool, token)), AdminGuard(token)
    return [
        guard.route("GET", "/faults", agent.listing),
        guard.route("PUT", "/faults/weights", agent.set_weights),
        guard.route("DELETE", "/faults/weights", agent.restore),
        guard.route("PUT", "/faults/canary", agent.start_canary),
        guard.route("DELETE", "/faults/canary", agent.end_canary),
        guard.route("PUT", "/faults/kill", agent.kill),
    ]


class RouterAgent:
    """The active faults of one router. Used on its event loop."""

    def __init__(self, pool: ReplicaPool, supervisor: Supervisor, rollout: VersionRollout) -> None:
        self._pool = pool
        self._supervisor = supervisor
        self._rollout = rollout
        self._canary = ""  # its version
        self._canary_end: asyncio.Task[None] | None = None
        self._configs: tuple[RouterConfig, RouterConfig] | None = None  # before and during the injected weights
        self._timer: asyncio.TimerHandle | None = None

    async def listing(self, _: Request) -> Response:
        return json_response([*(["weights"] if self._configs else []), *(["canary"] if self._canary else [])])

    async def set_weights(self, request: Request) -> Response:
        command = await read_json(request, _WeightsCommand)
        self._stop()
        before = self._pool.config
        weights = {**before.weights, **command.weights}
        self._pool.configure(msgspec.structs.replace(before, policy=Policy.WEIGHTED, weights=weights))
        self._configs = before, self._pool.config
        self._timer = asyncio.get_running_loop().call_later(command.lifetime, self._stop)
        return Response(status_code=204)

    async def restore(self, _: Request) -> Response:
        self._stop()
        return Response(status_code=204)

    async def start_canary(self, request: Request) -> Response:
        command = await read_json(request, _CanaryCommand)
        await self._stop_canary()
        async with self._rollout.lock:
            config = self._pool.config
            knobs = {"canary_version": command.version, "canary_share": command.share, "canary_judge": False}
            await self._rollout.apply(msgspec.structs.replace(config, **knobs))
        self._canary = command.version
        self._canary_end = asyncio.create_task(self._end_canary_after(command.lifetime))
        return Response(status_code=204)

    async def end_canary(self, _: Request) -> Response:
        await self._stop_canary()
        return Response(status_code=204)

    async def _end_canary_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._canary_end = None  # so that it does not cancel itself
        await self._stop_canary()

    async def _stop_canary(self) -> None:
        if self._canary_end is not None:
            self._canary_end.cancel()
        version, self._canary, self._canary_end = self._canary, "", None
        async with self._rollout.lock:
            if version and self._pool.config.canary_version == version:
                await self._rollout.apply(msgspec.structs.replace(self._pool.config, canary_version=""))

    async def kill(self, request: Request) -> Response:
        command = await read_json(request, _KillCommand)
        with replica_errors():
            self._supervisor.kill(command.replica)
        return Response(status_code=204)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._configs is not None:
            before, during = self._configs
            self._pool.configure(restore_weights(self._pool.config, during, before))
        self._configs = self._timer = None


def restore_weights(now: RouterConfig, during: RouterConfig, before: RouterConfig) -> RouterConfig:
    """`now` with the change from `before` to `during` reverted, and later changes kept."""
    weights = dict(now.weights)
    for name, weight in during.weights.items():
        if weights.get(name) == weight:
            del weights[name]
            if name in before.weights:
                weights[name] = before.weights[name]
    policy = before.policy if now.policy == during.policy else now.policy
    return msgspec.structs.replace(now, policy=policy, weights=weights)
