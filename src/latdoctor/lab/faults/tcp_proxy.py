"""TCP proxy that injects network faults in front of a replica, the router or the dependency; and its process.

Its control interface on loopback: `GET /toxics`, `POST /toxics`, `DELETE /toxics/NAME`, `GET /traffic`, with the token.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.faults.toxics import (
    ActiveToxics,
    Direction,
    EndStream,
    ForwardBytes,
    ResetConnection,
    Toxic,
    ToxicStream,
    WaitUntil,
)
from latdoctor.lab.hardened_http_server import HttpServer, stop_event
from latdoctor.lab.server.admin_http import AdminGuard, json_response
from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.intent_request import read
from latdoctor.sanitize import clean

READ_BYTES = 64 * 1024
HELD_BYTES = 1 << 20  # of one direction; a faster sender waits
MOST_CONNECTIONS = 1024
CONNECT_SECONDS = 10.0
HOST = "127.0.0.1"
DRAIN_SECONDS = 2.0  # of the control interface; proxied connections are cut


class Clock(Protocol):
    """The time of the proxy; tests use one of their own."""

    def now(self) -> float: ...

    async def wait(self, changed: asyncio.Event, until: float | None) -> None:
        """Returns when `changed` is set, or at `until`."""


class MonotonicClock:
    """The machine's monotonic clock, in seconds."""

    def now(self) -> float:
        return time.monotonic()

    async def wait(self, changed: asyncio.Event, until: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else max(0.0, until - self.now())):
                await changed.wait()


class Traffic(Struct, frozen=True):
    """The proxy's traffic since it started."""

    connections: int  # accepted
    open: int
    bytes_up: int  # passed from clients to the server
    bytes_down: int
    bytes_held: int  # received and not passed yet
    resets: int  # by a toxic
    refused: int  # the server could not be reached, or too many connections


class _Reset(Exception):  # noqa: N818 (it is a wish, not a failure)
    """A toxic resets the connection."""


