"""The router in front of real processes on loopback."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from latdoctor.lab.server.intent_request import MAX_BODY_BYTES
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.router import Router, session_of
from latdoctor.lab.server.supervisor import SupervisorTimeouts, free_ports
from tests.lab.router.cluster import DEADLINE, QUICK, Cluster, cluster, eventually, run


def samples(page: str) -> dict[tuple[str, ...], float]:
    """(name, label values …) → value."""
    families = text_string_to_metric_families(page)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


async def hold(found: Cluster, replica: str) -> asyncio.Task[tuple[int, Any]]:
    """A request that `replica` works on and does not answer."""
    before = found.fleet.known(replica).in_flight

    async def ask() -> tuple[int, Any]:
        async with found.session.post("/v1/hold") as answer:
            return answer.status, await answer.json()

    task = asyncio.create_task(ask())
    await eventually(lambda: found.fleet.known(replica).in_flight > before or task.done())
    assert not task.done()
    return task


async def give_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RouterConfig(policy="round-robin", slow_start_ms=0), {"a": 4, "b": 4}),
        (RouterConfig(policy="least-loaded", slow_start_ms=0), {"a": 4, "b": 4}),
        (RouterConfig(policy="weighted", weights={"a": 3}, slow_start_ms=0), {"a": 6, "b": 2}),
        (RouterConfig(policy="weighted", weights={"a": 0}, slow_start_ms=0), {"b": 8}),
    ],
    ids=lambda given: getattr(given, "policy", ""),
)
def test_requests_are_spread_by_the_policy(config: RouterConfig, expected: dict[str, int]) -> None:
    async def test() -> None:
        async with cluster("a", "b", config=config) as found:
            answers = [(await found.echo())["name"] for _ in range(8)]
            assert Counter(answers) == expected
            page = samples(await found.metrics())
            for name, count in expected.items():
                assert page["ref_router_requests_total", name, "200"] == count
                assert page["ref_router_request_seconds_count", name] == count
                assert page["ref_router_replica_up", name] == 1
            assert page["ref_router_arrivals_total",] == page["ref_router_seconds_count",] == 8
            # Another configuration counts from the next request on.
            found.fleet.configure(RouterConfig(policy="weighted", weights={"b": 0}))
            assert (await found.echo())["name"] == "a"

    run(test)


def test_the_least_loaded_replica_gets_the_request() -> None:
    async def test() -> None:
        async with cluster("a", "b") as found:
            await found.echo()  # a has had one: the next tie goes to b
            held = await hold(found, "b")
            assert [(await found.echo())["name"] for _ in range(5)] == ["a"] * 5
            assert samples(await found.metrics())["ref_router_in_flight", "b"] == 1
            await give_up(held)

    run(test)


def test_requests_and_responses_pass_without_hop_by_hop_headers() -> None:
    async def test() -> None:
        async with cluster("a") as found:
            body = '{"text": "grüße"}'
            headers = {"x-request-id": "r-1", "te": "trailers", "content-type": "application/json"}
            async with found.session.post("/v1/echo/x%2Fy?q=1&r=%20", data=body.encode(), headers=headers) as answer:
                said = await answer.json()
                assert (answer.headers["x-replica"], answer.headers["x-own"]) == ("a", "yes")
                assert "keep-alive" not in answer.headers
            assert (said["body"], said["path"]) == (body, "/v1/echo/x%2Fy?q=1&r=%20")
            assert said["headers"]["x-request-id"] == "r-1"
            assert said["headers"]["content-type"] == "application/json"
            assert "te" not in said["headers"]
            async with found.session.post("/v1/busy") as answer:
                assert (answer.status, answer.headers["retry-after"]) == (429, "7")
                assert await answer.json() == {"error": "busy"}

    run(test)


def test_a_path_cannot_leave_what_is_routed() -> None:
    async def test() -> None:
        async with cluster("a") as found:
            url = found.session._base_url  # the client must not tidy the path
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(b"GET /v1/../turn/unready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            answer = await reader.read(-1)
            assert b'"path": "/v1/../turn/unready"' in answer  # unchanged, so it matches no route
            writer.close()
            async with found.session.post("/turn/unready") as refused:
                assert refused.status == 404

    run(test)


def test_a_body_over_the_limit_is_refused_by_the_router() -> None:
    async def test() -> None:
        async with cluster("a") as found:
            assert len((await found.echo("x" * MAX_BODY_BYTES))["body"]) == MAX_BODY_BYTES
            async with found.session.post("/v1/echo", data="x" * (MAX_BODY_BYTES + 1)) as answer:
                assert (answer.status, (await answer.json())["error"]) == (413, "too-large")
            page = samples(await found.metrics())
            assert page["ref_router_unrouted_total", "too-large"] == 1
            assert page["ref_router_requests_total", "a", "200"] == 1

    run(test)


def test_a_killed_replica_is_answered_for_then_replaced_and_eased_in() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=RouterConfig(policy="round-robin", slow_start_ms=600_000)) as found:
            old = found.pid("a")
            held = [await hold(found, name) for name in ("a", "b")]
            os.kill(old, signal.SIGKILL)
            status, said = await held[0]
            assert (status, said["error"]) == (503, "replica-lost")
            assert "replica a was lost while it had this request" in said["detail"]
            assert not held[1].done()  # the other one's are not disturbed
            await found.fleet.until(lambda all_: all_[0].losses == 1, DEADLINE)
            await found.ready("a")
            assert found.pid("a") not in (0, old)
            # Both are eased in, and alike; now b is as if it had been there for long.
            found.fleet.known("b").ready_since -= 3600
            names = Counter([(await found.echo())["name"] for _ in range(22)])
            assert names == {"b": 20, "a": 2}
            page = samples(await found.metrics())
            assert page["ref_router_replica_lost_total", "a"] == 1
            assert page["ref_router_replica_weight", "a"] == pytest.approx(0.1, abs=0.01)
            assert page["ref_router_requests_total", "a", "503"] == 1
            await give_up(held[1])

    run(test)


def test_a_request_that_could_not_be_delivered_goes_to_the_next() -> None:
    async def test() -> None:
        async with cluster("b") as found:
            unused = f"http://127.0.0.1:{free_ports(1)[0]}"
            fleet = ReplicaPool({"a": unused, "b": found.fleet.known("b").url}, RouterConfig(policy="round-robin"))
            fleet.ready("a")
            fleet.ready("b")
            async with Router(fleet) as router:
                answers = [await ask(router, "POST", "/v1/echo") for _ in range(4)]
            assert [status for status, _ in answers] == [200] * 4
            assert fleet.known("a").state == "unready"

    run(test)


def test_a_router_of_one_try_sends_no_request_again() -> None:
    async def test() -> None:
        async with cluster("b") as found:
            unused = f"http://127.0.0.1:{free_ports(1)[0]}"
            fleet = ReplicaPool({"a": unused, "b": found.fleet.known("b").url}, RouterConfig(policy="round-robin"))
            fleet.ready("a")
            fleet.ready("b")
            async with Router(fleet, one_try=True) as router:
                answers = [await ask(router, "POST", "/v1/echo") for _ in range(4)]
                page = samples((await ask(router, "GET", "/metrics"))[1].decode())
            assert sorted(status for status, _ in answers) == [200, 200, 503, 503]
            assert page["ref_router_unrouted_total", "replica-unreachable"] == 2
            assert fleet.known("a").state == "ready"  # what watches it says when it is not

    run(test)


async def ask(router: Router, method: str, path: str) -> tuple[int, bytes]:
    """One request through the application itself, without a port."""
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    sent: list[dict[str, Any]] = []
    waiting = asyncio.Event()
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await waiting.wait()  # the client stays
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await router.app()({**scope, "headers": []}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def test_without_a_ready_replica_the_answer_is_503() -> None:
    async def test() -> None:
        fleet = ReplicaPool({"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"})
        async with Router(fleet) as router:
            status, body = await ask(router, "POST", "/v1/intent")
            assert (status, b'"no-replica"' in body) == (503, True)
            assert (await ask(router, "GET", "/readyz"))[0] == 503
            assert (await ask(router, "GET", "/healthz"))[0] == 200
            page = samples((await ask(router, "GET", "/metrics"))[1].decode())
            assert page["ref_router_unrouted_total", "no-replica"] == 1
            assert page["ref_router_replica_up", "a"] == 0
            fleet.ready("b")
            assert (await ask(router, "GET", "/readyz"))[0] == 200

    run(test)


def test_a_replica_that_says_it_is_not_ready_gets_nothing_until_it_is() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=RouterConfig(policy="round-robin", slow_start_ms=0)) as found:
            pid = found.pid("a")
            await found.turn("a", "unready")
            await found.fleet.until(lambda all_: all_[0].state == "unready", DEADLINE)
            assert {(await found.echo())["name"] for _ in range(4)} == {"b"}
            await found.turn("a", "ready")
            await found.ready("a")
            assert {(await found.echo())["name"] for _ in range(4)} == {"a", "b"}
            assert found.pid("a") == pid

    run(test)


def test_a_frozen_replica_is_timed_out_taken_away_and_taken_back() -> None:
    async def test() -> None:
        timeouts = SupervisorTimeouts(probe_every=0.01, probe_timeout=0.05, failed_probes=2, start=20, drain=10)
        config = RouterConfig(policy="round-robin", slow_start_ms=0, timeout_ms=20)
        async with cluster("a", timeouts=timeouts, config=config) as found:
            pid = found.pid("a")
            os.kill(pid, signal.SIGSTOP)
            async with found.session.post("/v1/echo") as answer:
                assert (answer.status, (await answer.json())["error"]) == (504, "replica-timeout")
            await found.fleet.until(lambda all_: all_[0].state == "unready", DEADLINE)
            async with found.session.post("/v1/echo") as answer:
                assert (answer.status, (await answer.json())["error"]) == (503, "no-replica")
            os.kill(pid, signal.SIGCONT)
            await found.ready("a")
            assert found.pid("a") == pid

    run(test)


def test_a_client_that_goes_away_takes_its_request_back() -> None:
    async def test() -> None:
        async with cluster("a", timeouts=QUICK) as found:
            url = found.session._base_url
            _, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(b"POST /v1/hold HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
            await eventually(lambda: found.fleet.known("a").in_flight == 1)
            writer.close()
            await eventually(lambda: found.fleet.known("a").in_flight == 0)
            gone = 0
            async with aiohttp.ClientSession(found.fleet.known("a").url) as direct:
                while not gone:
                    async with direct.get("/gone") as answer:
                        gone = (await answer.json())["gone"]
            assert samples(await found.metrics())["ref_router_unrouted_total", "client-gone"] == 1

    run(test)


def test_a_session_named_in_the_body_stays_with_its_replica() -> None:
    async def test() -> None:
        async with cluster("a", "b", config=RouterConfig(slow_start_ms=0, sticky=True)) as found:
            bodies = [f'{{"text": "hello", "session": "s{number}"}}' for number in range(8)]
            homes = [(await found.echo(body))["name"] for body in bodies]
            assert set(homes) == {"a", "b"}
            assert [(await found.echo(body))["name"] for body in bodies] == homes
            # What names no session is balanced, and what makes no sense is left to the replica.
            assert Counter([(await found.echo('{"text": "x"}'))["name"] for _ in range(4)]) == {"a": 2, "b": 2}
            assert Counter([(await found.echo("no JSON"))["name"] for _ in range(4)]) == {"a": 2, "b": 2}

    run(test)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"session": "s1", "text": "x"}', "s1"),
        (b'{"text": "x"}', None),
        (b'{"session": null}', None),
        (b'{"session": 3}', None),
        (b"[" * 50_000, None),
        (b'{"session": "\xff"}', None),
        (b"", None),
    ],
    ids=lambda given: repr(given)[:24],
)
def test_session_of_a_body(body: bytes, expected: str | None) -> None:
    assert session_of(body) == expected


def test_while_it_drains_it_says_so_and_asks_its_clients_to_leave() -> None:
    async def test() -> None:
        async with cluster("a") as found:
            found.router.draining = True
            async with found.session.post("/v1/echo", data="x") as answer:
                assert (answer.status, answer.headers["connection"]) == (200, "close")
            async with found.session.get("/readyz") as answer:
                said = await answer.json()
                assert (answer.status, said["replicas"]) == (503, {"a": "ready"})

    run(test)
