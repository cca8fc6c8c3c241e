"""The faults that a router can be asked for, when it was started with the fault agent."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.faults.router_agent import attach, restore_weights
from latdoctor.lab.server.load_balancing import RouterConfig
from tests.lab.router.cluster import TOKEN, Cluster, cluster, eventually, run

LET_IN = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
NINE_TO_ONE = {"weights": {"a": 9, "b": 1}}


async def ask(found: Cluster, method: str, path: str, **options: Any) -> int:
    async with found.session.request(method, path, **{"headers": LET_IN, **options}) as answer:
        return answer.status


async def at_work(found: Cluster) -> list[str]:
    async with found.session.get("/faults", headers=LET_IN) as answer:
        names: list[str] = await answer.json()
        return names


def test_weights_send_one_replica_nine_times_as_much_until_they_are_taken_back() -> None:
    async def test() -> None:
        async with cluster("a", "b", agent=attach) as found:
            before = found.fleet.config
            assert await ask(found, "PUT", "/faults/weights", json=NINE_TO_ONE) == 204
            assert await at_work(found) == ["weights"]
            assert Counter([(await found.echo())["name"] for _ in range(10)]) == {"a": 9, "b": 1}
            assert await ask(found, "PUT", "/faults/weights", json={"weights": {"a": 1, "b": 4}}) == 204
            assert Counter([(await found.echo())["name"] for _ in range(5)]) == {"a": 1, "b": 4}
            assert await ask(found, "DELETE", "/faults/weights") == 204
            assert (found.fleet.config, await at_work(found)) == (before, [])
            assert await ask(found, "DELETE", "/faults/weights") == 204

    run(test)


def test_weights_take_themselves_back_after_their_lifetime() -> None:
    async def test() -> None:
        async with cluster("a", "b", agent=attach) as found:
            before = found.fleet.config
            assert await ask(found, "PUT", "/faults/weights", json={**NINE_TO_ONE, "lifetime": 0.01}) == 204
            await eventually(lambda: found.fleet.config == before)
            assert await at_work(found) == []

    run(test)


def test_a_canary_lasts_until_it_is_ended_or_its_lifetime_is_over() -> None:
    async def test() -> None:
        async with cluster("a", "b", agent=attach) as found:
            await eventually_known(found)
            bad = {"version": "slow", "share": 0.5}
            assert await ask(found, "PUT", "/faults/canary", json=bad) == 204
            assert await at_work(found) == ["canary"]
            assert [one.version for one in found.fleet.statuses()] == ["v1", "slow"]
            assert await ask(found, "DELETE", "/faults/canary") == 204
            assert ([one.version for one in found.fleet.statuses()], await at_work(found)) == (["v1", "v1"], [])
            assert await ask(found, "PUT", "/faults/canary", json={**bad, "lifetime": 0.01}) == 204
            while [one.version for one in found.fleet.statuses()] != ["v1", "v1"] or found.fleet.config.canary_version:
                await asyncio.sleep(0.005)

    run(test)


def test_a_canary_that_another_client_has_promoted_stays() -> None:
    async def test() -> None:
        async with cluster("a", "b", agent=attach) as found:
            await eventually_known(found)
            assert await ask(found, "PUT", "/faults/canary", json={"version": "v2"}) == 204
            promoted = {"model_version": "v2", "canary_version": ""}
            assert await ask(found, "PATCH", "/admin/config", json=promoted, headers={**LET_IN, "if-match": "*"}) == 200
            assert await ask(found, "DELETE", "/faults/canary") == 204
            assert [one.version for one in found.fleet.statuses()] == ["v2", "v2"]

    run(test)


async def eventually_known(found: Cluster) -> None:
    """Until the versions of all replicas are known; the test's deadline bounds it."""
    while not all(one.version for one in found.fleet.statuses()):
        await asyncio.sleep(0.005)


def test_a_killed_replica_is_a_loss_and_is_replaced() -> None:
    async def test() -> None:
        async with cluster("a", "b", agent=attach) as found:
            first = found.pid("b")
            assert await ask(found, "PUT", "/faults/kill", json={"replica": "b"}) == 204
            await found.fleet.until(lambda all_: all_[1].losses == 1 and all_[1].state == "ready", 20)
            assert found.pid("b") not in (0, first)
            assert found.fleet.known("a").losses == 0

    run(test)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/faults/weights", b"", 400),
        ("/faults/weights", b"[]", 422),
        ("/faults/weights", b'{"weights": {}}', 422),
        ("/faults/weights", b'{"weights": {"z": 1}}', 422),
        ("/faults/weights", b'{"weights": {"a": -1}}', 422),
        ("/faults/weights", b'{"weights": {"a": 1}, "lifetime": 0}', 422),
        ("/faults/weights", b'{"weights": {"a": 1}, "lifetime": 1e9}', 422),
        ("/faults/kill", b'{"replica": "z"}', 404),
        ("/faults/kill", b'{"pid": 1}', 422),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(path: str, body: bytes, expected: int) -> None:
    async def test() -> None:
        async with cluster("a", agent=attach) as found:
            before = (found.fleet.config, found.pid("a"))
            assert await ask(found, "PUT", path, data=body) == expected
            assert await at_work(found) == []
            assert (found.fleet.config, found.pid("a")) == before

    run(test)


def test_there_are_no_faults_without_the_token_or_without_the_agent() -> None:
    async def test() -> None:
        async with cluster("a", agent=attach) as found:
            assert await ask(found, "PUT", "/faults/kill", json={"replica": "a"}, headers={}) == 401
        async with cluster("a") as found:
            assert await ask(found, "PUT", "/faults/kill", json={"replica": "a"}) == 404
            assert found.fleet.known("a").losses == 0

    run(test)


names = st.sampled_from("abc")
weights = st.dictionaries(names, st.sampled_from([0.0, 1.0, 2.0, 9.0]))
configs = st.builds(
    RouterConfig,
    policy=st.sampled_from(["round-robin", "least-loaded", "weighted"]),
    weights=weights,
    sticky=st.booleans(),
)


@given(before=configs, change=weights)
def test_undisturbed_the_configuration_is_as_it_was(before: RouterConfig, change: dict[str, float]) -> None:
    during = msgspec.structs.replace(before, policy="weighted", weights={**before.weights, **change})
    assert restore_weights(during, during, before) == before


@given(before=configs, change=weights, name=names)
def test_restore_keeps_changes_of_other_clients(before: RouterConfig, change: dict[str, float], name: str) -> None:
    during = msgspec.structs.replace(before, policy="weighted", weights={**before.weights, **change})
    now = msgspec.structs.replace(
        during, policy="round-robin", weights={**during.weights, name: 7.0}, sticky=not before.sticky
    )
    after = restore_weights(now, during, before)
    assert (after.policy, after.sticky, after.weights[name]) == ("round-robin", not before.sticky, 7.0)
    others = {other: weight for other, weight in before.weights.items() if other != name}
    assert {other: weight for other, weight in after.weights.items() if other != name} == others
