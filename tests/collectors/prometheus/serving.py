"""A small HTTP server whose page changes with the clock, and a clock that nobody waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeClock:
    """Its sleep moves the time on and takes none."""

    def __init__(self, start: float = 1000.0) -> None:
        self.time = start
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


@contextmanager
def served(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """An address at which `answer` handles every GET, and every POST once its body is read."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the base class names it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def page(body: Callable[[], bytes]) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer with the page that `body` gives at that moment, and 404 for any other path than /metrics."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path != "/metrics":
            handler.send_error(404)
            return
        content = body()
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain; version=0.0.4")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer
