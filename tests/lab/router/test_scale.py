"""The number of replicas, changed while the router runs: more start, and the newest end when they have answered."""

from __future__ import annotations

import asyncio
import os

import pytest

from latdoctor.lab.server.load_balancing import RouterConfig
from tests.lab.router.cluster import DEADLINE, TOKEN, Cluster, cluster, run
from tests.lab.router.test_router_admin import LET_IN, call

ANY = {**LET_IN, "if-match": "*"}


async def scaled(found: Cluster, replicas: int) -> int:
    status, _, _ = await call(found, "PUT", "/admin/scale", headers=ANY, json={"replicas": replicas})
    return status


def test_more_replicas_start_and_take_requests_once_they_are_ready() -> None:
    async def test() -> None:
        async with cluster("0", "1", most=4) as found:
            assert await scaled(found, 4) == 200
            await found.ready("0", "1", "2", "3")
            assert {(await found.echo())["name"] for _ in range(8)} == {"0", "1", "2", "3"}
            _, shown, _ = await call(found, "GET", "/admin/scale")
            assert shown == {"replicas": 4}

    run(test)


def test_fewer_replicas_end_the_newest_which_completes_its_requests() -> None:
    async def test() -> None:
        async with cluster("0", "1", most=2, config=RouterConfig(slow_start_ms=0, weights={"1": 3.0})) as found:
            pid = found.pid("1")
            assert await scaled(found, 1) == 200
            assert {(await found.echo())["name"] for _ in range(4)} == {"0"}
            await found.fleet.until(lambda all_: [one.name for one in all_] == ["0"], DEADLINE)
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            assert found.fleet.config.weights == {}
            assert 'replica="1"' not in await found.metrics()

    run(test)


def test_a_replica_that_is_removed_takes_no_request_and_is_not_started_again() -> None:
    async def test() -> None:
        async with cluster("0", "1", most=2) as found:
            await scaled(found, 1)
            await scaled(found, 2)  # while the other one may still end: the new one has another name or comes after it
            await found.fleet.until(lambda all_: len(all_) == 2 and all(one.state == "ready" for one in all_), DEADLINE)
            assert found.supervisor.replicas == 2
            assert sum(one.losses for one in found.fleet.statuses()) == 0

    run(test)


def test_the_number_is_set_once_by_the_present_etag_and_within_its_limits() -> None:
    async def test() -> None:
        async with cluster("0", most=2) as found:
            _, _, tag = await call(found, "GET", "/admin/scale")
            seen = {**LET_IN, "if-match": tag}
            status, shown, newer = await call(found, "PUT", "/admin/scale", headers=seen, json={"replicas": 2})
            assert (status, shown, newer != tag) == (200, {"replicas": 2}, True)
            status, said, _ = await call(found, "PUT", "/admin/scale", headers=seen, json={"replicas": 1})
            assert (status, said["error"]) == (412, "changed")
            status, said, _ = await call(found, "PUT", "/admin/scale", json={"replicas": 1})
            assert (status, said["error"]) == (428, "if-match-needed")
            for bad in ({"replicas": 0}, {"replicas": 3}, {"replicas": "2"}, {"replica": 2}):
                status, _, _ = await call(found, "PUT", "/admin/scale", headers=ANY, json=bad)
                assert status == 422, bad
            assert found.supervisor.replicas == 2

    run(test)


def test_a_fixed_number_and_a_wrong_token_are_refused() -> None:
    async def test() -> None:
        async with cluster("0", token=TOKEN) as found:
            assert await scaled(found, 1) == 409
            wrong = {**ANY, "authorization": "Bearer no"}
            status, _, _ = await call(found, "PUT", "/admin/scale", headers=wrong, json={"replicas": 1})
            assert status == 401
            await asyncio.sleep(0)
            assert found.supervisor.replicas == 1

    run(test)


def test_nothing_is_scaled_while_a_canary_runs() -> None:
    """The canary is the last replicas: their number must not change under it."""

    async def test() -> None:
        async with cluster("0", "1", most=4) as found:
            found.fleet.configure(RouterConfig(slow_start_ms=0, canary_version="v2", canary_replicas=1))
            assert await scaled(found, 3) == 409
            assert found.supervisor.replicas == 2

    run(test)
