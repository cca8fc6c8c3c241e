"""A reference server in a process of its own, for the time of a scenario, and its admin interface."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from latdoctor.errors import OperationError
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.replicas import free_ports
from latdoctor.text import clean

READY_WITHIN = 120.0  # seconds: a cold machine loads torch slowly
DRAIN_WITHIN = 30.0


class ServerProcess:
    """`latdoctor lab serve` on a free loopback port. Leave it as a context: the process never outlives it."""

    def __init__(self, config: ServerConfig, *, faults: bool = True) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._token = secrets.token_urlsafe(24)
        self._folder = tempfile.TemporaryDirectory(prefix="latdoctor-lab-")
        self._said = Path(self._folder.name) / "server.log"
        settings = Path(self._folder.name) / "server.yaml"
        settings.write_bytes(msgspec.json.encode(config))  # JSON is YAML
        command = [
            sys.executable,
            "-m",
            "latdoctor",
            "lab",
            "serve",
            "--port",
            str(self.port),
            "--config",
            str(settings),
        ]
        environment = {**os.environ, "LATDOCTOR_ADMIN_TOKEN": self._token, "OMP_NUM_THREADS": "1"}
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603 — our own interpreter and module
                [*command, *(["--fault-agent"] if faults else [])],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def wait_ready(self) -> None:
        """Raises OperationError where the server ends or is not ready in time."""
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise OperationError(f"the server ended before it was ready: {self._last_words()}")
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", timeout=1) as answer:  # noqa: S310
                if answer.status == 200:
                    return
            time.sleep(0.05)
        raise OperationError(f"the server was not ready within {READY_WITHIN:g} s: {self._last_words()}")

    def stop(self) -> None:
        """Drains and ends; a server that does not end is killed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(DRAIN_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def kill(self) -> None:
        self._process.kill()

    def config(self) -> tuple[ServerConfig, str]:
        """The present configuration and its ETag. Raises OperationError."""
        status, headers, body = self._ask("GET", "/admin/config")
        if status != 200:
            raise OperationError(f"the admin interface answered {status}: {clean(body.decode(errors='replace'), 300)}")
        return msgspec.json.decode(body, type=ServerConfig), headers.get("etag", "")

    def configure(self, patch: Mapping[str, Any]) -> None:
        """Turns live knobs, against the version that was read. Raises OperationError."""
        _, etag = self.config()
        self._expect("PATCH", "/admin/config", patch, {"If-Match": etag})

    def disturb(self, name: str, strength: float, lifetime: float) -> None:
        """Asks the fault agent inside the server for a disturbance. Raises OperationError."""
        self._expect("PUT", f"/faults/{name}", {"strength": strength, "lifetime": lifetime})

    def calm(self, name: str) -> None:
        """Ends a disturbance. Raises OperationError."""
        self._expect("DELETE", f"/faults/{name}", None)

    def _expect(self, method: str, path: str, body: object, headers: Mapping[str, str] | None = None) -> None:
        status, _, said = self._ask(method, path, body, headers)
        if status >= 300:
            raise OperationError(f"{method} {path} was answered {status}: {clean(said.decode(errors='replace'), 300)}")

    def _ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        request = urllib.request.Request(  # noqa: S310 — our own server
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return answer.status, {key.lower(): value for key, value in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, {key.lower(): value for key, value in error.headers.items()}, error.read()
        except OSError as error:
            raise OperationError(f"the server does not answer: {error}", where=self.url) from error

    def _last_words(self) -> str:
        lines = self._said.read_text(errors="replace").strip().splitlines()
        return clean(lines[-1], 300) if lines else "it said nothing"
