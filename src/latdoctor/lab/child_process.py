"""Python programs of the laboratory in processes of their own, the fault proxy among them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Self

from latdoctor.errors import OperationError
from latdoctor.http.client import HttpRequest, HttpResponse, send_request
from latdoctor.lab.admin_client import AdminClient
from latdoctor.lab.server import parent_watch
from latdoctor.lab.server.admin_http import ADMIN_TOKEN_VARIABLE
from latdoctor.lab.server.supervisor import free_ports
from latdoctor.sanitize import clean

READY_WITHIN = 120.0  # seconds: a cold machine loads torch slowly
DRAIN_WITHIN = 30.0


class ChildProcess:
    """`python -m MODULE ARGUMENTS` in its own session; a context manager that ends it.

    It also ends with the thread that started it (Linux; see `parent_watch`).
    """

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 — closed in `close`; a pipe could fill up
        self._process = subprocess.Popen(  # noqa: S603 — our own interpreter and module
            parent_watch.watched(sys.executable, "-m", module, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drains and ends the process; kills it after a timeout."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(DRAIN_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()

    def wait_answers(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Until `url` answers 200. Raises OperationError where the process ends before, or takes too long."""
        deadline = time.monotonic() + READY_WITHIN
        request = HttpRequest("GET", url, headers or {})
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise OperationError(f"{self.name} ended before it was ready: {self._last_line()}")
            response = send_request(request, 1.0)
            if isinstance(response, HttpResponse) and response.status == 200:
                return
            time.sleep(0.05)
        raise OperationError(f"{self.name} was not ready within {READY_WITHIN:g} s: {self._last_line()}")

    def _last_line(self) -> str:
        """The last line of its output."""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return clean(lines[-1], 300) if lines else "no output"


class FaultProxyProcess:
    """`latdoctor lab proxy` in front of HOST:PORT; a context manager that ends it, and all connections with it."""

    def __init__(self, to: str) -> None:
        port, control = free_ports(2)
        token = secrets.token_urlsafe(24)
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        self.admin = AdminClient(f"http://127.0.0.1:{control}", token)
        arguments = ["lab", "proxy", "--to", to, "--port", str(port), "--control-port", str(control)]
        self._child = ChildProcess("the fault proxy", "latdoctor", arguments, {ADMIN_TOKEN_VARIABLE: token})

    def wait_ready(self) -> None:
        """Raises OperationError."""
        self._child.wait_answers(f"{self.admin.url}/toxics", self.admin.headers)

    def close(self) -> None:
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
