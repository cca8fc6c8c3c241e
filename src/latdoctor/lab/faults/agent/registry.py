"""Registry of a server's active disturbances: started, listed and ended over its admin interface."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.lab.faults.agent.disturbances import (
    Disturbance,
    block_loop,
    hold_lock,
    leak,
    pause_for_garbage,
    slow_preprocessing,
    sync_each_request,
)
from latdoctor.lab.faults.agent.knob_changes import names, turned
from latdoctor.lab.faults.agent.memory_disturbances import fragment, hoard
from latdoctor.lab.server import request_parser
from latdoctor.lab.server.inference_server import InferenceServer
from latdoctor.sanitize import clean

DISTURBANCES: Mapping[str, Disturbance] = {
    "loop-block": block_loop,
    "gc-pauses": pause_for_garbage,
    "lock-convoy": hold_lock,
    "slow-preprocess": slow_preprocessing,
    "fsync": sync_each_request,
    "leak": leak,
    "fragment": fragment,
    "hoard": hoard,
}
_KNOBS = re.compile(r"(?=[a-z0-9-]{1,40}$)knobs.*")

T = TypeVar("T")
Lifetime = Annotated[float, Meta(gt=0, le=3600)]  # seconds


class _Disturb(Struct, frozen=True, forbid_unknown_fields=True):
    strength: Annotated[float, Meta(gt=0, le=10_000)] = 1.0
    lifetime: Lifetime = 60.0


class _Turn(Struct, frozen=True, forbid_unknown_fields=True):
    knobs: Annotated[dict[str, dict[str, Any]], Meta(min_length=1)]
    lifetime: Lifetime = 60.0


class ActiveDisturbance(Struct, frozen=True):
    """A disturbance of the moment; `lifetime_left` in seconds."""

    name: str
    lifetime_left: float


def attach(parts: InferenceServer) -> Sequence[BaseRoute]:
    """The agent's routes, behind the server's own admin guard."""
    agent = FaultAgent(parts)
    return [
        Route("/faults", parts.admin.guarded(agent.listing), methods=["GET"]),
        Route("/faults/{name}", parts.admin.guarded(agent.begin), methods=["PUT"]),
        Route("/faults/{name}", parts.admin.guarded(agent.end), methods=["DELETE"]),
    ]


class FaultAgent:
    """What is at work in one server. Used on its event loop; one thing is begun or ended at a time."""

    def __init__(self, parts: InferenceServer) -> None:
        self._parts = parts
        self._running: dict[str, _Running] = {}
        self._changing = asyncio.Lock()

    async def listing(self, _: Request) -> Response:
        now = asyncio.get_running_loop().time()
        found = [ActiveDisturbance(name, max(0.0, self._running[name].until - now)) for name in sorted(self._running)]
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def begin(self, request: Request) -> Response:
        name, content = request.path_params["name"], await request_parser.read(request)
        async with self._changing:
            if _KNOBS.fullmatch(name):
                await self._turn(name, _decoded(content, _Turn))
            elif name in DISTURBANCES:
                command = _decoded(content, _Disturb)
                await self._stop(name)
                await self._start(name, DISTURBANCES[name](self._parts, command.strength), command.lifetime)
            else:
                known = ", ".join(DISTURBANCES)
                raise UsageError(f"there is no disturbance {clean(name, 60)!r}", next_step=f"knobs-…, {known}")
        return Response(status_code=204)

    async def end(self, request: Request) -> Response:
        async with self._changing:
            await self._stop(request.path_params["name"])
        return Response(status_code=204)

    async def _turn(self, name: str, command: _Turn) -> None:
        await self._stop(name)
        held = {place for running in self._running.values() for place in running.knobs}
        fault = turned(self._parts.live_config, command.knobs, held)
        await self._start(name, fault, command.lifetime, names(command.knobs))

    async def _start(
        self,
        name: str,
        fault: AbstractAsyncContextManager[None],
        lifetime: float,
        knobs: Sequence[tuple[str, str]] = (),
    ) -> None:
        running = _Running(fault, lifetime, knobs)
        await running.begin()
        self._running[name] = running
        running.task.add_done_callback(lambda _: self._forget(name, running))

    async def _stop(self, name: str) -> None:
        running = self._running.get(name)
        if running is not None:
            await running.end()

    def _forget(self, name: str, running: _Running) -> None:
        if self._running.get(name) is running:
            del self._running[name]


class _Running:
    """One disturbance in a task of its own, ended on request or after its lifetime."""

    def __init__(
        self, fault: AbstractAsyncContextManager[None], lifetime: float, knobs: Sequence[tuple[str, str]]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.knobs = knobs
        self.until = 0.0  # of the loop's clock
        self._begun: asyncio.Future[None] = loop.create_future()
        self._stop_requested = asyncio.Event()
        self.task = loop.create_task(self._live(fault, lifetime))

    async def begin(self) -> None:
        """Returns once it is at work. Raises what its beginning raised."""
        await asyncio.wait((self._begun, self.task), return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            self.task.result()

    async def end(self) -> None:
        """Returns once all is as it was. Raises what its ending raised."""
        self._stop_requested.set()
        await self.task

    async def _live(self, fault: AbstractAsyncContextManager[None], lifetime: float) -> None:
        async with fault:
            self.until = asyncio.get_running_loop().time() + lifetime
            self._begun.set_result(None)
            try:
                async with asyncio.timeout(lifetime):
                    await self._stop_requested.wait()
            except TimeoutError:
                pass


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except UNDECODABLE as error:
        raise UsageError(f"not a valid fault: {clean(str(error), 300)}") from error
