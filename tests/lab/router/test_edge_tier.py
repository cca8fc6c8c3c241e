"""The edge tier: which requests it answers, and that the centre answers all others whatever the edge does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.lab.faults.edge_agent import attach
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.edge_nodes import LIGHT_LAYERS, LIGHT_WIDTH, edge_nodes
from latdoctor.lab.server.edge_routing import EdgeRule, PassedOn, is_simple, judged
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.serve import ServeOptions
from latdoctor.lab.server.serve_replicas import edge_commands
from tests.lab.router.cluster import TOKEN, Cluster, cluster, eventually, run
from tests.lab.router.test_router import samples

SHORT = {"text": "where is my order"}
LONG = {"text": "word " * 13}
LET_IN = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
RULE = EdgeRule()


@given(words=st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=30), max_size=20))
def test_a_text_is_simple_up_to_so_many_words_and_characters(words: list[str]) -> None:
    text = " ".join(words)
    expected = len(words) <= RULE.max_words and len(text) <= RULE.max_chars
    assert is_simple(msgspec.json.encode({"text": text}), RULE) == expected
    assert not is_simple(msgspec.json.encode({"text": text}), EdgeRule(bypass=True))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"text": 5}', b'{"audio_seconds": 1}', b'{"text": "a", "session": "s"}', b'{"text": "\xff"}'],
)
def test_audio_conversations_and_invalid_bodies_go_to_the_centre(body: bytes) -> None:
    assert not is_simple(body, RULE)


@given(status=st.integers(100, 599), body=st.binary(max_size=40))
def test_only_a_whole_answer_of_the_model_counts(status: int, body: bytes) -> None:
    assert judged(status, body, RULE) in (PassedOn.FAILED, PassedOn.TIMEOUT)


@given(score=st.floats(0, 1), confidence=st.floats(0, 1))
def test_an_answer_counts_from_the_confidence_on(score: float, confidence: float) -> None:
    found = judged(200, msgspec.json.encode({"intent": "refund", "score": score}), EdgeRule(confidence=confidence))
    assert found == (None if score >= confidence else PassedOn.LOW_CONFIDENCE)


def test_nodes_have_the_replicas_settings_a_light_model_and_settings_of_their_own() -> None:
    base = patched(ServerConfig(), {"queue": {"max_requests": 77}})
    nodes, others = edge_nodes(2, base, ["batching.age_ms=5", "edge.model.width=64"])
    assert others == ("batching.age_ms=5",)
    assert (nodes.config.model.layers, nodes.config.model.width) == (LIGHT_LAYERS, 64)
    assert (nodes.config.queue.max_requests, nodes.config.batching.age_ms) == (77, 5)
    named = edge_commands(ServeOptions(base), nodes)
    assert [one.name for one in named] == ["edge-0", "edge-1"]
    assert all("--set=model.width=64" in one.argv for one in named)
    assert edge_nodes(1, base, [])[0].config.model.width == LIGHT_WIDTH
    with pytest.raises(UsageError, match="sets no knob"):
        edge_nodes(1, base, ["edge.model.depth=1"])


async def intent(found: Cluster, body: object) -> tuple[str, str | None]:
    """Who answered, and the tier's header. Every answer is a 200."""
    async with found.session.post("/v1/intent", json=body) as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["name"], answer.headers.get("x-tier")


async def version(found: Cluster, name: str, version: str) -> None:
    assert found.edge is not None
    url = f"{found.edge.pool.known(name).url}/admin/config"
    async with found.session.patch(url, json={"model": {"version": version}}, headers=LET_IN) as answer:
        assert answer.status == 200


def with_edge(test: Callable[[Cluster], Coroutine[Any, Any, None]], *names: str, **knobs: Any) -> None:
    config = RouterConfig(slow_start_ms=0, **{"edge_timeout_ms": 5000, **knobs})

    async def whole() -> None:
        async with cluster("a", config=config, edge=names or ("e",), edge_agent=attach) as found:
            await test(found)

    run(whole)


def test_simple_requests_are_answered_at_the_edge_and_the_others_at_the_centre() -> None:
    async def test(found: Cluster) -> None:
        assert await intent(found, SHORT) == ("e", "edge")
        assert await intent(found, LONG) == ("a", None)
        assert await intent(found, {**SHORT, "session": "s"}) == ("a", None)
        page = samples(await found.metrics())
        assert page["ref_edge_requests_total",] == page["ref_edge_answered_total",] == 1
        assert page["ref_edge_sent_total",] == page["ref_edge_node_answers_total",] == 1
        assert page["ref_router_tier_seconds_count", "edge"] == 1
        assert page["ref_router_tier_seconds_count", "centre"] == 2
        assert page["ref_router_seconds_count",] == page["ref_router_completions_total",] == 3
        assert page["ref_edge_node_up", "e"] == 1
        # Neither the replicas nor the versions of the centre are mixed with those of the edge.
        assert ("ref_router_replica_up", "e") not in page
        assert page["ref_router_requests_total", "a", "200"] == 2
        # The bypass counts from the next request on.
        found.fleet.configure(msgspec.structs.replace(found.fleet.config, edge_bypass=True))
        assert await intent(found, SHORT) == ("a", None)
        assert samples(await found.metrics())["ref_edge_bypass",] == 1

    with_edge(test)