class FaultProxy:
    """Listens on one port and passes everything on to `host:port`, under the toxics in force.

    Which connections a toxic of less than full toxicity affects is drawn from `seed`, the connection's number and the
    toxic's name, so it is the same in every run.
    """

    def __init__(self, host: str, port: int, *, clock: Clock | None = None, seed: int = 0) -> None:
        self._upstream = (host, port)
        self._clock = clock or MonotonicClock()
        self._seed = seed
        self.toxics = ActiveToxics(self._clock.now)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: set[ToxicStream] = set()
        self._passed: dict[Direction, int] = dict.fromkeys(Direction, 0)
        self._connections = self._resets = self._refused = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Opens the port (0: a free one). Raises OperationError where it cannot be had."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            what = f"the proxy cannot listen: {error.strerror or error}"
            raise OperationError(what, where=f"{host}:{port}", next_step="choose another port") from error

    @property
    def port(self) -> int:
        """The port it listens on. Raises OperationError before `start`."""
        if self._server is None or not self._server.sockets:
            raise OperationError("the proxy has not been started")
        return int(self._server.sockets[0].getsockname()[1])

    def traffic(self) -> Traffic:
        return Traffic(
            connections=self._connections,
            open=len(self._tasks),
            bytes_up=self._passed[Direction.UP],
            bytes_down=self._passed[Direction.DOWN],
            bytes_held=sum(line.held for line in self._lines),
            resets=self._resets,
            refused=self._refused,
        )

    async def close(self) -> None:
        """Closes the port and every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._tasks) >= MOST_CONNECTIONS:
            self._refused += 1
            _abort(writer)
            return
        self._tasks.add(task)
        self._connections += 1
        try:
            await self._join(reader, writer, self._connections)
        except asyncio.CancelledError:
            pass  # by close(); asyncio logs a cancelled connection as an error, and it is none
        finally:
            _abort(writer)
            self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                far_reader, far_writer = await asyncio.open_connection(*self._upstream)
        except OSError:  # TimeoutError is one
            self._refused += 1
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pipe(Direction.UP, number, reader, far_writer))
                both.create_task(self._pipe(Direction.DOWN, number, far_reader, writer))
            await _close(writer)
            await _close(far_writer)
        except* _Reset:
            self._resets += 1
        except* ConnectionError:
            pass  # one side has vanished; the other is reset, as it would be without a proxy
        finally:
            _abort(far_writer)

    async def _pipe(
        self, stream: Direction, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        line = ToxicStream(random.Random(f"{self._seed}/{number}/{stream}"))  # noqa: S311 (repeatable, not secret)
        changed, room = asyncio.Event(), asyncio.Event()
        self._lines.add(line)
        self.toxics.listen(changed.set)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._fill(line, reader, changed, room))
                both.create_task(self._empty(stream, number, line, writer, changed, room))
        finally:
            self.toxics.forget(changed.set)
            self._lines.discard(line)

    async def _fill(
        self, line: ToxicStream, reader: asyncio.StreamReader, changed: asyncio.Event, room: asyncio.Event
    ) -> None:
        while data := await reader.read(READ_BYTES):
            line.arrive(data, self._clock.now())
            changed.set()
            while line.held >= HELD_BYTES:
                room.clear()
                await room.wait()
        line.end(self._clock.now())
        changed.set()

    async def _empty(
        self,
        stream: Direction,
        number: int,
        line: ToxicStream,
        writer: asyncio.StreamWriter,
        changed: asyncio.Event,
        room: asyncio.Event,
    ) -> None:
        def draw(name: str) -> float:
            return random.Random(f"{self._seed}/{number}/{name}").random()  # noqa: S311 (the same)

        while True:
            changed.clear()
            match line.step(self._clock.now(), self.toxics.combined(stream, draw)):
                case ForwardBytes(data):
                    writer.write(data)
                    await writer.drain()
                    self._passed[stream] += len(data)
                    room.set()
                case WaitUntil(until):
                    await self._clock.wait(changed, until)
                case ResetConnection():
                    raise _Reset
                case EndStream():
                    if writer.can_write_eof():
                        writer.write_eof()
                    return


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Ends the connection with a reset, whatever is still unsent; nothing where it is closed already."""
    if writer.transport.is_closing():
        return
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def control(proxy: FaultProxy, token: str) -> Starlette:
    """The control interface as an ASGI application, to be served on loopback. Raises UsageError without a token."""
    if not token:
        raise UsageError("the proxy's control needs a token")

    async def show(_: Request) -> Response:
        return json_response(proxy.toxics.active())

    async def add(request: Request) -> Response:
        body = await read(request)
        try:
            return json_response(proxy.toxics.add(msgspec.json.decode(body, type=Toxic)), status=201)
        except (*UNDECODABLE, UsageError) as error:
            raise BadRequest(422, "invalid", clean(str(error), 300)) from error

    async def remove(request: Request) -> Response:
        if not proxy.toxics.remove(request.path_params["name"]):
            raise BadRequest(404, "unknown-toxic", "no toxic of that name is in force")
        return Response(status_code=204)

    async def traffic(_: Request) -> Response:
        return json_response(proxy.traffic())

    guard = AdminGuard(token)
    return Starlette(
        routes=[
            guard.route("GET", "/toxics", show),
            guard.route("POST", "/toxics", add),
            guard.route("DELETE", "/toxics/{name}", remove),
            guard.route("GET", "/traffic", traffic),
        ]
    )


class ProxyOptions(Struct, frozen=True):
    """The target, the token of the control interface, and the ports; 0 takes a free one."""

    upstream_host: str
    upstream_port: int
    token: str
    port: int = 0
    control_port: int = 0
    seed: int = 0


def run(options: ProxyOptions, *, announce: Callable[[str], None]) -> None:
    """Proxies until SIGTERM or SIGINT. Raises OperationError where a port is not available."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options, announce))


async def _run(options: ProxyOptions, announce: Callable[[str], None]) -> None:
    stop_requested = stop_event()
    proxy = FaultProxy(options.upstream_host, options.upstream_port, seed=options.seed)
    app = control(proxy, options.token)
    listening = HttpServer(app, host=HOST, port=options.control_port, drain_seconds=DRAIN_SECONDS)
    await proxy.start(HOST, options.port)
    try:
        await listening.start()
        announce(f"{HOST}:{proxy.port}")
        announce(listening.url)
        await stop_requested.wait()
        await listening.stop()
    finally:
        await proxy.close()
