"""The mechanism of app.balance.route-away: a router in front of two whole reference servers, one of which drains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from latdoctor.conditions.evaluator import FAILS, HOLDS, TruthStatus
from latdoctor.lab.hardened_http_server import HttpServer
from latdoctor.lab.server.inference_server import ServerIdentity
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaPool, ReplicaState
from latdoctor.lab.server.router import Router
from latdoctor.lab.server.supervisor import ReplicaCommand, Supervisor
from latdoctor.remediation.observation import Observation, evaluate_mechanism
from latdoctor.remediation.playbook_library import shipped
from tests.lab.router.cluster import DEADLINE, QUICK, run
from tests.lab.server.running_server import ADMIN, TOKEN, Running
from tests.remediation.test_shipped_mechanisms import page, seen

ODD, OTHER = "r1", "r2"
REQUESTS = 8
MECHANISM = shipped().find("app.balance.route-away").verify.mechanism


class Routed:
    """Two servers behind a router that probes them, as one that has started them does."""

    def __init__(self, servers: dict[str, Running], pool: ReplicaPool, session: aiohttp.ClientSession) -> None:
        self.odd = servers[ODD]
        self._pool = pool
        self._session = session

    async def observed(self, requests: int, at: float) -> Observation:
        """The page of the odd replica before and after so many requests to the router."""
        before = await asyncio.to_thread(page, self.odd)
        for number in range(requests):
            async with self._session.post("/v1/intent", json={"text": f"question {number}"}) as answer:
                assert answer.status == 200, await answer.text()
        return seen([before, await asyncio.to_thread(page, self.odd)], at)

    async def drain(self) -> None:
        """What the playbook does, until the router has noticed."""
        await asyncio.to_thread(self._set_draining)
        await self._until(ReplicaState.UNREADY)

    def _set_draining(self) -> None:
        etag = self.odd.client.get("/admin/acts", headers=ADMIN).headers["etag"]
        headers = {**ADMIN, "if-match": etag}
        assert self.odd.client.put("/admin/draining", json={"draining": True}, headers=headers).status_code == 200

    async def _until(self, state: ReplicaState) -> None:
        await self._pool.until(lambda all_: next(one.state for one in all_ if one.name == ODD) == state, DEADLINE)


@asynccontextmanager
async def routed() -> AsyncIterator[Routed]:
    async with AsyncExitStack() as opened:
        servers = {name: Running(identity=ServerIdentity(name, TOKEN)) for name in (ODD, OTHER)}
        for server in servers.values():
            await asyncio.to_thread(server.__enter__)
            opened.push_async_callback(asyncio.to_thread, server.__exit__, None, None, None)
        urls = {name: server.url for name, server in servers.items()}
        pool = ReplicaPool(urls, RouterConfig(policy="round-robin", slow_start_ms=0))
        # The servers run in this process; what is supervised only has to live.
        commands = [ReplicaCommand(name, ("sleep", "infinity"), url) for name, url in urls.items()]
        supervisor = Supervisor(pool, commands, QUICK)
        router = await opened.enter_async_context(Router(pool))
        listening = HttpServer(router.app(), drain_seconds=1)
        await listening.start()
        opened.push_async_callback(listening.stop)
        await supervisor.start()
        opened.push_async_callback(supervisor.stop)
        await pool.until(lambda all_: all(one.state is ReplicaState.READY for one in all_), DEADLINE)
        session = await opened.enter_async_context(aiohttp.ClientSession(listening.url))
        yield Routed(servers, pool, session)


@pytest.mark.parametrize(
    ("drains", "requests", "status"),
    [(True, REQUESTS, HOLDS), (False, REQUESTS, FAILS), (False, REQUESTS // 2, FAILS)],
    ids=["drained", "no change", "half of the load"],
)
def test_requests_go_to_the_other_replica_only_where_this_one_drains(
    drains: bool, requests: int, status: TruthStatus
) -> None:
    async def test() -> None:
        async with routed() as found:
            before = await found.observed(REQUESTS, 1000.0)
            if drains:
                await found.drain()
            after = await found.observed(requests, 1100.0)
        assert [evaluate_mechanism(one, before, before.values).status for one in MECHANISM] == [FAILS]
        assert [evaluate_mechanism(one, after, before.values).status for one in MECHANISM] == [status]

    run(test)
