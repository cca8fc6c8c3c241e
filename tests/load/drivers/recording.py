"""A server that records what it is sent, for generators that are not ours."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct


class Received(Struct, frozen=True):
    """One attempt: seconds since the first one, its path, headers and body."""

    at: float
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["x-request-id"]

    @property
    def attempt(self) -> str:
        return self.headers["x-attempt"]


class RecordingServer(ThreadingHTTPServer):
    """Answers with the request's own id; every tenth request's first attempt is refused with 503.

    `frozen`: the seconds, since the first attempt, in which nothing is answered.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, frozen: tuple[float, float]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.frozen = frozen
        self.received: list[Received] = []
        self.first: float | None = None
        self.noting = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def note(self, path: str, headers: dict[str, str], body: bytes) -> Received:
        with self.noting:
            now = time.monotonic()
            self.first = now if self.first is None else self.first
            self.received.append(Received(now - self.first, path, headers, body))
            return self.received[-1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RecordingServer

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        received = self.server.note(self.path, {name.lower(): value for name, value in self.headers.items()}, content)
        begin, end = self.server.frozen
        if begin <= received.at < end:
            time.sleep(end - received.at)  # the server's own delay, which is what is tested
        busy = received.id.endswith("0") and received.attempt == "0"
        answer = json.dumps({"request_id": received.id}).encode()
        head = f"HTTP/1.1 {503 if busy else 200} X\r\nContent-Length: {len(answer)}\r\n\r\n".encode()
        self.wfile.write(head + answer)  # in one packet

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the base class
        pass


@contextmanager
def recording(frozen: tuple[float, float] = (0.0, 0.0)) -> Iterator[RecordingServer]:
    with RecordingServer(frozen) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
