"""The processes of a scenario: the reference server or replicas with a router, what they call, and fault proxies."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec

from latdoctor.lab.admin_client import AdminClient, typed_knobs
from latdoctor.lab.child_process import ChildProcess, FaultProxyProcess
from latdoctor.lab.dependency_service import StoreSettings
from latdoctor.lab.faults.injection import InjectionTargets
from latdoctor.lab.redis_failover import ReplicatedRedis
from latdoctor.lab.redis_server import RedisServer, RedisSettings
from latdoctor.lab.scenario import Scenario
from latdoctor.lab.server.admin_http import ADMIN_TOKEN_VARIABLE
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.replica_pool import ReplicaStatus
from latdoctor.lab.server.sessions.redis_store import PASSWORD_VARIABLE
from latdoctor.lab.server.supervisor import free_ports


class ServerProcess:
    """`latdoctor lab serve` on a free loopback port, with its own token; a context manager that ends it.

    With more than one of `replicas`, or with `edge` nodes, it is a router in front of them, with the settings `router`.
    `faults`: with fault agents.
    """

    def __init__(
        self,
        config: ServerConfig,
        replicas: int = 1,
        *,
        edge: int = 0,
        router: Mapping[str, Any] | None = None,
        faults: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = secrets.token_urlsafe(24)
        self.admin = AdminClient(self.url, self.token)
        self.is_router = replicas > 1 or edge > 0
        self._folder = tempfile.TemporaryDirectory(prefix="latdoctor-lab-")
        self._arguments = [
            *(["--replicas", str(replicas)] if self.is_router else []),
            *(["--edge", str(edge)] if edge else []),
            *(f"--set=router.{name}={value}" for name, value in (router or {}).items()),
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

    def edge_nodes(self) -> tuple[ReplicaStatus, ...]:
        """The edge nodes of a router that has any. Raises OperationError."""
        _, body = self.admin.ask("GET", "/admin/edge")
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


class Deployment:
    """The servers of `scenario`, its proxies and its dependency; a context manager that ends them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._ends = ExitStack()
        self._started: ServerProcess | None = None
        self._clients_proxy: FaultProxyProcess | None = None
        self._dependency_proxy: FaultProxyProcess | None = None
        self._session_store: RedisServer | ReplicatedRedis | None = None
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
            edge_pids=tuple(node.pid for node in self._server.edge_nodes()) if self._scenario.edge else (),
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
            knobs, environment[PASSWORD_VARIABLE] = self._start_session_store(self._scenario.session_store)
            config = patched(config, {"sessions": {"store": "redis", **knobs}})
        server = ServerProcess(
            config,
            self._scenario.replicas,
            edge=self._scenario.edge,
            router=self._scenario.router,
            environment=environment,
        )
        self._started = self._ends.enter_context(server)
        if self._scenario.clients_proxy:
            self._clients_proxy = self._proxy(self._server.url)
        for proxy in (self._dependency_proxy, self._clients_proxy):
            if proxy is not None:
                proxy.wait_ready()
        self._server.wait_ready()

    def _start_session_store(self, settings: RedisSettings) -> tuple[dict[str, str], str]:
        """Starts the Redis of the sessions: the servers' knobs of its address, and its password."""
        if settings.replica is not None:  # the servers follow Sentinel, past any proxy
            replicated = ReplicatedRedis(settings, settings.replica)
            self._session_store = self._ends.enter_context(replicated)
            return {
                "redis_address": replicated.sentinel.address,
                "sentinel_primary": replicated.name,
            }, replicated.password
        store = self._ends.enter_context(RedisServer(settings))
        self._session_store, self._session_store_proxy = store, self._proxy(store.address)
        self._session_store_proxy.wait_ready()
        return {"redis_address": self._session_store_proxy.address}, store.password

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
        return self._ends.enter_context(FaultProxyProcess(url.removeprefix("http://")))
