"""The fault agent: real disturbances inside a server that was started with `--fault-agent`.

    PUT /faults/NAME {"strength": 1.0, "lifetime": 30}               starts a disturbance, or restarts it
    PUT /faults/knobs-1 {"knobs": {"group": {…}}, "lifetime": 30}    changes live knobs; any name that begins with knobs
    DELETE /faults/NAME                                               ends it
    GET /faults                                                       the active ones, and the rest of their lifetimes

Each ends by itself after its lifetime. None of them shows on the metrics page, except by its effect.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.faults.disturbances import DISTURBANCES
from latdoctor.lab.server import intent_request
from latdoctor.lab.server.admin_http import json_response
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.errors import StaleEtag
from latdoctor.lab.server.inference_server import InferenceServer
from latdoctor.lab.server.live_config import LiveConfig
from latdoctor.sanitize import clean

_KNOBS = re.compile(r"(?=[a-z0-9-]{1,40}$)knobs.*")
_ATTEMPTS = 10  # of a change that conflicts with another client's

T = TypeVar("T")
Lifetime = Annotated[float, Meta(gt=0, le=3600)]  # seconds
Knob = tuple[str, str]  # group, knob
Patch = Mapping[str, Mapping[str, Any]]


class _DisturbanceCommand(Struct, frozen=True, forbid_unknown_fields=True):
    strength: Annotated[float, Meta(gt=0, le=10_000)] = 1.0
    lifetime: Lifetime = 60.0


class _KnobsCommand(Struct, frozen=True, forbid_unknown_fields=True):
    knobs: Annotated[dict[str, dict[str, Any]], Meta(min_length=1)]
    lifetime: Lifetime = 60.0


class ActiveDisturbance(Struct, frozen=True):
    """An active disturbance; `lifetime_left` in seconds."""

    name: str
    lifetime_left: float


def attach(server: InferenceServer) -> Sequence[BaseRoute]:
    """The agent's routes, behind the server's own admin guard."""
    agent = FaultAgent(server)
    return [
        server.guard.route("GET", "/faults", agent.listing),
        server.guard.route("PUT", "/faults/{name}", agent.begin),
        server.guard.route("DELETE", "/faults/{name}", agent.end),
    ]


class FaultAgent:
    """The active disturbances of one server. Used on its event loop; starts or ends one at a time."""

    def __init__(self, server: InferenceServer) -> None:
        self._server = server
        self._running: dict[str, _Running] = {}
        self._changing = asyncio.Lock()

    async def listing(self, _: Request) -> Response:
        now = asyncio.get_running_loop().time()
        running = sorted(self._running.items())
        return json_response([ActiveDisturbance(name, max(0.0, one.until - now)) for name, one in running])

    async def begin(self, request: Request) -> Response:
        name, content = request.path_params["name"], await intent_request.read(request)
        async with self._changing:
            if _KNOBS.fullmatch(name):
                await self._change_knobs(name, _decoded(content, _KnobsCommand))
            elif name in DISTURBANCES:
                command = _decoded(content, _DisturbanceCommand)
                await self._stop(name)
                await self._start(name, DISTURBANCES[name](self._server, command.strength), command.lifetime)
            else:
                known = ", ".join(DISTURBANCES)
                raise UsageError(f"there is no disturbance {clean(name, 60)!r}", next_step=f"knobs-…, {known}")
        return Response(status_code=204)

    async def end(self, request: Request) -> Response:
        async with self._changing:
            await self._stop(request.path_params["name"])
        return Response(status_code=204)

    async def _change_knobs(self, name: str, command: _KnobsCommand) -> None:
        await self._stop(name)
        in_use = {knob for running in self._running.values() for knob in running.knobs}
        fault = changed_knobs(self._server.live_config, command.knobs, in_use)
        await self._start(name, fault, command.lifetime, _names(command.knobs))

    async def _start(
        self, name: str, fault: AbstractAsyncContextManager[None], lifetime: float, knobs: Sequence[Knob] = ()
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

    def __init__(self, fault: AbstractAsyncContextManager[None], lifetime: float, knobs: Sequence[Knob]) -> None:
        loop = asyncio.get_running_loop()
        self.knobs = knobs
        self.until = 0.0  # of the loop's clock
        self._begun: asyncio.Future[None] = loop.create_future()
        self._stop_requested = asyncio.Event()
        self.task = loop.create_task(self._run(fault, lifetime))

    async def begin(self) -> None:
        """Returns once it is active. Raises what its start raised."""
        await asyncio.wait((self._begun, self.task), return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            self.task.result()

    async def end(self) -> None:
        """Returns once everything is as before. Raises what its end raised."""
        self._stop_requested.set()
        await self.task

    async def _run(self, fault: AbstractAsyncContextManager[None], lifetime: float) -> None:
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


@asynccontextmanager
async def changed_knobs(live_config: LiveConfig, knobs: Patch, in_use: Collection[Knob]) -> AsyncIterator[None]:
    """Sets `knobs` for the time of the context and then restores the previous values, except of knobs that another
    client has changed since.

    `in_use`: knobs that other faults have changed. Raises UsageError for a bad value, NeedsRestart for a knob that is
    not live, OperationError for one that is in use.
    """
    twice = [f"{group}.{name}" for group, name in _names(knobs) if (group, name) in in_use]
    if twice:
        raise OperationError(f"another fault has turned {', '.join(twice)}", next_step="end that one first")
    before, after = await _change(live_config, lambda _: knobs)
    injected = {knob: _value(after, knob) for knob in _names(knobs) if _value(before, knob) != _value(after, knob)}
    yield
    # Not in a `finally`: this is not reached where the server itself ends, and then there is nothing to restore.
    await _change(live_config, lambda now: _restored(now, before, injected))


def _names(knobs: Patch) -> tuple[Knob, ...]:
    return tuple((group, name) for group, values in knobs.items() if isinstance(values, Mapping) for name in values)


async def _change(live_config: LiveConfig, patch: Callable[[ServerConfig], Patch]) -> tuple[ServerConfig, ServerConfig]:
    """Applies the patch for the present configuration; the configurations before and after."""
    for _ in range(_ATTEMPTS):
        before = live_config.config
        try:
            return before, await live_config.change(patch(before), frozenset({live_config.etag}))
        except StaleEtag:
            continue
    raise OperationError("the configuration is changed all the time", next_step="try again")


def _restored(now: ServerConfig, before: ServerConfig, injected: Mapping[Knob, Any]) -> Patch:
    patch: dict[str, dict[str, Any]] = {}
    for (group, name), value in injected.items():
        if _value(now, (group, name)) == value:
            patch.setdefault(group, {})[name] = _value(before, (group, name))
    return patch


def _value(config: ServerConfig, knob: Knob) -> Any:
    return getattr(getattr(config, knob[0]), knob[1])
