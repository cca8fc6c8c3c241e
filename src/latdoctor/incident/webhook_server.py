"""HTTP server for Alertmanager webhooks: POST /alerts; GET or HEAD /healthz for liveness.

A notification is answered with 200 after it is journaled, so none is lost; with 503 where it cannot be journaled, so
that it is sent again. Each client is limited in bytes, time and concurrent connections.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.incident.alert_intake import IntakeResult
from latdoctor.incident.alertmanager import MAX_BYTES, AlertError, parse
from latdoctor.incident.events import AlertsReceived
from latdoctor.sanitize import clean

APART = 60.0  # seconds between two lines; an Alertmanager with a wrong token sends again every few seconds


class RefusalLog:
    """Rate limit for log lines on refused requests, shared by all senders."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._logged_at: float | None = None  # seconds by the clock of `line`
        self._suppressed = 0

    def line(self, sender: str, now: float, *, showed: bool) -> str:
        """Log line for one more refused request at `now` (monotonic seconds); empty within APART of the last one.

        `showed`: the request had a token, but a wrong one. It is never logged: it may be a secret elsewhere.
        """
        with self._guard:
            if self._logged_at is not None and now - self._logged_at < APART:
                self._suppressed += 1
                return ""
            suppressed, self._suppressed, self._logged_at = self._suppressed, 0, now
        what = "the token is not the one of this listener" if showed else "it has no token"
        more = f"; {suppressed} more were refused since the last report" if suppressed else ""
        return (
            f"refused (401) a request from {clean(sender, 60)}: {what}{more}. Next: compare its credentials with"
            " --auth-file"
        )


PATH, HEALTH = "/alerts", "/healthz"
MAX_CONNECTIONS = 32  # at once; an Alertmanager has one for each group that it is sending
ROOM = 0.5  # seconds for which one more waits for another to end; then it is sent away, and tries again
MAX_HEAD = 64 << 10  # bytes of a request before its body
SILENCE = 5.0  # seconds in which a client has to send something
LONGEST = 20.0  # seconds for one connection, from the first byte to the answer
_POLL = 0.2  # seconds between two checks for slow clients
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

Receive = Callable[[AlertsReceived], IntakeResult]
Log = Callable[[str], None]


@contextmanager
def serve_webhook(host: str, port: int, authorization: str, receive: Receive, log: Log) -> Iterator[str]:
    """Serve in a background thread; yield the address. `authorization`: required credentials; empty: none.

    Requests that have arrived at the end are still answered. Raises OperationError where the address is unavailable.
    """
    try:
        server = _Server(host, port, _Handling(_digest(authorization) if authorization else b"", receive, log))
    except OSError as error:
        raise OperationError(
            f"nothing can listen there: {error.strerror or error}",
            where=f"{host}:{port}",
            next_step="choose another address with --listen HOST:PORT",
        ) from error
    running = threading.Thread(target=server.serve_forever, args=(_POLL,), name="receiver", daemon=True)
    running.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.leave()
        running.join()


def _digest(authorization: str) -> bytes:
    """Digest for a constant-time comparison that reveals nothing of a secret, not even its length."""
    return hashlib.sha256(authorization.encode("utf-8", "surrogateescape")).digest()


class _Handling:
    """Authorization and processing of requests."""

    def __init__(self, secret: bytes, receive: Receive, log: Log) -> None:
        self._secret = secret
        self._receive = receive
        self._refusals = RefusalLog()
        self.log = log

    def authorized(self, authorization: str, sender: str) -> bool:
        """Whether the request is authorized. A refusal is logged: otherwise a wrong token looks like silence."""
        scheme, _, secret = authorization.strip().partition(" ")
        shown = f"{scheme.capitalize()} {secret.strip()}"
        if not self._secret or hmac.compare_digest(_digest(shown), self._secret):
            return True
        line = self._refusals.line(sender, time.monotonic(), showed=bool(authorization.strip()))
        if line:
            self.log(line)
        return False

    def receive(self, content: bytes, sender: str) -> tuple[HTTPStatus, str]:
        try:
            taken = self._receive(parse(content))
        except AlertError as error:
            self.log(f"refused a request from {sender}: {error}")
            return HTTPStatus.BAD_REQUEST, str(error)
        except LatdoctorError as error:
            self.log(f"not journaled: {error}")
            return HTTPStatus.SERVICE_UNAVAILABLE, "it could not be journaled: send it again"
        return HTTPStatus.OK, _summary(taken)


