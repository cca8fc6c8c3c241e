"""A router in front of real stub processes, for one test."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from latdoctor.lab.hardened_http_server import HttpServer
from latdoctor.lab.server import router_admin
from latdoctor.lab.server.edge_group import EdgeAgent, EdgeGroup
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.router import Router
from latdoctor.lab.server.serve_replicas import Agent, running
from latdoctor.lab.server.supervisor import ReplicaCommand, Supervisor, SupervisorTimeouts, free_ports
from latdoctor.lab.server.versions.canary_controller import CanaryController
from latdoctor.lab.server.versions.version_rollout import VersionRollout

DEADLINE = 30.0  # for a test that hangs; nothing is measured by it
STUB = str(Path(__file__).with_name("stub_replica.py"))
TOKEN = "secret"  # noqa: S105 (of a test)
QUICK = SupervisorTimeouts(probe_every=0.02, first_pause=0.01, start=20, drain=10)


@dataclass
class Cluster:
    fleet: ReplicaPool
    supervisor: Supervisor
    session: aiohttp.ClientSession  # to the router
    router: Router
    canary: CanaryController
    edge: EdgeGroup | None = None

    async def echo(self, body: str = "", **options: Any) -> dict[str, Any]:
        async with self.session.post("/v1/echo", data=body, **options) as answer:
            assert answer.status == 200, await answer.text()
            found: dict[str, Any] = await answer.json()
            return found

    async def ready(self, *names: str) -> None:
        await self.fleet.until(lambda all_: {one.name for one in all_ if one.state == "ready"} >= {*names}, DEADLINE)

    def pid(self, name: str) -> int:
        return next(one.pid for one in self.fleet.statuses() if one.name == name)

    def state(self, name: str) -> str:
        return self.fleet.known(name).state

    async def turn(self, name: str, what: str) -> None:
        """Makes the stub report ready or unready."""
        async with self.session.post(f"{self.fleet.known(name).url}/turn/{what}") as answer:
            assert answer.status == 200

    async def metrics(self) -> str:
        async with self.session.get("/metrics") as answer:
            assert answer.status == 200
            return await answer.text()


def commands(*names: str, mode: str = "", log: str = "") -> tuple[ReplicaCommand, ...]:
    return tuple(
        ReplicaCommand(
            name,
            (sys.executable, "-I", "-S", STUB, name, str(port), *mode.split()),
            f"http://127.0.0.1:{port}",
            log=log,
        )
        for name, port in zip(names, free_ports(len(names)), strict=True)
    )


@asynccontextmanager
async def cluster(
    *names: str,
    config: RouterConfig | None = None,
    timeouts: SupervisorTimeouts = QUICK,
    token: str = TOKEN,
    agent: Agent | None = None,
    most: int = 0,
    edge: tuple[str, ...] = (),
    edge_agent: EdgeAgent | None = None,
) -> AsyncIterator[Cluster]:
    """Stub replicas of those names, all ready, behind a router that may start up to `most`; `edge`: nodes beside."""
    started = commands(*names)
    fleet = ReplicaPool({one.name: one.url for one in started}, config or RouterConfig(slow_start_ms=0))
    supervisor = Supervisor(fleet, started, timeouts, (lambda name: commands(name)[0]) if most else None, most)
    rollout = VersionRollout(fleet, token)
    nodes = EdgeGroup(commands(*edge), timeouts) if edge else None
    async with Router(fleet, edge=nodes.pool if nodes else None) as router:
        also = [*(agent(fleet, supervisor, token) if agent else ())]
        also += nodes.routes(token, edge_agent) if nodes else ()
        canary = CanaryController(fleet, rollout, router.metrics.versions, router.metrics.registry)
        app = router.app(*router_admin.routes(fleet, supervisor, token, rollout, canary), *also)
        listening = HttpServer(app, drain_seconds=1)
        await listening.start()
        await supervisor.start()
        if nodes:
            await nodes.supervisor.start()
        try:
            async with aiohttp.ClientSession(listening.url) as session:
                found = Cluster(fleet, supervisor, session, router, canary, nodes)
                await found.ready(*names)
                if nodes:
                    await nodes.pool.until(lambda all_: all(one.state == "ready" for one in all_), DEADLINE)
                async with running(canary.run()):
                    yield found
        finally:
            await listening.stop()
            await supervisor.stop()
            if nodes:
                await nodes.supervisor.stop()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await test()

    asyncio.run(bounded())


async def eventually(holds: Callable[[], bool]) -> None:
    """Lets the loop turn until it is so; the test's deadline bounds it."""
    while not holds():
        await asyncio.sleep(0)
