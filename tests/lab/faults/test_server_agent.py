"""The fault agent: what it does while a disturbance is at work, and that nothing of it is left afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import torch

from latdoctor.lab.faults.server_agent import DISTURBANCES, attach
from latdoctor.lab.server.config import MemoryConfig, ServerConfig
from latdoctor.lab.server.memory import build as build_pool
from latdoctor.lab.server.memory.pool_interface import MIB, OutOfMemory
from tests.lab.server.running_server import ADMIN, Running

FOREVER = 3600


@pytest.fixture
def server() -> Iterator[Running]:
    with Running(agent=attach) as running:
        yield running


def put(server: Running, name: str, **asked: Any) -> httpx.Response:
    return server.client.put(f"/faults/{name}", json=asked, headers=ADMIN)


def delete(server: Running, name: str) -> httpx.Response:
    return server.client.delete(f"/faults/{name}", headers=ADMIN)


def listed(server: Running) -> dict[str, float]:
    answer = server.client.get("/faults", headers=ADMIN)
    assert answer.status_code == 200
    return {each["name"]: each["lifetime_left"] for each in answer.json()}


def turn(server: Running, name: str, lifetime: float = FOREVER, **knobs: dict[str, Any]) -> httpx.Response:
    return put(server, name, knobs=knobs, lifetime=lifetime)


def config(server: Running) -> ServerConfig:
    return server.parts.live_config.config


def admin(server: Running, **groups: dict[str, Any]) -> None:
    answer = server.client.patch("/admin/config", json=groups, headers={**ADMIN, "if-match": "*"})
    assert answer.status_code == 200


def test_knobs_are_turned_and_turned_back(server: Running) -> None:
    before = config(server)
    assert turn(server, "knobs-1", batching={"max_wait_ms": 40, "scheduler": "count-only"}).status_code == 204
    assert (config(server).batching.max_wait_ms, config(server).batching.scheduler) == (40, "count-only")
    assert 0 < listed(server)["knobs-1"] <= FOREVER
    assert delete(server, "knobs-1").status_code == 204
    assert config(server) == before
    assert listed(server) == {}


def test_a_knob_that_another_client_changed_is_not_restored(server: Running) -> None:
    turn(server, "knobs", batching={"max_wait_ms": 40, "max_batch_requests": 4})
    admin(server, batching={"max_wait_ms": 7}, sessions={"ttl_s": 60})
    delete(server, "knobs")
    after = config(server)
    assert (after.batching.max_wait_ms, after.batching.max_batch_requests) == (7, 32)
    assert after.sessions.ttl_s == 60


def test_a_knob_that_had_the_value_already_is_not_put_back(server: Running) -> None:
    turn(server, "knobs", batching={"max_batch_requests": 32})
    admin(server, batching={"max_batch_requests": 8})
    admin(server, batching={"max_batch_requests": 32})
    delete(server, "knobs")
    assert config(server) == ServerConfig()


def test_knobs_turn_back_after_their_lifetime(server: Running) -> None:
    turn(server, "knobs-short", lifetime=0.05, sessions={"ttl_s": 1})
    server.until(lambda: config(server).sessions.ttl_s == 3600)
    server.until(lambda: listed(server) == {})


def test_a_slot_begun_anew_has_ended_first(server: Running) -> None:
    turn(server, "knobs-a", batching={"max_wait_ms": 40})
    turn(server, "knobs-a", batching={"max_batch_requests": 4})
    assert (config(server).batching.max_wait_ms, config(server).batching.max_batch_requests) == (0, 4)
    turn(server, "knobs-b", batching={"max_wait_ms": 9})
    assert sorted(listed(server)) == ["knobs-a", "knobs-b"]
    delete(server, "knobs-a")
    assert (config(server).batching.max_wait_ms, config(server).batching.max_batch_requests) == (9, 32)


REFUSED = {
    "a knob that needs a restart": ("knobs", {"knobs": {"model": {"compile": True}}}, 409, "needs-restart"),
    "a knob that is held": ("knobs-2", {"knobs": {"queue": {"max_requests": 9}}}, 409, "not-possible"),
    "an unknown knob": ("knobs", {"knobs": {"queue": {"most": 1}}}, 422, "invalid"),
    "a bad value": ("knobs", {"knobs": {"batching": {"max_batch_requests": 0}}}, 422, "invalid"),
    "no knobs": ("knobs", {"knobs": {}}, 422, "invalid"),
    "knobs of the wrong form": ("knobs", {"knobs": {"queue": 5}}, 422, "invalid"),
    "an endless lifetime": ("knobs", {"knobs": {"queue": {"max_requests": 9}}, "lifetime": 1e9}, 422, "invalid"),
    "a long name": (f"knobs-{'x' * 40}", {"knobs": {"queue": {"max_requests": 9}}}, 422, "invalid"),
    "another name": ("dials", {"knobs": {"queue": {"max_requests": 9}}}, 422, "invalid"),
    "strength that is none": ("fsync", {"strength": 0}, 422, "invalid"),
    "strength of the wrong type": ("fsync", {"strength": "much"}, 422, "invalid"),
    "no list": ("fsync", [1], 422, "invalid"),
}


@pytest.mark.parametrize(("name", "asked", "status", "error"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_changes_nothing(
    server: Running, name: str, asked: object, status: int, error: str
) -> None:
    turn(server, "knobs-1", queue={"max_requests": 11})
    before = config(server)
    answer = server.client.put(f"/faults/{name}", json=asked, headers=ADMIN)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert config(server) == before
    assert list(listed(server)) == ["knobs-1"]


def test_only_the_admin_may_disturb(server: Running) -> None:
    for answer in (
        server.client.get("/faults"),
        server.client.put("/faults/leak", json={}),
        server.client.delete("/faults/leak"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (401, "wrong-token")
    assert (
        server.client.put(
            "/faults/leak", content=b"x" * 70_000, headers={**ADMIN, "content-type": "application/json"}
        ).status_code
        == 413
    )


@pytest.mark.parametrize("name", [name for name in DISTURBANCES if name not in {"fragment", "hoard", "leak"}])
def test_requests_are_answered_while_it_is_at_work_and_after_it(server: Running, name: str) -> None:
    assert put(server, name, strength=0.001, lifetime=FOREVER).status_code == 204
    assert list(listed(server)) == [name]
    assert server.ask(text="where is my order", session="s").status_code == 200
    assert delete(server, name).status_code == 204
    assert listed(server) == {}
    assert server.ask(text="where is my order", session="s").status_code == 200


def test_the_event_loop_is_really_held(server: Running) -> None:
    def held() -> float:
        return server.page()["ref_loop_lag_seconds_sum", ""]

    before = held()
    put(server, "loop-block", strength=0.1)
    server.until(lambda: held() > before + 0.05)
    delete(server, "loop-block")


def test_a_file_is_closed_only_after_the_last_write(server: Running) -> None:
    put(server, "fsync", strength=4)
    asking = [server.asking(text="hello") for _ in range(8)]
    delete(server, "fsync")
    assert [one.answer().status_code for one in asking] == [200] * 8


def test_a_server_ends_while_it_is_disturbed() -> None:
    with Running(agent=attach) as server:
        turn(server, "knobs", queue={"max_requests": 9})
        put(server, "gc-pauses", strength=0.001)
    assert not [thread for thread in threading.enumerate() if thread.name == "latdoctor-worker"]


def memory(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = server.client.get("/debug/memory", headers=ADMIN).json()
    return found


def arena(**knobs: Any) -> Running:
    settings = msgspec.convert({"backend": "arena", "pool_mib": 8, "limit_mib": 8, **knobs}, MemoryConfig)
    config = ServerConfig(memory=settings)
    return Running(config, agent=attach, pool=build_pool(settings))


def test_fragmentation_leaves_holes_with_room_for_one_request_and_no_large_batch() -> None:
    with arena() as server:
        assert put(server, "fragment", strength=4).status_code == 204
        stats = memory(server)
        longest = server.parts.live_config.config.queue.max_tokens_per_request * 256 * 4
        assert stats["allocated_bytes"] == pytest.approx(4 * MIB, rel=0.15)
        assert stats["largest_free_bytes"] <= longest + 512
        assert stats["inactive_ratio"] > 0.4
        assert stats["fragmentation_ratio"] > 0.8
        assert stats["alloc_oom_total"] == 0
        pool = server.parts.backend.pool
        with pytest.raises(OutOfMemory):
            pool.lease((2 * longest,), torch.uint8, long=True)
        pool.compact()  # removes the holes, as it does in the server
        pool.lease((2 * longest,), torch.uint8, long=True).release()
        delete(server, "fragment")
        assert memory(server)["allocated_bytes"] == 0


def test_a_leak_grows_with_each_request_until_nothing_is_left_and_is_given_back_in_the_end() -> None:
    with arena() as server:
        put(server, "leak", strength=3)
        for left in (3, 6, 6):  # of 8
            assert server.ask(text="hello").status_code == 200
            assert memory(server)["allocated_bytes"] == pytest.approx(left * MIB, rel=0.01)
        delete(server, "leak")
        assert memory(server)["allocated_bytes"] == 0


def test_a_hoard_is_held_and_given_back() -> None:
    with arena() as server:
        put(server, "hoard", strength=6)
        assert memory(server)["allocated_bytes"] == pytest.approx(6 * MIB, rel=0.01)
        put(server, "hoard", strength=500)  # more than there is
        assert memory(server)["allocated_bytes"] == pytest.approx(8 * MIB, rel=0.01)
        delete(server, "hoard")
        assert memory(server)["allocated_bytes"] == 0


@pytest.mark.parametrize(
    ("settings", "strength"),
    [({"backend": "glibc"}, 1.0), ({"limit_mib": 4096}, 1.0), ({}, 7.0)],
    ids=["another backend", "an arena that would grow", "too much"],
)
def test_what_cannot_be_fragmented_is_left_as_it_was(settings: dict[str, Any], strength: float) -> None:
    with arena(**settings) as server:
        before = memory(server)
        answer = put(server, "fragment", strength=strength)
        assert (answer.status_code, answer.json()["error"]) == (409, "not-possible")
        after = memory(server)
        assert listed(server) == {}
        assert after["segments"] == before["segments"]
        assert after["alloc_total"] == before["alloc_total"]


CONTROLLED = {"mode": "on", "window_ms": 100, "interval_ms": 50}


def test_a_controller_whose_measurements_freeze_says_that_it_is_blind(server: Running) -> None:
    admin(server, control=CONTROLLED)
    assert put(server, "control-blind", lifetime=FOREVER).status_code == 204
    server.until(lambda: server.page()["ref_control_blind", ""] == 1)
    assert delete(server, "control-blind").status_code == 204
    server.until(lambda: server.page()["ref_control_blind", ""] == 0)


def test_a_controller_whose_measurements_swing_goes_to_and_fro(server: Running) -> None:
    admin(server, control={**CONTROLLED, "hold_off_s": 0})
    assert put(server, "control-swings", strength=0.4, lifetime=FOREVER).status_code == 204
    server.until(
        lambda: (
            server.ask(text="one").status_code in (200, 429) and server.page()["ref_control_reversals_total", ""] > 1
        )
    )


def test_poisoned_answers_are_given_and_counted_as_wrong(server: Running) -> None:
    admin(server, answer_cache={"mode": "exact", "check_share": 0})
    right = server.ask(text="one").json()["intent"]
    assert put(server, "poison-answers", strength=1, lifetime=FOREVER).status_code == 204
    server.until(lambda: server.ask(text="one").json()["intent"] != right)
    admin(server, answer_cache={"check_share": 1})
    assert server.ask(text="one").json()["intent"] == right
    assert server.page()["ref_answer_cache_wrong_total", ""] == 1
    assert delete(server, "poison-answers").status_code == 204
