"""A child process that never outlives its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from types import TracebackType

from latdoctor.errors import OperationError
from latdoctor.lab.server import parent_watch
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
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 — closed in __exit__; a pipe could fill up
        self._process = subprocess.Popen(  # noqa: S603 — our own interpreter and module
            [
                *(sys.executable, "-I", "-S", parent_watch.__file__, str(os.getpid())),
                *(sys.executable, "-m", module, *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._output.close()

    def wait_answers(self, url: str, headers: Mapping[str, str] | None = None, within: float = READY_WITHIN) -> None:
        """Until `url` answers 200. Raises OperationError where the process ends before, or takes too long."""
        deadline = time.monotonic() + within
        request = urllib.request.Request(url, headers=dict(headers or {}))  # noqa: S310 — our own process
        while time.monotonic() < deadline:
            if self.exit_code is not None:
                raise OperationError(f"{self.name} ended before it was ready: {self.last_words()}")
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=1) as answer:  # noqa: S310
                if answer.status == 200:
                    return
            time.sleep(0.05)
        raise OperationError(f"{self.name} was not ready within {within:g} s: {self.last_words()}")

    def stop(self) -> None:
        """Drains and ends the process; kills it after a timeout."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(DRAIN_WITHIN)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        """The last line it wrote."""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return clean(lines[-1], 300) if lines else "no output"
