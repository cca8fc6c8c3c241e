"""The small server to which an Alertmanager sends: POST /alerts; GET or HEAD /healthz asks only whether it runs.

A notification is answered 200 once it is journaled: what was so answered is never lost. What cannot be journaled is
answered 503, and sent again. Whatever a client can take of us is bounded: bytes, time, and connections at once.
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
    """Of all senders together: whoever tries it from many addresses gets no more lines for that."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._told: float | None = None  # when, by the clock that `line` is given
        self._untold = 0

    def line(self, sender: str, now: float, *, showed: bool) -> str:
        """What is to be said of one more request at `now` (seconds, monotonic); empty where that was said just now.

        `showed`: it showed a token, though another one. What it showed is never told: it may be a secret elsewhere.
        """
        with self._guard:
            if self._told is not None and now - self._told < APART:
                self._untold += 1
                return ""
            untold, self._untold, self._told = self._untold, 0, now
        what = "it showed another token than this listener was given" if showed else "it showed no token"
        more = f", and {untold} more were refused since this was last told" if untold else ""
        return (
            f"refused (401) what {clean(sender, 60)} sent: {what}{more}. Next: compare its credentials with --auth-file"
        )


PATH, HEALTH = "/alerts", "/healthz"
MAX_CONNECTIONS = 32  # at once; an Alertmanager has one for each group that it is sending
ROOM = 0.5  # seconds for which one more waits for another to end; then it is sent away, and tries again
MAX_HEAD = 64 << 10  # bytes of a request before its body
SILENCE = 5.0  # seconds in which a client has to send something
LONGEST = 20.0  # seconds for one connection, from the first byte to the answer
_POLL = 0.2  # seconds between two looks at who is too slow
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

Take = Callable[[AlertsReceived], IntakeResult]
Say = Callable[[str], None]


@contextmanager
def serve_webhook(host: str, port: int, authorization: str, take: Take, say: Say) -> Iterator[str]:
    """Receives meanwhile; gives the address to send to. `authorization` is what a sender has to show; empty: nothing.

    Whatever has arrived when it is left is still answered. Raises OperationError where the address cannot be had.
    """
    try:
        server = _Server(host, port, _Handling(_digest(authorization) if authorization else b"", take, say))
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
    """By digests two secrets are compared in a time that tells nothing of them, their length included."""
    return hashlib.sha256(authorization.encode("utf-8", "surrogateescape")).digest()


class _Handling:
    """What is done with a request."""

    def __init__(self, secret: bytes, take: Take, say: Say) -> None:
        self._secret = secret
        self._take = take
        self._refusals = RefusalLog()
        self.say = say

    def admits(self, authorization: str, sender: str) -> bool:
        """Whether it is heard. Who is refused is told here too: a wrong token looks like silence otherwise."""
        scheme, _, secret = authorization.strip().partition(" ")
        shown = f"{scheme.capitalize()} {secret.strip()}"
        if not self._secret or hmac.compare_digest(_digest(shown), self._secret):
            return True
        line = self._refusals.line(sender, time.monotonic(), showed=bool(authorization.strip()))
        if line:
            self.say(line)
        return False

    def takes(self, content: bytes, sender: str) -> tuple[HTTPStatus, str]:
        try:
            taken = self._take(parse(content))
        except AlertError as error:
            self.say(f"refused what {sender} sent: {error}")
            return HTTPStatus.BAD_REQUEST, str(error)
        except LatdoctorError as error:
            self.say(f"not taken in: {error}")
            return HTTPStatus.SERVICE_UNAVAILABLE, "it could not be journaled: send it again"
        return HTTPStatus.OK, _told(taken)


def _told(taken: IntakeResult) -> str:
    which = taken.incident or "no incident"
    return f"{which}: {taken.new} new, {taken.repeated} known{', opened' if taken.opened else ''}"


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # what has arrived is answered before the process ends
    request_queue_size = 128

    def __init__(self, host: str, port: int, desk: _Handling) -> None:
        self.desk = desk
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
        # HTTPServer would look its own name up, which may take long and is asked of nobody.
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
        """Ends connections whose time is over: a byte now and then keeps any timeout of a socket from ending."""
        now = time.monotonic()
        with self._guard:
            late = [request for request, due in self._open.items() if due < now]
        for request in late:
            _ended(request, socket.SHUT_RDWR)

    def leave(self) -> None:
        """Nothing more is read; what was read whole is answered."""
        with self._guard:
            standing = list(self._open)
        for request in standing:
            _ended(request, socket.SHUT_RD)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # else the client has gone, or its time was over
            self.desk.say(f"a request failed: {type(error).__name__}: {clean(str(error), 200)}")


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
    """Gives so many bytes of `raw` and then none."""

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
        self.do_GET()  # `_say` leaves the body out

    def do_POST(self) -> None:
        if self.path != PATH:
            self._wrong()
        elif not self.server.desk.admits(self.headers.get("Authorization", ""), self.client_address[0]):
            self._say(HTTPStatus.UNAUTHORIZED, "show what this listener was given", ("WWW-Authenticate", "Bearer"))
        else:
            content = self._body()
            if content is not None:
                self._say(*self.server.desk.takes(content, self.client_address[0]))

    def _body(self) -> bytes | None:
        lengths = set(self.headers.get_all("Content-Length", []))
        told = lengths.pop() if len(lengths) == 1 else ""
        if not (told.isascii() and told.isdecimal() and len(told) < 20) or lengths:
            self._say(HTTPStatus.LENGTH_REQUIRED, "say how long it is: Content-Length")
            return None
        if int(told) > MAX_BYTES:
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MAX_BYTES} bytes are not read")
            return None
        content = self.rfile.read(int(told))
        if len(content) < int(told):
            self._say(HTTPStatus.REQUEST_TIMEOUT, "its end did not come")
            return None
        return content

    def _wrong(self) -> None:
        method = self._PATHS.get(self.path)
        if method is None:
            self._say(HTTPStatus.NOT_FOUND, f"there is {PATH} and {HEALTH}")
        else:
            self._say(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} only", ("Allow", method))

    def _say(self, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> None:
        content = f"{clean(text)}\n".encode()
        self.send_response(status)
        for name, value in (*headers, ("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", len(content))):
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: the desk says what is worth it."""
