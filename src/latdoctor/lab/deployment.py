"""All processes of a scenario, started in order and ended in order: who answers, and where faults can be put in."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from latdoctor.lab.admin import Admin
from latdoctor.lab.faults.injecting import Site
from latdoctor.lab.knobs import typed
from latdoctor.lab.scenario import Scenario
from latdoctor.lab.server.config import patched
from latdoctor.lab.servers import DependencyProcess, ProxyProcess, RouterProcess, ServerProcess


class Deployment:
    """The servers of `scenario` and what stands beside them. Leave it as a context: no process outlives it."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._ends = ExitStack()
        self._server: ServerProcess | None = None
        self._router: RouterProcess | None = None
        self._clients_proxy: ProxyProcess | None = None
        self._dependency_proxy: ProxyProcess | None = None

    def __enter__(self) -> Deployment:
        """Starts everything. Raises OperationError where something does not become ready, UsageError."""
        with self._ends:  # ends what has been started where something after it does not start
            self._start()
            self._ends = self._ends.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    @property
    def address(self) -> str:
        """Where clients send their requests."""
        return self._clients_proxy.url if self._clients_proxy else self._front.url

    @property
    def pages(self) -> tuple[str, ...]:
        """Who shows a metrics page: the router first, if there is one, then each server."""
        router = (self._router.url,) if self._router else ()
        return (*router, *self.servers)

    @property
    def servers(self) -> tuple[str, ...]:
        """The base addresses of the servers."""
        if self._router:
            return tuple(replica.url for replica in self._router.replicas())
        return (self._front.url,)

    @property
    def pids(self) -> tuple[int, ...]:
        """The servers' processes at this moment."""
        if self._router:
            return tuple(replica.pid for replica in self._router.replicas() if replica.pid)
        return (self._front.pid,)

    @property
    def router(self) -> str:
        """The base address of the router; empty without one."""
        return self._router.url if self._router else ""

    @property
    def token(self) -> str:
        """What the admin interfaces of the servers and of the router want to be told."""
        return self._front.token

    @property
    def site(self) -> Site:
        """Where faults can be put in, at this moment."""
        return Site(
            servers=self._admins,
            pids=self.pids,
            router=self._router.admin if self._router else None,
            clients_proxy=self._clients_proxy.admin if self._clients_proxy else None,
            dependency_proxy=self._dependency_proxy.admin if self._dependency_proxy else None,
            restart=self._server.restart if self._server else None,
        )

    def configure(self, knobs: Mapping[str, Mapping[str, Any]]) -> None:
        """Turns live knobs of every server. Raises OperationError, UsageError."""
        for server in self._admins:
            server.configure(typed(knobs))

    @property
    def _front(self) -> ServerProcess | RouterProcess:
        front = self._router or self._server
        if front is None:
            raise RuntimeError("the deployment has not been entered")
        return front

    @property
    def _admins(self) -> tuple[Admin, ...]:
        if self._router:
            return tuple(self._router.replica_admin(replica.url) for replica in self._router.replicas())
        return (self._server.admin,) if self._server else ()

    def _start(self) -> None:
        config = self._scenario.config()
        if self._scenario.dependency is not None:
            dependency = DependencyProcess(self._scenario.dependency)
            self._ends.enter_context(dependency.child)
            self._dependency_proxy = self._proxy(dependency.url)
            config = patched(config, {"dependency": {"address": self._dependency_proxy.url}})
            dependency.wait_ready()
        if self._scenario.replicas > 1:
            self._router = self._ends.enter_context(RouterProcess(config, self._scenario.replicas))
        else:
            self._server = self._ends.enter_context(ServerProcess(config))
        if self._scenario.clients_proxy:
            self._clients_proxy = self._proxy(self._front.url)
        for proxy in (self._dependency_proxy, self._clients_proxy):
            if proxy is not None:
                proxy.wait_ready()
        self._front.wait_ready()

    def _proxy(self, url: str) -> ProxyProcess:
        proxy = ProxyProcess(url.removeprefix("http://"))
        self._ends.enter_context(proxy.child)
        return proxy
