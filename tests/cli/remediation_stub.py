"""A slow service under remediation: a real admin interface, synthetic observations, and a clock that waits for nothing.

P99 follows the configuration: the scheduler shortens it most, the pool of memory a little, the bound of the queue not.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from latdoctor.cli import remediation_session
from latdoctor.evidence.model import Evidence, Origin, Reading, Window
from latdoctor.remediation.history import History
from latdoctor.remediation.observation import Observation

FINDINGS = ("long-inputs-run-alone", "memory-taken-for-every-forward")
RATE = 120.0  # requests per second


def _config() -> dict[str, dict[str, Any]]:
    batching = {"scheduler": "long-alone", "max_batch_tokens": 8192, "max_batch_requests": 64, "max_waste": 1.0}
    memory = {"glibc": "default", "reuse_buffers": False}
    return {"batching": batching, "memory": memory, "queue": {"max_requests": 100000, "max_tokens": 16777216}}


@dataclass
class SlowService:
    """`helps`: whether the playbook does; `interrupted`: Ctrl-C arrives at the first observation after a change;
    `accepts_once`: every change but the first is rejected; `remembers`: whether there is a history before the change.
    """

    helps: bool = True
    healthy: bool = False
    interrupted: bool = False
    accepts_once: bool = False
    remembers: bool = True
    config: dict[str, dict[str, Any]] = field(default_factory=_config)
    revision: int = 1
    passed: float = 0.0  # seconds
    began: float = field(default_factory=time.time)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def clock(self) -> float:
        return self.passed

    def now(self) -> float:
        return self.began + self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds

    def patch(self, values: dict[str, dict[str, Any]], version: str) -> int:
        """The HTTP status."""
        if version != f'"{self.revision}"':
            return 412
        if self.accepts_once and self.revision > 1:
            return 409
        for group, settings in values.items():
            self.config[group].update(settings)
        self.revision += 1
        return 200

    def history(self, step: float) -> History:
        if not self.remembers:
            return History()
        seen = self.observe(0.0).values
        return History(step, {key: (value,) * 100 for key, value in seen.items()}, "simulated")

    def observe(self, seconds: float) -> Observation:
        began = self.now()
        self.passed += seconds
        window, slow = Window(began, self.now()), not self.healthy
        fast = self.helps and self.config["batching"]["scheduler"] == "token-budget"
        pooled = self.helps and bool(self.config["memory"]["reuse_buffers"])
        if self.interrupted and self.revision > 1:
            os.kill(os.getpid(), signal.SIGINT)
        p99 = (2.48 if slow else 0.2) * (0.2 if fast else 1.0) * (0.6 if pooled else 1.0)
        rows: dict[str, float | str] = {
            "latency.p99": p99,
            "error.ratio": 0.0,
            "arrival.rate": RATE,
            "completion.rate": RATE if fast or not slow else 70.0,
            "queue.depth": 3.0 if fast or not slow else 340.0,
            "server.backend": "cpu",
        }
        readings = tuple(Reading(name, "replica/0", value, Origin("page"), window) for name, value in rows.items())
        states = (not slow or fast, not slow or pooled)
        findings = {name: "clear" if clear else "fired" for name, clear in zip(FINDINGS, states, strict=True)}
        return Observation(Evidence(readings=readings), findings, {"slo.p99": 0.5}, began, self.now())


@contextmanager
def slow_service(monkeypatch: pytest.MonkeyPatch, **behaviour: bool) -> Iterator[SlowService]:
    """The service, with `latdoctor remediate` of this process observing it under its own clock."""
    service = SlowService(**behaviour)
    real = remediation_session.RunContext
    at_once = partial(real, now=service.now, clock=service.clock, sleep=service.sleep)
    monkeypatch.setattr(remediation_session, "RunContext", at_once)
    monkeypatch.setattr(remediation_session, "observer", lambda *_: service.observe)
    monkeypatch.setattr(remediation_session, "history_of_run", lambda *_: service.history)
    with ExitStack() as proving, _served(service):
        # Stands for the process that goes on with a proof: it holds the lock.
        def hand_over(run: str, lock: int) -> int:
            proving.callback(os.close, os.dup(lock))
            return 0

        monkeypatch.setattr(remediation_session, "hand_over", lambda place: hand_over)
        yield service


@contextmanager
def _served(service: SlowService) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            knobs = {f"{group}.{name}": True for group, settings in service.config.items() for name in settings}
            pages = {"/admin/config": service.config, "/admin/knobs": knobs}
            self.respond(200 if self.path in pages else 404, pages.get(self.path, {}))

        def do_PATCH(self) -> None:
            values = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.respond(service.patch(values, self.headers["if-match"]), service.config)

        def respond(self, status: int, value: object) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            headers = {"etag": f'"{service.revision}"', "content-type": "application/json"}
            for name, text in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(content)

        log_message: Callable[..., None] = lambda *_: None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
