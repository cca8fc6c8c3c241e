"""A way to a server on which answers get lost, hang or drip, as a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

PATIENCE = 10.0


class Wire:
    """As a context: relays one exchange per connection to `url`. `lose` and `hang` count exchanges to spoil.

    `lose`: the server's answer is read whole and thrown away, so that what was asked for has been done. `spoil` says
    for which requests (their first line) either counts. `before` is called once before the next such request goes on.
    """

    def __init__(self, url: str) -> None:
        self.route(url)
        self.lose = self.hang = 0
        self.spoil: Callable[[bytes], bool] = lambda first: not first.startswith(b"GET")
        self.before: Callable[[], None] | None = None
        self.seen: list[bytes] = []
        self.writes: list[bytes] = []  # whole requests other than GET
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def route(self, url: str) -> None:
        """From now on another server is behind it."""
        parts = urlsplit(url)
        self._to = (parts.hostname or "", parts.port or 80)

    def _spawn(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._end.is_set():
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self._spawn(lambda client=client: self._relay(client))  # type: ignore[misc]

    def _relay(self, client: socket.socket) -> None:
        with client:
            client.settimeout(PATIENCE)
            asked = whole(client)
            if not asked:
                return
            first = asked.split(b"\r\n", 1)[0]
            self.seen.append(first)
            if not first.startswith(b"GET"):
                self.writes.append(asked)
            spoilt = self.spoil(first)
            if spoilt and self.before is not None:
                act, self.before = self.before, None
                act()
            if spoilt and self.hang:
                self.hang -= 1
                self._end.wait(PATIENCE)
                return
            answer = self._asked(asked)
            if spoilt and self.lose:
                self.lose -= 1
                return
            client.sendall(answer)

    def _asked(self, asked: bytes) -> bytes:
        head, _, body = asked.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        with socket.create_connection(self._to, PATIENCE) as server:
            server.sendall(b"\r\n".join([*lines, b"connection: close", b"", b""]) + body)
            answer = bytearray()
            while chunk := server.recv(65536):
                answer += chunk
        return bytes(answer)


def whole(client: socket.socket) -> bytes:
    """One request, by its Content-Length."""
    asked = bytearray()
    while b"\r\n\r\n" not in asked:
        chunk = client.recv(65536)
        if not chunk:
            return b""
        asked += chunk
    head, _, body = bytes(asked).partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        chunk = client.recv(65536)
        if not chunk:
            return b""
        asked += chunk
        missing -= len(chunk)
    return bytes(asked)
