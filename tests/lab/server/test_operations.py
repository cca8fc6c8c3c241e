"""Operations on a running server: each runs once per request, and no client's request is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.lab.server.fakes import PATIENCE
from tests.lab.server.running_server import ADMIN, Running

NOTHING = {"draining": False, "warm_ups": 0, "worker_restarts": 0, "reloads": 0}
ACTS = {
    "warm_ups": ("POST", "/admin/warm-up", None),
    "worker_restarts": ("POST", "/admin/restart-worker", None),
    "reloads": ("POST", "/admin/reload", None),
    "draining": ("PUT", "/admin/draining", {"draining": True}),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with Running() as running:
        yield running


def acts_of(server: Running) -> tuple[dict[str, Any], str]:
    answer = httpx.get(f"{server.url}/admin/acts", headers=ADMIN, trust_env=False)
    assert answer.status_code == 200
    return answer.json(), answer.headers["etag"]


def act(server: Running, name: str, etag: str | None) -> httpx.Response:
    method, path, body = ACTS[name]
    headers = {**ADMIN, **({} if etag is None else {"if-match": etag})}
    return server.client.request(method, path, json=body, headers=headers)


@pytest.mark.parametrize("name", ACTS)
def test_an_operation_runs_once_for_an_etag(server: Running, name: str) -> None:
    acts, etag = acts_of(server)
    assert acts == NOTHING
    done = act(server, name, etag)
    assert done.status_code == 200
    after, next_etag = acts_of(server)
    assert after == {**NOTHING, name: acts[name] + 1}
    assert next_etag == done.headers["etag"] != etag
    again = act(server, name, etag)
    assert (again.status_code, again.json()["error"]) == (412, "changed-meanwhile")
    assert acts_of(server) == (after, next_etag)
    assert server.ask(text="a").status_code == 200


@pytest.mark.parametrize("name", ACTS)
def test_without_a_tag_or_a_token_nothing_is_done(shared: Running, name: str) -> None:
    method, path, body = ACTS[name]
    before = acts_of(shared)
    assert act(shared, name, None).status_code == 428
    assert act(shared, name, '"0123"').status_code == 412
    assert shared.client.request(method, path, json=body, headers={"if-match": "*"}).status_code == 401
    assert acts_of(shared) == before


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"draining": 1}', b'{"draining": true, "more": 1}'])
def test_a_body_that_says_nothing_is_refused(shared: Running, body: bytes) -> None:
    headers = {**ADMIN, "if-match": "*", "content-type": "application/json"}
    answer = shared.client.put("/admin/draining", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert not acts_of(shared)[0]["draining"]


def test_of_two_at_once_one_is_too_late(server: Running) -> None:
    async def both() -> list[int]:
        async with httpx.AsyncClient(
            base_url=server.url, headers={**ADMIN, "if-match": etag}, trust_env=False
        ) as client:
            asked = [client.post("/admin/warm-up"), client.post("/admin/warm-up")]
            return sorted(answer.status_code for answer in await asyncio.gather(*asked))

    _, etag = acts_of(server)
    warmed = len(server.model.warmed)
    assert asyncio.run(both()) == [200, 412]
    assert acts_of(server)[0]["warm_ups"] == 1
    assert len(server.model.warmed) == warmed + 1


def test_the_worker_warms_up_between_two_batches(server: Running) -> None:
    server.model.gate.clear()
    asked = server.asking(text="a")
    server.model.until_entered()
    answers: list[httpx.Response] = []
    warming = threading.Thread(target=lambda: answers.append(act(server, "warm_ups", "*")))
    warming.start()
    before = list(server.model.warmed)
    server.model.gate.set()
    warming.join(PATIENCE)
    assert asked.answer().status_code == answers[0].status_code == 200
    assert server.model.warmed == [*before, "latdoctor-worker"]


def test_a_warm_up_that_fails_is_not_counted(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ValueError("no")

    monkeypatch.setattr(server.model, "warm_up", fails)
    before = acts_of(server)
    assert act(server, "warm_ups", "*").status_code == 500
    assert acts_of(server) == before


def test_a_new_worker_answers_what_waits(server: Running) -> None:
    old = server.parts.engine.worker
    server.model.gate.clear()
    first = server.asking(text="one")
    server.model.until_entered()
    waiting = [server.asking(text="word " * length) for length in (2, 3, 4)]
    server.until(lambda: server.page()[("ref_queue_depth", "")] == 3)
    answers: list[httpx.Response] = []
    renewing = threading.Thread(target=lambda: answers.append(act(server, "worker_restarts", "*")))
    renewing.start()
    server.until(lambda: server.parts.engine._leaving is old)
    late = server.asking(text="late")
    server.model.gate.set()
    renewing.join(PATIENCE)
    assert [asked.answer().status_code for asked in (first, *waiting, late)] == [200] * 5
    assert answers[0].status_code == 200
    assert server.parts.engine.worker is not old
    assert not old.is_alive()
    assert server.page()[("ref_worker_restarts_total", "")] == 0  # no worker was lost


def test_a_worker_that_does_not_end_is_replaced_when_it_does(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latdoctor.lab.server.admin.RENEWAL_SECONDS", 0.01)
    server.model.gate.clear()
    asked = server.asking(text="one")
    server.model.until_entered()
    answer = act(server, "worker_restarts", "*")
    assert (answer.status_code, answer.json()["error"]) == (503, "worker-busy")
    assert acts_of(server)[0] == NOTHING
    server.model.gate.set()
    assert asked.answer().status_code == 200
    server.until(lambda: acts_of(server)[0]["worker_restarts"] == 1)
    assert server.ask(text="a").status_code == 200


def test_a_reload_returns_the_checksum_of_the_weights_in_use(server: Running) -> None:
    changed = {"governance": {"standby": "on"}}
    assert server.client.patch("/admin/config", json=changed, headers={**ADMIN, "if-match": "*"}).status_code == 200
    light = server.model.made[-1]
    answer = act(server, "reloads", "*")
    assert answer.json() == {**NOTHING, "reloads": 1, "checksum": "v1-2"}
    assert server.model.made[-1] is not light
    assert server.client.get("/admin/config", headers=ADMIN).json()["model"]["version"] == "v1"


def test_a_server_that_is_set_aside_still_answers_and_comes_back(server: Running) -> None:
    assert act(server, "draining", "*").status_code == 200
    assert (server.client.get("/readyz").status_code, server.client.get("/healthz").status_code) == (503, 200)
    answer = server.ask(text="a")
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    taken_back = server.client.put("/admin/draining", json={"draining": False}, headers={**ADMIN, "if-match": "*"})
    assert taken_back.json() == NOTHING
    assert server.client.get("/readyz").status_code == 200


def test_equal_counts_at_another_time_have_another_etag(server: Running) -> None:
    """A delayed request of a client that gave up must not match again."""
    acts, etag = acts_of(server)
    for draining in (True, False):
        server.client.put("/admin/draining", json={"draining": draining}, headers={**ADMIN, "if-match": "*"})
    again, other = acts_of(server)
    assert again == acts
    assert other != etag


def test_a_server_that_ends_is_not_called_back(server: Running) -> None:
    server.parts.readiness.draining = True
    server.client.put("/admin/draining", json={"draining": False}, headers={**ADMIN, "if-match": "*"})
    assert server.client.get("/readyz").status_code == 503
