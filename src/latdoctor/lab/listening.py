"""An HTTP application on a port of its own, inside the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import uvicorn

from latdoctor.errors import OperationError
from latdoctor.lab.connection import Connection, Limits, fitting

BACKLOG = 2048
LINGER_SECONDS = 0.1


class _Server(uvicorn.Server):
    """uvicorn that leaves the signals to its owner and says when it is up."""

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
        """Closes the door first and the idle connections a moment later: what had just come in is still read."""
        await asyncio.sleep(0)  # whoever stands at the door now
        for server in self.servers:
            server.close()
        await asyncio.sleep(LINGER_SECONDS)
        await super().shutdown(sockets)


class Listening:
    """Serves `app` (ASGI) on `host:port`; port 0 takes a free one. The port is held from the start."""

    def __init__(
        self,
        app: Any,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        drain_seconds: float = 30.0,
        limits: Limits | None = None,
    ) -> None:
        """Raises OperationError where the port cannot be had."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # TCP by name: asyncio sets TCP_NODELAY only then, and without it an answer waits 40 ms for a delayed ACK.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            what = f"the port cannot be had: {error.strerror or error}"
            raise OperationError(what, where=f"{host}:{port}", next_step="choose another port") from error
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            http=cast(type[asyncio.Protocol], partial(Connection, limits=fitting(limits or Limits()))),
            ws="none",
            lifespan="off",
            log_level="error",  # its warnings are about what clients sent: whoever likes could fill the disk with them
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Returns when requests are taken in. Raises what kept the server from coming up."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait({self._task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Takes in nothing more, lets what is in flight end within the time to drain, and closes."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()
