"""A small target for remediation: the admin interface and the metrics page of a reference server, at a fixed port.

Usage: python -m tests.upgrade.stub      (serves until Ctrl-C)

The state folder in v1/ names this address. P99 on its page is 3 s, and 0.3 s once the scheduler is token-budget, where
that helps. POST /test changes how it behaves: {"helps": bool, "late": bool, "config": {...}}.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 18731  # below the range from which Linux gives ports to clients
URL = f"http://127.0.0.1:{PORT}"
PATIENCE = 60.0  # seconds; another worker's test may have the port
CONFIG: dict[str, dict[str, Any]] = {
    "batching": {"scheduler": "long-alone", "max_batch_tokens": 4096, "max_batch_requests": 8, "max_waste": 1.0},
    "memory": {"glibc": "default", "reuse_buffers": False},
    "queue": {"max_requests": 100_000, "max_tokens": 100_000_000},
    "governance": {"lanes": False},
}
RATE = 3000.0  # requests per second: enough for a P99 of one second
EDGES = ("0.1", "0.5", "1", "5", "+Inf")  # seconds
FAST, SLOW = 1, 3  # the buckets of 0.3 s and of 3 s
LABELS = 'replica="r1",backend="cpu"'


class Stub:
    """Its configuration, and what it has counted. `late`: a PATCH is read and never answered."""

    def __init__(self, config: dict[str, dict[str, Any]] | None = None) -> None:
        self.config = copy.deepcopy(CONFIG if config is None else config)
        self.revision = 1
        self.helps, self.late = True, False
        self.counts = [0.0] * len(EDGES)
        self.seconds = 0.0
        self.counted = time.monotonic()
        self.lock = threading.Lock()

    @property
    def etag(self) -> str:
        return f'"{self.revision}"'

    def count(self) -> None:
        now = time.monotonic()
        came, self.counted = RATE * (now - self.counted), now
        fast = self.helps and self.config["batching"]["scheduler"] == "token-budget"
        self.counts[FAST if fast else SLOW] += came
        self.seconds += came * (0.3 if fast else 3.0)

    def page(self) -> str:
        self.count()
        whole, so_far = sum(self.counts), 0.0
        lines = [f"ref_arrivals_total{{{LABELS}}} {whole}", f'ref_requests_total{{{LABELS},status="200"}} {whole}']
        lines += ["# TYPE ref_request_seconds histogram"]
        for edge, count in zip(EDGES, self.counts, strict=True):
            so_far += count
            lines.append(f'ref_request_seconds_bucket{{{LABELS},le="{edge}"}} {so_far}')
        lines += [
            f"ref_request_seconds_sum{{{LABELS}}} {self.seconds}",
            f"ref_request_seconds_count{{{LABELS}}} {whole}",
            f'ref_info{{{LABELS},version="1",model_version="v1"}} 1',
        ]
        return "\n".join(lines) + "\n"

    def changed(self, groups: dict[str, dict[str, Any]]) -> None:
        self.count()
        for group, knobs in groups.items():
            self.config[group].update(knobs)
        self.revision += 1


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        super().__init__(("127.0.0.1", PORT), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        stub = self.server.stub
        with stub.lock:
            if self.path == "/metrics":
                self._said(200, stub.page().encode(), "text/plain; version=0.0.4")
            elif self.path == "/admin/knobs":
                self._answer(200, {f"{group}.{knob}": True for group, knobs in stub.config.items() for knob in knobs})
            elif self.path == "/admin/config":
                self._answer(200, stub.config)
            else:
                self._answer(404, {})

    def do_PATCH(self) -> None:
        stub, groups = self.server.stub, json.loads(self._body())
        if stub.late:
            self.close_connection = True
            time.sleep(PATIENCE)
            return
        with stub.lock:
            if self.headers["if-match"] not in (stub.etag, "*"):
                self._answer(412, {"error": "changed-meanwhile"})
                return
            stub.changed(groups)
            self._answer(200, stub.config)

    def do_POST(self) -> None:
        stub, order = self.server.stub, json.loads(self._body())
        with stub.lock:
            stub.count()
            stub.helps, stub.late = order.get("helps", stub.helps), order.get("late", stub.late)
            stub.changed(order.get("config", {}))
            self._answer(200, {})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the other one was killed
            super().handle()

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"] or 0))

    def _answer(self, status: int, value: object) -> None:
        self._said(status, json.dumps(value).encode(), "application/json")

    def _said(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("etag", self.server.stub.etag)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(stub: Stub) -> Iterator[Stub]:
    """Serves `stub` at URL; waits for the port while somebody else has it."""
    server = _bound(stub)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _bound(stub: Stub) -> Server:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return Server(stub)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    with served(Stub()):
        sys.stdout.write(f"{URL}\n")
        sys.stdout.flush()
        threading.Event().wait()
