"""A service in a process of its own: two knobs behind /admin/config, as the reference server has them, and its page.

Usage: python -m tests.crash.service      (writes its address, and serves until its stdin is closed)

P99 on its page is 3 s, and 0.3 s once the scheduler is token-budget. Its ETag never comes back. What a test does to it
goes through /test: GET tells what was asked of it, POST changes how it behaves (`Behaviour`) or what is configured.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
from dataclasses import dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONFIG: dict[str, dict[str, Any]] = {"batching": {"scheduler": "long-alone"}, "governance": {"lanes": False}}
KNOBS = {"batching.scheduler": True, "governance.lanes": True}
LONGEST = 20.0  # seconds for which a test is waited for
RATE = 1000.0  # requests per second: enough for a P99 of a second
EDGES = ("0.1", "0.5", "1", "5", "+Inf")  # seconds
FAST, SLOW = 1, 3  # places in EDGES of what one waits for
LABELS = 'replica="r1",backend="cpu"'


@dataclass
class Behaviour:
    """`helps`: whether the scheduler does. `page`: good, frozen, nan, gone. `late`: how many PATCHes lie, before they
    are looked at, until `released`; their sender may have gone by then. `repeats`: every refusal says what was sent."""

    helps: bool = True
    page: str = "good"
    late: int = 0
    repeats: bool = False


@dataclass
class Service:
    config: dict[str, dict[str, Any]] = field(default_factory=lambda: copy.deepcopy(CONFIG))
    revision: int = 1
    behaviour: Behaviour = field(default_factory=Behaviour)
    asked: list[list[Any]] = field(default_factory=list)  # method, path, status
    counts: list[float] = field(default_factory=lambda: [0.0] * len(EDGES))
    seconds: float = 0.0
    counted: float = field(default_factory=time.monotonic)
    shown: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    lying: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))  # one for each that came
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def etag(self) -> str:
        return f'"{self.revision}"'

    def count(self) -> None:
        """What came and was answered since the last time."""
        now = time.monotonic()
        came, self.counted = RATE * (now - self.counted), now
        fast = self.behaviour.helps and self.config["batching"]["scheduler"] == "token-budget"
        self.counts[FAST if fast else SLOW] += came
        self.seconds += came * (0.3 if fast else 3.0)

    def page(self) -> str:
        if self.behaviour.page == "frozen" and self.shown:
            return self.shown
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
        ]
        lines += [f'ref_info{{{LABELS},version="1",model_version="v1"}} 1']
        if self.behaviour.page == "nan":
            lines = [
                f"{line.rpartition(' ')[0]} NaN" if "_seconds" in line and line[0] != "#" else line for line in lines
            ]
        self.shown = "\n".join(lines) + "\n"
        return self.shown

    def told(self, order: dict[str, Any]) -> None:
        """From a test: the fields of `Behaviour`, `config` with its `revision` (else a new one), `release`."""
        self.count()
        for one in fields(Behaviour):
            if one.name in order:
                setattr(self.behaviour, one.name, order[one.name])
        if "config" in order:
            self.config = order["config"]
            self.revision = order.get("revision", self.revision + 1)
        if order.get("release"):
            self.released.set()


SERVICE = Service()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/test/lying":
            self._answer(200, {"lies": SERVICE.lying.acquire(timeout=LONGEST)})
            return
        with SERVICE.lock:
            if self.path == "/test":
                self._answer(200, {"config": SERVICE.config, "revision": SERVICE.revision, "asked": SERVICE.asked})
            elif self.path == "/metrics":
                good = SERVICE.behaviour.page != "gone"
                self._said(200 if good else 503, SERVICE.page().encode() if good else b"", "text/plain; version=0.0.4")
            elif self.path == "/admin/knobs":
                self._answer(200, KNOBS)
            elif self.path == "/admin/config":
                self._answer(200, SERVICE.config)
            else:
                self._answer(404, {})

    def do_POST(self) -> None:
        order = json.loads(self._body())
        with SERVICE.lock:
            SERVICE.told(order)
            self._answer(200, {})

    def do_PATCH(self) -> None:
        raw = self._body()
        if SERVICE.behaviour.late:
            SERVICE.behaviour.late -= 1
            SERVICE.lying.release()
            SERVICE.released.wait(LONGEST)
        with SERVICE.lock:
            if SERVICE.behaviour.repeats:
                self._answer(409, {"detail": f"not with {self.headers['authorization']}"})
                return
            if self.headers["if-match"] not in (SERVICE.etag, "*"):
                self._answer(412, {"error": "changed-meanwhile"})
                return
            SERVICE.count()
            for group, knobs in json.loads(raw).items():
                SERVICE.config[group].update(knobs)
            SERVICE.revision += 1
            self._answer(200, SERVICE.config)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # the other one was killed
            self.close_connection = True

    def _body(self) -> bytes:
        """Whole, or this connection ends: who was killed between head and body has asked for nothing."""
        length = int(self.headers["content-length"] or 0)
        raw = self.rfile.read(length)
        if len(raw) < length:
            raise ConnectionAbortedError
        return raw

    def _answer(self, status: int, value: object) -> None:
        self._said(status, json.dumps(value).encode(), "application/json")

    def _said(self, status: int, body: bytes, kind: str) -> None:
        if not self.path.startswith("/test"):
            SERVICE.asked.append([self.command, self.path, status])
        self.send_response(status)
        self.send_header("etag", SERVICE.etag)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # of fifty who come at once none waits for a second try


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