@pytest.mark.parametrize(
    ("model", "knobs", "reason"),
    [
        ("unsure", {}, PassedOn.LOW_CONFIDENCE),
        ("slow", {"edge_timeout_ms": 1}, PassedOn.TIMEOUT),
        ("failing", {}, PassedOn.FAILED),
    ],
)
def test_what_the_edge_does_not_answer_well_the_centre_answers(model: str, knobs: dict[str, Any], reason: str) -> None:
    async def test(found: Cluster) -> None:
        await version(found, "e", model)
        names = [(await intent(found, SHORT))[0] for _ in range(3)]
        assert "a" in names
        page = samples(await found.metrics())
        assert page["ref_edge_passed_on_total", reason] == names.count("a")
        assert page["ref_edge_requests_total",] == 3

    with_edge(test, **knobs)


def test_a_full_edge_leaves_the_rest_to_the_centre() -> None:
    async def test(found: Cluster) -> None:
        assert found.edge is not None
        node = found.edge.pool.known("e")
        with found.edge.pool.in_flight(node):
            assert await intent(found, SHORT) == ("a", None)
        assert await intent(found, SHORT) == ("e", "edge")
        assert samples(await found.metrics())["ref_edge_passed_on_total", PassedOn.OVERLOADED] == 1

    with_edge(test, edge_max_in_flight=1)


def test_no_request_fails_while_edge_nodes_are_killed() -> None:
    async def test(found: Cluster) -> None:
        assert found.edge is not None
        asked = [asyncio.create_task(intent(found, SHORT)) for _ in range(4)]
        for name in ("e", "f"):
            found.edge.supervisor.kill(name)
        asked += [asyncio.create_task(intent(found, SHORT)) for _ in range(4)]
        names = [name for name, _ in await asyncio.gather(*asked)]
        assert len(names) == 8
        await found.edge.pool.until(lambda all_: all(one.state == "ready" for one in all_), 20)
        assert (await intent(found, SHORT))[1] == "edge"

    with_edge(test, "e", "f", edge_max_in_flight=0, edge_timeout_ms=300)


def test_while_the_way_to_the_edge_is_lost_the_centre_answers_and_the_way_comes_back() -> None:
    async def test(found: Cluster) -> None:
        async with found.session.put("/faults/edge-route", json={}, headers=LET_IN) as answer:
            assert answer.status == 204
        assert {await intent(found, SHORT) for _ in range(3)} == {("a", None)}
        page = samples(await found.metrics())
        assert page["ref_edge_passed_on_total", PassedOn.TIMEOUT] == page["ref_edge_sent_total",] == 3
        assert page["ref_edge_node_answers_total",] == 0
        assert page["ref_edge_node_up", "e"] == 1  # its ready page is read on another way
        async with found.session.delete("/faults/edge-route", headers=LET_IN) as answer:
            assert answer.status == 204
        found.fleet.configure(msgspec.structs.replace(found.fleet.config, edge_timeout_ms=5000))
        assert await intent(found, SHORT) == ("e", "edge")

    with_edge(test, edge_timeout_ms=20)


def test_the_lost_way_comes_back_after_its_lifetime() -> None:
    async def test(found: Cluster) -> None:
        assert found.edge is not None
        before = found.edge.pool.known("e").url
        async with found.session.put("/faults/edge-route", json={"lifetime": 0.01}, headers=LET_IN) as answer:
            assert answer.status == 204
        await eventually(lambda: found.edge is not None and found.edge.pool.known("e").url == before)

    with_edge(test)


def test_an_edge_node_that_fails_is_ejected_as_a_replica_is() -> None:
    async def test(found: Cluster) -> None:
        await version(found, "e", "failing")
        for _ in range(12):
            await intent(found, SHORT)
        page = samples(await found.metrics())
        assert page["ref_edge_node_ejected", "e"] == 1
        assert page["ref_edge_node_ejected", "f"] == 0

    with_edge(test, "e", "f", outlier_failures=1, outlier_ejection_ms=60_000)


def test_the_nodes_are_listed_for_the_admin() -> None:
    async def test(found: Cluster) -> None:
        async with found.session.get("/admin/edge", headers=LET_IN) as answer:
            assert [one["name"] for one in await answer.json()] == ["e"]
        async with found.session.get("/admin/edge") as answer:
            assert answer.status == 401

    with_edge(test)
