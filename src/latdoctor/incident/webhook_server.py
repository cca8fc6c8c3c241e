"""HTTP server for Alertmanager webhooks: POST /alerts; GET or HEAD /healthz for liveness.

A notification is answered with 200 after it is journaled, so none is lost; with 503 where it cannot be journaled, so
that it is sent again. Heads are read by one event loop. Until a connection has proved its credentials it is one of a
bounded number, of which the oldest is closed for the next; only then may it take one of the places for bodies. So
clients without credentials, however slow or many, cannot keep an alert out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11

from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.incident.alert_intake import IntakeResult
from latdoctor.incident.alertmanager import AlertError, parse
from latdoctor.incident.connection_places import ConnectionPlaces, Full
from latdoctor.incident.events import AlertsReceived
from latdoctor.incident.http_connection import HttpConnection
from latdoctor.incident.refusal_log import RefusalLog
from latdoctor.incident.webhook_request import PATH, Access, Response, admission
from latdoctor.sanitize import clean

MAX_HEADS = 128  # connections at once that have not proved their credentials
MAX_BODIES = 32  # notifications at once; an Alertmanager has one for each group that it is sending
ROOM = 0.5  # seconds for which one more waits for another to end; then it is sent away, and tries again
HEAD_SECONDS = 5.0  # from the connection to the end of the head, TLS handshake included
BODY_SECONDS = 15.0
_BACKLOG = 1024
_ACCEPT_PAUSE = 0.05  # seconds, after a connection could not be accepted

Receive = Callable[[AlertsReceived], IntakeResult]
Log = Callable[[str], None]
_Task = asyncio.Task[None]


@contextmanager
def serve_webhook(host: str, port: int, access: Access, receive: Receive, log: Log) -> Iterator[str]:
    """Serve in a background thread; yield the address.

    Requests that have arrived at the end are still answered. Raises OperationError where the address is unavailable.
    """
    with _listening_socket(host, port) as listening:
        server = _Server(listening, access, receive, log)
        running = threading.Thread(target=server.run, name="receiver", daemon=True)
        running.start()
        try:
            yield _url(listening, "https" if access.tls else "http")
        finally:
            server.stop()
            running.join()


def _listening_socket(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise OperationError(
            f"nothing can listen there: {error.strerror or error}",
            where=f"{host}:{port}",
            next_step="choose another address with --listen HOST:PORT",
        ) from error
    listening.setblocking(False)
    return listening


def _url(listening: socket.socket, scheme: str) -> str:
    name, port = listening.getsockname()[:2]
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}{PATH}"


@dataclass(eq=False, slots=True)
class _Client:
    """An accepted connection, and the task that serves it."""

    socket: socket.socket
    address: str
    task: _Task | None = None
    opened: bool = False  # asyncio closes the socket, not we
    connection: HttpConnection | None = None  # once the TLS handshake is done

    def evict(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def end_input(self) -> None:
        """What has arrived is still read, and then the end."""
        with contextlib.suppress(OSError):  # it has ended by itself
            self.socket.shutdown(socket.SHUT_RD)

    def end(self) -> None:
        """Close, whatever is unsent."""
        if self.connection is not None:
            self.connection.abort()
        elif not self.opened:
            self.socket.close()
        else:
            with contextlib.suppress(OSError):  # asyncio has closed it
                self.socket.shutdown(socket.SHUT_RDWR)


class _Server:
    """The event loop and its connections; `run` and `stop` are called by different threads."""

    def __init__(self, listening: socket.socket, access: Access, receive: Receive, log: Log) -> None:
        self._listening = listening
        self._access = access
        self._receive = receive
        self._log = log
        self._refusals = RefusalLog()
        self._heads: ConnectionPlaces[_Client] = ConnectionPlaces(MAX_HEADS)
        self._bodies: ConnectionPlaces[_Client] = ConnectionPlaces(MAX_BODIES)
        self._body_ended = asyncio.Event()
        self._clients: set[_Client] = set()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()

    def run(self) -> None:
        """Serve until `stop`."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        self._loop.set_exception_handler(self._failed)
        with ThreadPoolExecutor(MAX_BODIES, "alerts") as self._workers:
            accepting = self._loop.create_task(self._accept())
            await self._stopping.wait()
            accepting.cancel()
            for client in self._clients:
                client.end_input()
            await asyncio.gather(*(client.task for client in self._clients if client.task), return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(self._listening)
            except ConnectionError:  # it has gone before it was accepted
                continue
            except OSError as error:  # too many open files, or no memory
                self._report("accept", f"a connection cannot be accepted: {error.strerror}", "raise `ulimit -n`")
                self._evict(self._heads.evict())
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            self._admit(_Client(accepted, str(address[0])))
            await asyncio.sleep(0)  # connections that are open make progress before the next

    def _admit(self, client: _Client) -> None:
        self._evict(self._heads.add(client, client.address))
        self._clients.add(client)
        client.task = self._loop.create_task(self._converse(client))
        client.task.add_done_callback(lambda _: self._ended(client))

    def _evict(self, client: _Client | None) -> None:
        if client is not None:
            client.evict()
            what = f"too many unfinished requests without credentials: closed the oldest, from {client.address}"
            self._report("evicted", what, "see which process opens connections (ss -tp)")

    def _ended(self, client: _Client) -> None:
        client.end()
        self._clients.discard(client)
        self._heads.remove(client)
        self._bodies.remove(client)
        self._body_ended.set()
        if client.task is None or client.task.cancelled():
            return
        error = client.task.exception()
        if error is not None and not isinstance(error, OSError):  # else the client has gone, or its time was over
            self._log(f"a request failed: {type(error).__name__}: {clean(str(error), 200)}")

    async def _converse(self, client: _Client) -> None:
        """Serve one request. Raises OSError (TimeoutError is one) where the client is gone or too slow."""
        async with asyncio.timeout(HEAD_SECONDS):
            connection = await self._opened(client)
            try:
                head: h11.Request | Response | None = await connection.head()
            except h11.RemoteProtocolError as error:
                head = Response(HTTPStatus(error.error_status_hint), str(error))
        if head is not None:
            response = head if isinstance(head, Response) else await self._answer(client, connection, head)
            await connection.respond(response)

    async def _opened(self, client: _Client) -> HttpConnection:
        client.opened = True
        try:
            client.connection = await HttpConnection.opened(client.socket, self._tls_context(), HEAD_SECONDS)
        except ssl.SSLError as error:
            reason = clean(str(error.reason or "handshake failed"), 100).replace("_", " ").lower()
            what = f"refused a TLS connection from {client.address}: {reason}"
            self._report("tls", what, "compare its certificate with --client-ca, and its CA with --tls-cert")
            raise
        return client.connection

    def _tls_context(self) -> ssl.SSLContext | None:
        tls = self._access.tls
        if tls is None:
            return None
        if problem := tls.refresh():
            self._report("tls-files", f"goes on with the former certificate: {problem}", "correct the files")
        return tls.context

    async def _answer(self, client: _Client, connection: HttpConnection, request: h11.Request) -> Response:
        admitted = admission(request, self._access)
        if isinstance(admitted, Response):
            return self._reported(admitted, client)
        if not await self._has_body_place(client):
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, "too many notifications at once", (("Retry-After", "1"),))
        try:
            async with asyncio.timeout(BODY_SECONDS):
                content = await connection.body()
        except h11.RemoteProtocolError:
            return Response(HTTPStatus.REQUEST_TIMEOUT, "the body is incomplete")
        except TimeoutError:
            return Response(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the body took more than {BODY_SECONDS:g} s: send it again"
            )
        self._bodies.keep(client)
        return self._reported(await self._loop.run_in_executor(self._workers, self._taken, content), client)

    def _reported(self, response: Response, client: _Client) -> Response:
        """The response, after a log line where it refuses something: one for each kind and minute."""
        if response.logged:
            what = f"refused ({response.status.value}) a request from {clean(client.address, 60)}: {response.logged}"
            self._report(str(response.status.value), what, response.next_step)
        return response

    async def _has_body_place(self, client: _Client) -> bool:
        """Move the connection to the places for bodies. There it can be evicted only where none needs credentials."""
        evictable = not self._access.requires_credentials
        if not evictable:
            self._heads.remove(client)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROOM):
                while True:
                    try:
                        self._evict(self._bodies.add(client, client.address, evictable=evictable))
                    except Full:
                        self._body_ended.clear()
                        await self._body_ended.wait()
                    else:
                        self._heads.remove(client)
                        return True
        return False

    def _taken(self, content: bytes) -> Response:
        """Journal a notification. Runs on a worker thread."""
        try:
            taken = self._receive(parse(content))
        except AlertError as error:
            next_step = "send notifications of an Alertmanager (version 4)"
            return Response(HTTPStatus.BAD_REQUEST, str(error), logged=str(error), next_step=next_step)
        except LatdoctorError as error:
            return Response(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "it could not be journaled: send it again",
                logged=f"not journaled: {error.what}",
                next_step=error.next_step or "see that the state folder can be written",
            )
        return Response(HTTPStatus.OK, _summary(taken))

    def _report(self, kind: str, what: str, next_step: str) -> None:
        line = self._refusals.line(kind, what, next_step, time.monotonic())
        if line:
            self._log(line)

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What asyncio reports apart from the tasks: a client that is gone is no news."""
        error = context.get("exception")
        if not isinstance(error, OSError):
            self._report(
                "failed", f"the listener failed: {clean(str(context.get('message')), 200)}", "report this error"
            )


def _summary(taken: IntakeResult) -> str:
    which = taken.incident or "no incident"
    return f"{which}: {taken.new} new, {taken.repeated} known{', opened' if taken.opened else ''}"
