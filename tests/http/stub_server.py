"""A server that answers each connection as a test specifies: in time, late, never, or not by HTTP."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.remediation.actions.lossy_proxy import PATIENCE, whole

Serve = Callable[[socket.socket, threading.Event], None]


class Server:
    """Each connection gets `serve`; `seen` are the requests."""

    def __init__(self, serve: Serve, context: ssl.SSLContext | None = None) -> None:
        self._serve = serve
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.port}/x"
        self.seen: list[bytes] = []
        self.end = threading.Event()

    def run(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                client.settimeout(PATIENCE)
                try:
                    self._answer(self._context.wrap_socket(client, server_side=True) if self._context else client)
                except OSError:
                    continue  # the client had enough of it

    def _answer(self, client: socket.socket) -> None:
        with client:
            if asked := whole(client):
                self.seen.append(asked)
                self._serve(client, self.end)

    def close(self) -> None:
        self.end.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @property
    def bodies(self) -> list[bytes]:
        return [asked.partition(b"\r\n\r\n")[2] for asked in self.seen]


@contextmanager
def serving(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(serve, context)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def answering(status: int, body: bytes = b"", *headers: str) -> Serve:
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}", *headers]

    def serve(client: socket.socket, _: threading.Event) -> None:
        client.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    return serve


def each(*serves: Serve) -> Serve:
    """One after the other; the last for all that follow."""
    left = list(serves)

    def serve(client: socket.socket, end: threading.Event) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(client, end)

    return serve


def hangs(_: socket.socket, end: threading.Event) -> None:
    end.wait(PATIENCE)


def dripping(beginning: bytes) -> Serve:
    def serve(client: socket.socket, end: threading.Event) -> None:
        client.sendall(beginning)
        while not end.wait(0.01):
            client.sendall(b"x")

    return serve
