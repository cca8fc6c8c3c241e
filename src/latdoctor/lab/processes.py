"""The processes of a scenario: the reference server or replicas with a router, what they call, and fault proxies."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from latdoctor.errors import OperationError
from latdoctor.http.client import HttpRequest, HttpResponse, send_request
from latdoctor.lab.admin_client import AdminClient, typed_knobs
from latdoctor.lab.dependency_service import StoreSettings
from latdoctor.lab.faults.injection import InjectionTargets
from latdoctor.lab.redis_server import RedisServer
from latdoctor.lab.scenario import Scenario
from latdoctor.lab.server import parent_watch
from latdoctor.lab.server.admin_http import ADMIN_TOKEN_VARIABLE
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.replica_pool import ReplicaStatus
from latdoctor.lab.server.sessions.redis_store import PASSWORD_VARIABLE
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


class ServerProcess:
    """`latdoctor lab serve` on a free loopback port, with its own token; a context manager that ends it.

    With more than one of `replicas` it is a router in front of them. `faults`: with fault agents.
    """

    def __init__(
        self,
        config: ServerConfig,
        replicas: int = 1,
        *,
        faults: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = secrets.token_urlsafe(24)
        self.admin = AdminClient(self.url, self.token)
        self.is_router = replicas > 1
        self._folder = tempfile.TemporaryDirectory(prefix="latdoctor-lab-")
        self._arguments = [
            *(["--replicas", str(replicas)] if self.is_router else []),
            *(["--fault-agent"] if faults else []),
        ]
        self._config = config
        self._environment = environment or {}
        self._child = self._started(config)

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_ready(self) -> None:
        """Raises OperationError where the server ends or is not ready in time."""
        self._child.wait_answers(f"{self.url}/readyz")

    def restart(self, knobs: Mapping[str, Any]) -> None:
        """Restarts the process on the same port with `knobs` changed; returns when it is ready.

        Raises OperationError where it does not become ready, UsageError for bad knobs.
        """
        config = patched(self._config, knobs, strict=False)
        self._child.close()
        self._child = self._started(config)
        self.wait_ready()

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """The replicas of a router. Raises OperationError."""
        _, body = self.admin.ask("GET", "/admin/replicas")
        return msgspec.json.decode(body, type=tuple[ReplicaStatus, ...])

    def _started(self, config: ServerConfig) -> ChildProcess:
        settings = Path(self._folder.name) / "server.yaml"
        settings.write_bytes(msgspec.json.encode(config))  # JSON is YAML
        arguments = ["lab", "serve", "--port", str(self.port), "--config", str(settings), *self._arguments]
        environment = {ADMIN_TOKEN_VARIABLE: self.token, "OMP_NUM_THREADS": "1", **self._environment}
        return ChildProcess("the router" if self.is_router else "the server", "latdoctor", arguments, environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()
        self._folder.cleanup()


@dataclass(frozen=True, slots=True)
class FaultProxyProcess:
    """`latdoctor lab proxy`: its process, its address, and its control interface."""

    child: ChildProcess
    url: str
    admin: AdminClient

    def wait_ready(self) -> None:
        """Raises OperationError."""
        self.child.wait_answers(f"{self.admin.url}/toxics", self.admin.headers)


class Deployment:
    """The servers of `scenario`, its proxies and its dependency; a context manager that ends them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._ends = ExitStack()
        self._started: ServerProcess | None = None
        self._clients_proxy: FaultProxyProcess | None = None
        self._dependency_proxy: FaultProxyProcess | None = None
        self._session_store: RedisServer | None = None
        self._session_store_proxy: FaultProxyProcess | None = None

    def __enter__(self) -> Self:
        """Starts all processes. Raises OperationError where one does not become ready, UsageError."""
        with self._ends:  # ends the started processes if a later one fails
            self._start()
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def address(self) -> str:
        """The address for the clients' requests."""
        return self._clients_proxy.url if self._clients_proxy else self._server.url

    @property
    def pages(self) -> tuple[str, ...]:
        """The base addresses with a metrics page: the router, if there is one, then each server."""
        return (self.router, *self.servers) if self.router else self.servers

    @property
    def servers(self) -> tuple[str, ...]:
        """The base addresses of the servers."""
        if self._server.is_router:
            return tuple(replica.url for replica in self._server.replicas())
        return (self._server.url,)

    @property
    def pids(self) -> tuple[int, ...]:
        """The current processes of the servers."""
        if self._server.is_router:
            return tuple(replica.pid for replica in self._server.replicas() if replica.pid)
        return (self._server.pid,)

    @property
    def router(self) -> str:
        """The base address of the router; empty without one."""
        return self._server.url if self._server.is_router else ""

    @property
    def token(self) -> str:
        """The token of the servers' and the router's admin interfaces."""
        return self._server.token

    @property
    def injection_targets(self) -> InjectionTargets:
        """The current targets for faults."""
        return InjectionTargets(
            servers=self._admins,
            pids=self.pids,
            router=self._server.admin if self._server.is_router else None,
            clients_proxy=self._clients_proxy.admin if self._clients_proxy else None,
            dependency_proxy=self._dependency_proxy.admin if self._dependency_proxy else None,
            session_store=self._session_store,
            session_store_proxy=self._session_store_proxy.admin if self._session_store_proxy else None,
            restart=None if self._server.is_router else self._server.restart,
        )

    def configure(self, knobs: Mapping[str, Mapping[str, Any]]) -> None:
        """Changes live settings of every server. Raises OperationError, UsageError."""
        for server in self._admins:
            server.configure(typed_knobs(knobs))

    @property
    def _server(self) -> ServerProcess:
        """The server, or the router in front of the replicas."""
        if self._started is None:
            raise RuntimeError("the deployment has not been entered")
        return self._started

    @property
    def _admins(self) -> tuple[AdminClient, ...]:
        return tuple(AdminClient(url, self.token) for url in self.servers)

    def _start(self) -> None:
        config = self._scenario.config()
        if self._scenario.dependency is not None:
            self._dependency_proxy = self._proxy(self._start_dependency(self._scenario.dependency))
            config = patched(config, {"dependency": {"address": self._dependency_proxy.url}})
        environment: dict[str, str] = {}
        if self._scenario.session_store is not None:
            store = self._ends.enter_context(RedisServer(self._scenario.session_store))
            self._session_store, self._session_store_proxy = store, self._proxy(store.address)
            address = self._session_store_proxy.url.removeprefix("http://")
            self._session_store_proxy.wait_ready()
            config = patched(config, {"sessions": {"store": "redis", "redis_address": address}})
            environment[PASSWORD_VARIABLE] = store.password
        server = ServerProcess(config, self._scenario.replicas, environment=environment)
        self._started = self._ends.enter_context(server)
        if self._scenario.clients_proxy:
            self._clients_proxy = self._proxy(self._server.url)
        for proxy in (self._dependency_proxy, self._clients_proxy):
            if proxy is not None:
                proxy.wait_ready()
        self._server.wait_ready()

    def _start_dependency(self, settings: StoreSettings) -> str:
        """Starts the service that the server calls for each request; its address."""
        (port,) = free_ports(1)
        arguments = [
            *("--port", str(port), "--ttl", str(settings.ttl)),
            *("--max-keys", str(settings.max_keys), "--miss-seconds", str(settings.miss_seconds)),
        ]
        child = ChildProcess("the dependency", "latdoctor.lab.dependency_service", arguments)
        self._ends.enter_context(child).wait_answers(f"http://127.0.0.1:{port}/healthz")
        return f"http://127.0.0.1:{port}"

    def _proxy(self, url: str) -> FaultProxyProcess:
        port, control = free_ports(2)
        token = secrets.token_urlsafe(24)
        arguments = ["lab", "proxy", "--to", url.removeprefix("http://"), "--port", str(port)]
        arguments += ["--control-port", str(control)]
        child = ChildProcess("the fault proxy", "latdoctor", arguments, {ADMIN_TOKEN_VARIABLE: token})
        self._ends.enter_context(child)
        return FaultProxyProcess(child, f"http://127.0.0.1:{port}", AdminClient(f"http://127.0.0.1:{control}", token))
