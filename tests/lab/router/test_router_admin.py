"""The router's admin interface."""

from __future__ import annotations

import os
from typing import Any

import pytest

from latdoctor.lab.server.load_balancing import RouterConfig, digest, patched_router_config
from tests.lab.router.cluster import TOKEN, Cluster, cluster, run

LET_IN = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}


async def call(
    found: Cluster, method: str, path: str, *, headers: dict[str, str] | None = None, **options: Any
) -> tuple[int, Any, str]:
    async with found.session.request(method, path, headers=headers or LET_IN, **options) as answer:
        return answer.status, await answer.json(), answer.headers.get("etag", "")


def test_a_change_needs_the_present_etag() -> None:
    async def test() -> None:
        async with cluster("a", "b") as found:
            status, config, tag = await call(found, "GET", "/admin/config")
            assert (status, config["policy"]) == (200, "least-loaded")
            assert tag.startswith(f'"{digest(found.fleet.config)}-')
            seen = {**LET_IN, "if-match": tag}
            change = {"policy": "weighted", "weights": {"b": 0}}
            status, config, newer = await call(found, "PATCH", "/admin/config", headers=seen, json=change)
            assert (status, config["weights"], config["slow_start_ms"]) == (200, {"b": 0}, 0)
            assert {(await found.echo())["name"] for _ in range(4)} == {"a"}
            # A client that still has the old ETag would overwrite that.
            status, said, _ = await call(found, "PATCH", "/admin/config", headers=seen, json={"weights": {}})
            assert (status, said["error"]) == (412, "changed")
            status, said, _ = await call(found, "PATCH", "/admin/config", json={"weights": {}})
            assert (status, said["error"]) == (428, "if-match-needed")
            newest = {**LET_IN, "if-match": newer}
            status, config, _ = await call(
                found, "PATCH", "/admin/config", headers=newest, json={"weights": {"b": None}}
            )
            assert (status, config["weights"]) == (200, {})

    run(test)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", 400),
        (b"[]", 422),
        (b"\xff", 400),
        (b'{"weights": 3}', 422),
        (b'{"weights": {"a": "much"}}', 422),
        (b'{"weights": {"z": 1}}', 422),
        (b'{"policy": "best"}', 422),
        (b'{"unknown": 1}', 422),
        (b'{"slow_start_ms": 1e999}', 422),
        (b'{"a": "' + b"x" * 70_000 + b'"}', 413),
    ],
    ids=lambda given: repr(given)[:30],
)
def test_a_bad_change_is_refused_and_changes_nothing(body: bytes, expected: int) -> None:
    async def test() -> None:
        async with cluster("a") as found:
            before = found.fleet.config
            _, _, tag = await call(found, "GET", "/admin/config")
            headers = {**LET_IN, "if-match": tag}
            status, said, _ = await call(found, "PATCH", "/admin/config", headers=headers, data=body)
            assert (status, sorted(said)) == (expected, ["detail", "error"])
            assert found.fleet.config is before

    run(test)


@pytest.mark.parametrize(
    ("token", "given", "expected"), [(TOKEN, "Bearer no", 401), (TOKEN, "", 401), ("", "Bearer ", 403)]
)
def test_requests_without_token_are_refused(token: str, given: str, expected: int) -> None:
    async def test() -> None:
        async with cluster("a", token=token) as found:
            for method, path in [
                ("GET", "/admin/config"),
                ("PATCH", "/admin/config"),
                ("POST", "/admin/replicas/a/replace"),
            ]:
                status, said, _ = await call(found, method, path, headers={"authorization": given, "if-match": "x"})
                assert (status, sorted(said)) == (expected, ["detail", "error"])
            assert found.state("a") == "ready"

    run(test)


def test_a_replica_is_shown_and_replaced() -> None:
    async def test() -> None:
        async with cluster("a", "b") as found:
            old = found.pid("a")
            status, shown, _ = await call(found, "GET", "/admin/replicas")
            assert (status, shown[0]["name"], shown[0]["pid"]) == (200, "a", old)
            status, _, _ = await call(found, "POST", "/admin/replicas/a/replace")
            assert status == 200
            await found.ready("a", "b")
            assert found.pid("a") not in (0, old)
            assert found.fleet.known("a").losses == 0  # it was meant
            with pytest.raises(ProcessLookupError):
                os.kill(old, 0)
            status, said, _ = await call(found, "POST", "/admin/replicas/z/replace")
            assert (status, said["error"]) == (404, "unknown-replica")

    run(test)


def test_a_change_leaves_alone_what_it_does_not_name() -> None:
    before = RouterConfig(policy="weighted", weights={"a": 2, "b": 3}, timeout_ms=500)
    assert patched_router_config(before, {}) == before
    after = patched_router_config(before, {"weights": {"a": None, "c": 1}, "slow_start_ms": 0})
    assert (after.weights, after.timeout_ms, after.slow_start_ms) == ({"b": 3, "c": 1}, 500, 0)
    assert digest(after) != digest(before)
    assert digest(RouterConfig(weights={"a": 1, "b": 2})) == digest(RouterConfig(weights={"b": 2, "a": 1}))


def test_a_repeated_replace_does_not_replace_twice() -> None:
    async def test() -> None:
        async with cluster("a", "b") as found:
            _, shown, tag = await call(found, "GET", "/admin/replicas")
            assert [one["starts"] for one in shown] == [1, 1]
            seen = {**LET_IN, "if-match": tag}
            assert (await call(found, "POST", "/admin/replicas/a/replace", headers=seen))[0] == 200
            await found.ready("a", "b")
            status, said, _ = await call(found, "POST", "/admin/replicas/a/replace", headers=seen)
            assert (status, said["error"]) == (412, "changed")
            _, shown, newer = await call(found, "GET", "/admin/replicas")
            assert ([one["starts"] for one in shown], newer != tag) == ([2, 1], True)

    run(test)


def test_a_draining_replica_gets_no_second_sigterm() -> None:
    async def test() -> None:
        async with cluster("a", "b") as found:
            found.fleet.drain("a")
            status, said, _ = await call(found, "POST", "/admin/replicas/a/replace")
            assert (status, said["error"]) == (409, "no-process")
            assert "being replaced already" in said["detail"]

    run(test)
