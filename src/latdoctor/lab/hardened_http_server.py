"""HTTP server (uvicorn) with limits per connection in size and time, for slow, vanished or hostile clients.

uvicorn's own protocol limits neither the size nor the duration of a request head, and waits forever for a client that
sends nothing or does not read its answer. It continues to read while requests of one packet wait for their turn, and
if the client disconnects it notifies only the last of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import msgspec
import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from latdoctor.errors import OperationError

_SPARE_FILES = 128  # of the process, beside its connections


class ConnectionLimits(Struct, frozen=True):
    """Limits of one client, and of all clients together.

    `head_bytes`: of the request line and the headers (nginx takes 32 KiB). `head_seconds`: from the connection, or
    the first byte of a later request, to the end of the head. `read_seconds`: for reading what the buffers do not
    take of an answer. `refusal_seconds`: for a client that still sends to read why it is refused.
    `connections`: at a time; more are refused with a 503. `at_once`: requests of one connection that wait for the
    answer to the one before them; after so many it is closed.
    """

    head_bytes: int = 32 * 1024
    head_seconds: float = 10.0
    read_seconds: float = 10.0
    refusal_seconds: float = 1.0
    connections: int = 8192
    at_once: int = 64


def allow_files(most: int = ConnectionLimits().connections) -> None:
    """Raises the limit of open files to one for each of `most` connections, or to the hard limit."""
    needed = most + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def fitting(limits: ConnectionLimits) -> ConnectionLimits:
    """`limits` with no more connections than this process may have files for: it must never fail to accept one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    return msgspec.structs.replace(limits, connections=max(16, min(limits.connections, soft - _SPARE_FILES)))


class _Enough(Exception):  # noqa: N818 - stops the parser
    """Raised in a callback to stop the parser."""


class _Flow(FlowControl):
    """Reads nothing more while requests that were read already wait for their turn."""

    def __init__(self, transport: asyncio.Transport, waiting: deque[Any]) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's protocol within `limits`. Used on the event loop."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits = limits
        self._head = 0  # bytes of the head that the parser has reported
        self._in_head = self._in_body = False
        self._unfinished = 0  # bytes of a head that the parser has not reported yet
        self._too_large: int | None = None  # the status of the refusal
        self._refused = False
        self._answering: RequestResponseCycle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        if len(self.connections) > self._limits.connections:
            self._respond(503, "too-many-connections", "too many connections are open", b"retry-after: 1\r\n")
            transport.close()
        else:
            self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head()
        self._stop_reading()
        self.pipeline.clear()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            after_a_body = self._in_body
            super().data_received(data)
            self._bound_head(len(data) if self._in_head and not after_a_body else 0)

    def _bound_head(self, size: int) -> None:
        """After `size` more bytes inside a head: one header that never ends reaches no callback."""
        if self._refused or not self._idle:
            return
        self._unfinished += size
        if self._unfinished > 2 * self._limits.head_bytes:
            self._too_large = 431
            self.send_400_response("")
        elif self.timeout_keep_alive_task is None and self._head_timer is None:
            self._start_head()

    @property
    def _idle(self) -> bool:
        """No request of this connection is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def on_url(self, url: bytes) -> None:
        self._count(len(url), 414)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4, 431)
        super().on_header(name, value)

    def on_message_begin(self) -> None:
        self._head = self._unfinished = 0
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._stop_head()
        if len(self.pipeline) >= self._limits.at_once:
            raise _Enough
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def _count(self, size: int, status: int) -> None:
        self._head += size
        if self._head > self._limits.head_bytes:
            self._too_large = status
            raise _Enough

    def send_400_response(self, msg: str) -> None:
        """Called where the parser gives up."""
        self._refused = True
        self._stop_head()
        if not self._idle:
            if not self.cycle.more_body:  # an answer is on its way: this one would be taken for it
                self.cycle.keep_alive = False
                return
            self.cycle.disconnected = True  # half a request gets no answer
            self.cycle.message_event.set()
        if self._too_large is None:
            self._respond(400, "no-http", "not an HTTP request")
        else:
            self._respond(self._too_large, "head-too-large", f"a head may have {self._limits.head_bytes} bytes")
        # Closed at once with bytes unread, the connection would be reset and the answer lost.
        self._head_timer = self.loop.call_later(self._limits.refusal_seconds, self.transport.close)

    def _respond(self, status: int, error: str, detail: str, header: bytes = b"") -> None:
        body = msgspec.json.encode({"error": error, "detail": detail})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + header + b"\r\n" + body)

    def _unsupported_upgrade_warning(self) -> None:
        """Not logged: any client could fill the log. The upgrade is ignored."""

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_reading()
        self._read_timer = self.loop.call_later(self._limits.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_reading()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # closing would wait for a client that does not read
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _start_head(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.head_seconds, self.transport.close)

    def _stop_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


BACKLOG = 2048
LINGER_SECONDS = 0.1


class _Server(uvicorn.Server):
    """uvicorn that leaves the signals to its owner and reports when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the listening sockets, and idle connections a moment later: requests just received are still read."""
        await asyncio.sleep(0)  # accept pending connections
        for server in self.servers:
            server.close()
        await asyncio.sleep(LINGER_SECONDS)
        await super().shutdown(sockets)


class HttpServer:
    """Serves `app` (ASGI) on `host:port`; port 0 takes a free one. The port is held from the start."""

    def __init__(
        self,
        app: Any,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        drain_seconds: float = 30.0,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """Raises OperationError where the port is not available."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # TCP by name: asyncio sets TCP_NODELAY only then, and without it an answer waits 40 ms for a delayed ACK.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            what = f"the port is not available: {error.strerror or error}"
            raise OperationError(what, where=f"{host}:{port}", next_step="choose another port") from error
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            http=cast(type[asyncio.Protocol], partial(BoundedConnection, limits=fitting(limits or ConnectionLimits()))),
            ws="none",
            lifespan="off",
            log_level="error",  # warnings are about client input: any client could fill the disk with them
            access_log=False,
            server_header=False,
            proxy_headers=False,  # X-Forwarded-For is what the client writes, not where it is
            backlog=BACKLOG,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Returns when the server accepts requests. Raises what its start raised."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait({self._task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Accepts no more requests, waits for those in flight within the drain time, and closes."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()


def stop_event(signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT)) -> asyncio.Event:
    """An event that the first of `signals` sets; a second one ends the process at once."""
    requested = asyncio.Event()

    def request_stop() -> None:
        if requested.is_set():
            os._exit(1)
        requested.set()

    for signal_ in signals:
        asyncio.get_running_loop().add_signal_handler(signal_, request_stop)
    return requested
