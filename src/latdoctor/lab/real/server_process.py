"""A real server as processes of this machine: started from its definition, found by what they run, and ended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import SystemRandom
from typing import Self

from latdoctor.errors import OperationError
from latdoctor.http.client import HttpRequest, HttpResponse, send_request
from latdoctor.lab.real.server_definition import ServerDefinition, find_server
from latdoctor.load.mix import RequestContent
from latdoctor.load.request_template import RequestTemplate
from latdoctor.sanitize import clean

END_WITHIN = 15.0  # seconds from SIGTERM to SIGKILL
_PORTS = range(20000, 28000)  # below those of clients; Dynamo reads a port as 16 bits with sign
_TEMPLATES = Path(__file__).parent / "files"
_WORDS = RequestContent("short-text", 8, 0, None)


class RealServer:
    """A server, with its replicas where it is a router; a context manager that ends all of them.

    `environment` and `arguments` are added to those of the definition; `restart` replaces them.
    """

    def __init__(
        self, definition: ServerDefinition, root: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> None:
        self.definition, self._root = definition, root
        self._environment, self._arguments = environment, arguments
        self._ends = ExitStack()
        self.folder = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="latdoctor-real-")))
        self.port = free_block(definition.ports)
        self.replicas: tuple[RealServer, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        if definition.files:
            shutil.copytree(_TEMPLATES / definition.files, self.folder / "repository")
            for file in self.folder.rglob("*.txt"):
                file.rename(file.with_suffix(""))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def request(self) -> RequestTemplate:
        """Raises OperationError for a server without one."""
        if self.definition.request is None:
            raise OperationError(f"{self.definition.name} is defined without a request")
        return self.definition.request

    @property
    def members(self) -> tuple[RealServer, ...]:
        """This server and those behind it."""
        return (self, *self.replicas)

    @property
    def pages(self) -> tuple[str, ...]:
        """The metrics pages, of the router first."""
        return tuple(one.text(page) for one in self.members for page in one.definition.metrics)

    @property
    def logs(self) -> tuple[Path, ...]:
        """The logs that exist."""
        paths = [one._root / one.text(one.definition.log) for one in self.members]
        return tuple(path for path in paths if path.is_file())

    @property
    def _behind(self) -> tuple[str, ...]:
        return tuple(one.address for one in self.replicas)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def text(self, pattern: str) -> str:
        """`pattern` with its places filled in; several replicas are separated by spaces."""
        ports = {f"port{number}": str(self.port + number) for number in range(1, self.definition.ports)}
        return pattern.format(
            port=self.port, folder=self.folder, root=self._root, replicas=" ".join(self._behind), **ports
        )

    def __enter__(self) -> Self:
        """Starts the replicas, then the server. Raises OperationError where one does not become ready."""
        with self._ends:
            self._ends.callback(self._end)
            if self.definition.replicas:
                behind = find_server(self.definition.replicas.server)
                self.replicas = tuple(
                    self._ends.enter_context(RealServer(behind, self._root, {}))
                    for _ in range(self.definition.replicas.count)
                )
            self._start(self._environment, self._arguments)
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def restart(self, environment: Mapping[str, str] | None = None, arguments: Sequence[str] | None = None) -> None:
        """End the process and start it on the same ports, by default as it was. Raises OperationError."""
        self._end()
        self._start(
            self._environment if environment is None else {**self._environment, **environment},
            self._arguments if arguments is None else arguments,
        )

    def processes(self, engine: bool) -> tuple[int, ...]:
        """The processes of the server, or only those that compute. Raises OperationError where there is none."""
        own = tuple(self._session())
        wanted = self.definition.engine if engine else ""
        found = tuple(pid for pid in own if wanted in _command_line(pid))
        if not found:
            raise OperationError(f"{self.definition.name} has no process {wanted or 'at all'}")
        return found

    def _start(self, environment: Mapping[str, str], arguments: Sequence[str]) -> None:
        filled = [part for one in self.definition.start[1:] for part in self._argument(one)]
        added = {**self.definition.environment, **environment}
        self._process = subprocess.Popen(  # noqa: S603  # a program of the folder that the operator named
            [str(self.definition.program(self._root)), *filled, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._root,
            env={**os.environ, **{name: self.text(value) for name, value in added.items()}},
            start_new_session=True,
        )
        self._wait_answers("GET", self.text(self.definition.ready), b"")
        if self.definition.request:
            content = self.definition.request.content("", _WORDS)
            for _ in range(self.definition.first_answers):
                self._wait_answers("POST", self.address + self.definition.request.path, content)

    def _argument(self, pattern: str) -> Iterator[str]:
        if pattern == "{replicas}":
            yield from self._behind
        else:
            yield self.text(pattern)

    def _wait_answers(self, method: str, url: str, content: bytes) -> None:
        deadline = time.monotonic() + self.definition.ready_within
        request = HttpRequest(method, url, {"Content-Type": "application/json"}, content)
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                raise OperationError(f"{self.definition.name} ended before it was ready: {self._last_line()}")
            response = send_request(request, 5.0)
            if isinstance(response, HttpResponse) and 200 <= response.status < 300:
                return
            time.sleep(0.1)
        limit = self.definition.ready_within
        raise OperationError(f"{self.definition.name} was not ready within {limit:g} s: {self._last_line()}")

    def _last_line(self) -> str:
        path = self._root / self.text(self.definition.log)
        lines = path.read_text(errors="replace").strip().splitlines() if path.is_file() else []
        return clean(lines[-1], 300) if lines else "no output"

    def _session(self) -> Iterator[int]:
        """The processes of the session in which the server was started, the oldest first."""
        leader = self._process.pid if self._process is not None else 0
        for entry in sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
            with suppress(OSError):
                if leader and os.getsid(entry) == leader:
                    yield entry

    def _end(self) -> None:
        if self._process is None:
            return
        own = tuple(self._session())
        _send(own, signal.SIGCONT)  # a stopped process does not end
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_WITHIN)
        _send(tuple(self._session()), signal.SIGKILL)
        self._process.wait()
        self._process = None


def free_block(count: int) -> int:
    """The first of `count` consecutive ports that are free now. Raises OperationError."""
    for _ in range(200):
        first = SystemRandom().choice(_PORTS)
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise OperationError(f"no {count} consecutive free ports between {_PORTS.start} and {_PORTS.stop}")


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
