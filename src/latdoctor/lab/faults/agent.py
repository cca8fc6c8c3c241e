"""The fault agent: real disturbances inside a server that was started with `--fault-agent`.

    PUT /faults/NAME {"strength": 1.0, "lifetime": 30}      starts one, or starts it anew
    DELETE /faults/NAME                                      ends it
    GET /faults                                              the names of those at work

Each wraps a stage or runs beside the server; each ends by itself after its lifetime. None of them shows on the
metrics page, except by what it does.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.errors import UsageError
from latdoctor.lab.faults.injection import Agent
from latdoctor.lab.server.exchange import Exchange
from latdoctor.lab.server.parts import Parts
from latdoctor.lab.server.stages import Call

Ending = Callable[[], None]
_MOST_LEAKED = 512 << 20  # bytes: a leak that is forgotten must not take the machine down
_BLOCK_EVERY = 0.25  # seconds between two blocks of the event loop


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    strength: float = 1.0
    lifetime: float = 60.0


def attach(parts: Parts) -> Sequence[BaseRoute]:
    """The agent's routes, behind the server's own admin guard."""
    agent = FaultAgent(parts)
    return [
        Route("/faults", parts.admin.guarded(agent.listing), methods=["GET"]),
        Route("/faults/{name}", parts.admin.guarded(agent.begin), methods=["PUT"]),
        Route("/faults/{name}", parts.admin.guarded(agent.end), methods=["DELETE"]),
    ]


class FaultAgent:
    """What is at work in one server. Used on its event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._endings: dict[str, tuple[Ending, asyncio.TimerHandle]] = {}

    async def listing(self, _: Request) -> Response:
        return Response(msgspec.json.encode(sorted(self._endings)), media_type="application/json")

    async def begin(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            asked = msgspec.json.decode(await request.body(), type=_Asked)
            fault = msgspec.convert({"kind": "agent", "name": name, **msgspec.structs.asdict(asked)}, Agent)
        except msgspec.MsgspecError as error:
            raise UsageError(f"no such disturbance: {error}") from error
        self._stop(name)
        ending = STARTERS[fault.name](self._parts, fault.strength)
        timer = asyncio.get_running_loop().call_later(fault.lifetime, self._stop, name)
        self._endings[name] = (ending, timer)
        return Response(status_code=204)

    async def end(self, request: Request) -> Response:
        self._stop(request.path_params["name"])
        return Response(status_code=204)

    def _stop(self, name: str) -> None:
        found = self._endings.pop(name, None)
        if found is not None:
            ending, timer = found
            timer.cancel()
            ending()


def block_loop(parts: Parts, seconds: float) -> Ending:
    """Holds the event loop for `seconds` four times a second, as a synchronous call in a handler does."""

    async def hold() -> None:
        while True:
            time.sleep(seconds)
            await asyncio.sleep(_BLOCK_EVERY)

    task = asyncio.get_running_loop().create_task(hold())
    return lambda: _cancel(task)


def pause_for_garbage(parts: Parts, millions: float) -> Ending:
    """Keeps so many million small cyclic objects alive and collects them all four times a second."""
    hoard: list[list[object]] = []
    for _ in range(int(millions * 1_000_000)):
        cycle: list[object] = []
        cycle.append(cycle)
        hoard.append(cycle)

    async def collect() -> None:
        while True:
            await asyncio.sleep(_BLOCK_EVERY)
            gc.collect()

    task = asyncio.get_running_loop().create_task(collect())

    def end() -> None:
        _cancel(task)
        hoard.clear()

    return end


def hold_lock(parts: Parts, seconds: float) -> Ending:
    """Every request holds the server's one shared lock for `seconds` while it waits for something."""

    def wrapper(call: Call) -> Call:
        def held(exchange: Exchange) -> bool:
            with parts.shared:
                time.sleep(seconds)
            return call(exchange)

        return held

    return parts.stages.wrap("postprocess", wrapper)


def slow_preprocessing(parts: Parts, seconds: float) -> Ending:
    """Preprocessing works `seconds` longer for each request: real work, on the request's thread."""

    def wrapper(call: Call) -> Call:
        def slower(exchange: Exchange) -> bool:
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                sum(range(2000))
            return call(exchange)

        return slower

    return parts.stages.wrap("preprocess", wrapper)


def sync_each_request(parts: Parts, kibibytes: float) -> Ending:
    """Every request writes so much to a file and waits until the disk has it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 — closed by the ending
    block, lock = b"x" * int(kibibytes * 1024), threading.Lock()

    def wrapper(call: Call) -> Call:
        def synced(exchange: Exchange) -> bool:
            with lock:
                file.seek(0)
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            return call(exchange)

        return synced

    unwrap = parts.stages.wrap("postprocess", wrapper)

    def end() -> None:
        unwrap()
        with lock:
            file.close()

    return end


def leak(parts: Parts, mebibytes: float) -> Ending:
    """Every request leaves so much memory behind, up to half a gibibyte in all."""
    left: list[bytearray] = []
    size = int(mebibytes * (1 << 20))
    most = _MOST_LEAKED // max(1, size)

    def wrapper(call: Call) -> Call:
        def leaking(exchange: Exchange) -> bool:
            if len(left) < most:
                left.append(bytearray(os.urandom(1) * size))
            return call(exchange)

        return leaking

    unwrap = parts.stages.wrap("session", wrapper)

    def end() -> None:
        unwrap()
        left.clear()

    return end


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


STARTERS: Mapping[str, Callable[[Parts, float], Ending]] = {
    "loop-block": block_loop,
    "gc-pauses": pause_for_garbage,
    "lock-convoy": hold_lock,
    "slow-preprocess": slow_preprocessing,
    "fsync": sync_each_request,
    "leak": leak,
}