def _summary(taken: IntakeResult) -> str:
    which = taken.incident or "no incident"
    return f"{which}: {taken.new} new, {taken.repeated} known{', opened' if taken.opened else ''}"


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # requests that have arrived are answered before the process ends
    request_queue_size = 128

    def __init__(self, host: str, port: int, handling: _Handling) -> None:
        self.handling = handling
        self._open: dict[socket.socket, float] = {}  # when each has to be done
        self._guard = threading.Lock()
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}{PATH}"

    def server_bind(self) -> None:
        # HTTPServer would resolve its own name, which may take long and is not needed.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "latdoctor", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(timeout=ROOM):
            _sent_away(request)
            self.shutdown_request(request)
            return
        with self._guard:
            self._open[request] = time.monotonic() + LONGEST
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            held = self._open.pop(request, None) is not None
        super().shutdown_request(request)
        if held:
            self._free.release()

    def service_actions(self) -> None:
        """End connections past their deadline: a client that sends single bytes never hits a socket timeout."""
        now = time.monotonic()
        with self._guard:
            late = [request for request, due in self._open.items() if due < now]
        for request in late:
            _ended(request, socket.SHUT_RDWR)

    def leave(self) -> None:
        """Stop reading; complete requests are still answered."""
        with self._guard:
            connections = list(self._open)
        for request in connections:
            _ended(request, socket.SHUT_RD)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # else the client has gone, or its time was over
            self.handling.log(f"a request failed: {type(error).__name__}: {clean(str(error), 200)}")


def _sent_away(request: socket.socket) -> None:
    try:
        request.settimeout(0)
        request.send(_BUSY)
    except OSError:  # it is not worth waiting for
        return


def _ended(request: socket.socket, how: int) -> None:
    try:
        request.shutdown(how)
    except OSError:  # it has ended by itself
        return


class _Limited(io.RawIOBase):
    """Reader of at most `most` bytes of `raw`."""

    def __init__(self, raw: Any, most: int) -> None:
        self._raw = raw
        self._left = most

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: self._left]
        count: int = (self._raw.readinto(view) or 0) if view else 0
        self._left -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    timeout = SILENCE
    server: _Server
    server_version, sys_version = "latdoctor", ""
    error_message_format = "%(message)s\n"
    error_content_type = "text/plain; charset=utf-8"
    _PATHS: ClassVar[dict[str, str]] = {PATH: "POST", HEALTH: "GET, HEAD"}

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        raw = self.connection.makefile("rb", buffering=0)
        self.rfile = io.BufferedReader(_Limited(raw, MAX_HEAD + MAX_BYTES))

    def do_GET(self) -> None:
        if self.path != HEALTH:
            self._wrong()
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()  # `_respond` leaves the body out

    def do_POST(self) -> None:
        if self.path != PATH:
            self._wrong()
        elif not self.server.handling.authorized(self.headers.get("Authorization", ""), self.client_address[0]):
            self._respond(HTTPStatus.UNAUTHORIZED, "send this listener's token", ("WWW-Authenticate", "Bearer"))
        else:
            content = self._body()
            if content is not None:
                self._respond(*self.server.handling.receive(content, self.client_address[0]))

    def _body(self) -> bytes | None:
        lengths = set(self.headers.get_all("Content-Length", []))
        length = lengths.pop() if len(lengths) == 1 else ""
        if not (length.isascii() and length.isdecimal() and len(length) < 20) or lengths:
            self._respond(HTTPStatus.LENGTH_REQUIRED, "Content-Length is required")
            return None
        if int(length) > MAX_BYTES:
            self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MAX_BYTES} bytes are not read")
            return None
        content = self.rfile.read(int(length))
        if len(content) < int(length):
            self._respond(HTTPStatus.REQUEST_TIMEOUT, "the body is incomplete")
            return None
        return content

    def _wrong(self) -> None:
        method = self._PATHS.get(self.path)
        if method is None:
            self._respond(HTTPStatus.NOT_FOUND, f"there is {PATH} and {HEALTH}")
        else:
            self._respond(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} only", ("Allow", method))

    def _respond(self, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> None:
        content = f"{clean(text)}\n".encode()
        self.send_response(status)
        for name, value in (*headers, ("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", len(content))):
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: the handler logs what matters."""
