"""The admin interface: who is let in, and what can be turned, by whom, and when."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from latdoctor.lab.server.config import ModelSettings, ServerConfig, knobs
from latdoctor.lab.server.inference_server import InferenceServer, ServerIdentity
from latdoctor.lab.server.serve import app
from tests.lab.server.fakes import PATIENCE, FakeModel, fake_backend
from tests.lab.server.running_server import ADMIN, Running

JSON = {**ADMIN, "content-type": "application/json"}
PATHS = [
    ("GET", "/admin/config"),
    ("PATCH", "/admin/config"),
    ("GET", "/admin/knobs"),
    ("POST", "/debug/profile"),
    ("GET", "/debug/memory"),
    ("GET", "/debug/queue"),
    ("GET", "/debug/threads"),
    ("GET", "/admin/acts"),
    ("POST", "/admin/warm-up"),
    ("POST", "/admin/restart-worker"),
    ("POST", "/admin/reload"),
    ("PUT", "/admin/draining"),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with Running() as running:
        yield running


def patch(server: Running, etag: str | None, **groups: dict[str, Any]) -> httpx.Response:
    headers = {**ADMIN, **({} if etag is None else {"if-match": etag})}
    return server.client.patch("/admin/config", json=groups, headers=headers)


def etag(server: Running) -> str:
    return server.client.get("/admin/config", headers=ADMIN).headers["etag"]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong-token-here", "Basic a-token-for-tests", "Bearer é"])
def test_a_wrong_token_is_turned_away(shared: Running, method: str, path: str, given: str) -> None:
    headers = {"authorization": given.encode()} if given else {}
    answer = shared.client.request(method, path, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (401, "wrong-token")


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(("token", "address", "error"), [
    ("a-token-for-tests", "10.0.0.7", "not-local"),
    ("", "127.0.0.1", "no-token"),
])  # fmt: skip
def test_other_machines_and_servers_without_a_token_are_refused(
    method: str, path: str, token: str, address: str, error: str
) -> None:
    async def ask() -> httpx.Response:
        parts = InferenceServer(ServerConfig(), fake_backend(FakeModel()), ServerIdentity("r1", token))
        transport = httpx.ASGITransport(app(parts), client=(address, 1234))
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return await client.request(method, path)

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["error"]) == (403, error)


CHANGING = [(method, path) for method, path in PATHS if method != "GET"]
REFUSED_HEADERS = {
    "page": ({"origin": "http://evil.example"}, 403, "web-page"),
    "page of the server itself": ({"origin": "http://127.0.0.1"}, 403, "web-page"),
    "page without an origin": ({"sec-fetch-site": "cross-site"}, 403, "web-page"),
    "name of a page": ({"host": "evil.example"}, 421, "wrong-host"),
    "form": ({"content-type": "text/plain"}, 415, "not-json"),
    "proxied": ({"x-forwarded-for": "10.0.0.7"}, 403, "not-local"),
    "proxied, it claims to be local": ({"x-forwarded-for": "127.0.0.1"}, 403, "not-local"),
    "proxied in the standard form": ({"forwarded": "for=127.0.0.1"}, 403, "not-local"),
}


@pytest.mark.parametrize(("method", "path"), CHANGING)
@pytest.mark.parametrize(("headers", "status", "error"), REFUSED_HEADERS.values(), ids=REFUSED_HEADERS.keys())
def test_web_pages_and_proxies_are_refused(
    shared: Running, method: str, path: str, headers: dict[str, str], status: int, error: str
) -> None:
    sent = {**ADMIN, "if-match": "*", "content-type": "application/json", **headers}
    answer = shared.client.request(method, path, content=b"{}", headers=sent)
    assert (answer.status_code, answer.json()["error"]) == (status, error)


def test_open_pages_are_read_by_any_name(shared: Running) -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        headers = {"host": "replica-1.models", "origin": "http://dashboard.example", "x-forwarded-for": "10.0.0.7"}
        assert shared.client.get(path, headers=headers).status_code == 200


def test_the_configuration_is_read_with_its_tag(shared: Running) -> None:
    answer = shared.client.get("/admin/config", headers=ADMIN)
    config = msgspec.json.decode(answer.content, type=ServerConfig)
    assert answer.headers["etag"].startswith(f'"{config.etag}-')
    assert shared.client.get("/admin/knobs", headers=ADMIN).json() == dict(knobs())


REFUSED = {
    "unknown-group": (b'{"batches": {}}', 422, "invalid"),
    "unknown-knob": (b'{"batching": {"size": 1}}', 422, "invalid"),
    "not-a-group": (b'{"batching": 5}', 422, "invalid"),
    "wrong-type": (b'{"queue": {"max_requests": "many"}}', 422, "invalid"),
    "out-of-range": (b'{"queue": {"max_requests": 0}}', 422, "invalid"),
    "buckets-not-ascending": (b'{"batching": {"buckets": [512, 64]}}', 422, "invalid"),
    "bucket-below-one": (b'{"batching": {"buckets": [-5, 64]}}', 422, "invalid"),
    "bucket-too-long": (b'{"batching": {"buckets": [99999999999999999999]}}', 422, "invalid"),
    "no-address": (b'{"dependency": {"address": "garbage"}}', 422, "invalid"),
    "no-such-port": (b'{"dependency": {"address": "127.0.0.1:99999"}}', 422, "invalid"),
    "no-url": (b'{"dependency": {"address": "http://[nonsense"}}', 422, "invalid"),
    "unknown-rule": (b'{"batching": {"scheduler": "magic"}}', 422, "invalid"),
    "not-json": (b"{", 400, "malformed"),
    "not-an-object": (b"[1]", 400, "malformed"),
    "huge": (b'{"a":"' + b"a" * 70_000 + b'"}', 413, "too-large"),
    "needs-restart": (b'{"memory": {"backend": "arena"}, "batching": {"age_ms": 1}}', 409, "needs-restart"),
    "not-on-this-machine": (b'{"model": {"precision": "int8"}, "batching": {"age_ms": 1}}', 422, "invalid"),
    "nor-this": (b'{"memory": {"glibc": "returning"}, "model": {"version": "v9"}}', 422, "invalid"),
}


@pytest.mark.parametrize(("body", "status", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_change_changes_nothing(shared: Running, body: bytes, status: int, error: str) -> None:
    before = etag(shared)
    answer = shared.client.patch("/admin/config", content=body, headers={**JSON, "if-match": before})
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert etag(shared) == before
    assert shared.model.settings.version == "v1"
    assert shared.ask(text="a").status_code == 200


def test_a_change_needs_the_tag_of_what_it_changes(server: Running) -> None:
    first = etag(server)
    assert patch(server, None, batching={"age_ms": 1}).status_code == 428
    assert patch(server, '"0123"', batching={"age_ms": 1}).status_code == 412
    changed = patch(server, first, batching={"age_ms": 1})
    assert changed.status_code == 200
    assert changed.json()["batching"]["age_ms"] == 1
    assert patch(server, first, batching={"age_ms": 2}).status_code == 412
    assert patch(server, f'"0123", {changed.headers["etag"]}', batching={"age_ms": 2}).status_code == 200
    assert patch(server, "*", batching={"age_ms": 0}).status_code == 200
    assert etag(server) != first  # though all is as it was: who wrote before and is late must not fit again


def test_of_two_concurrent_changes_one_gets_a_stale_etag(server: Running) -> None:
    async def both() -> list[int]:
        headers = {**ADMIN, "if-match": first}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as client:
            changes = [client.patch("/admin/config", json={"batching": {"age_ms": ms}}) for ms in (1, 2)]
            return sorted(answer.status_code for answer in await asyncio.gather(*changes))

    first = etag(server)
    assert asyncio.run(both()) == [200, 412]


def test_a_read_during_a_change_returns_its_outcome(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client that lost the response to a change would conclude that it was not made."""
    begun, go_on = threading.Event(), threading.Event()
    apply = server.model.apply

    def slow(settings: ModelSettings) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        apply(settings)

    monkeypatch.setattr(server.model, "apply", slow)
    answers: dict[str, httpx.Response] = {}

    def change() -> None:
        answers["change"] = patch(server, "*", model={"version": "v2"})

    def read() -> None:
        answers["read"] = server.client.get("/admin/config", headers=ADMIN)

    threads = [threading.Thread(target=change), threading.Thread(target=read)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert answers["read"].json()["model"]["version"] == "v2"


def test_live_knobs_take_effect_and_lose_no_queued_request(server: Running) -> None:
    server.model.gate.clear()
    first = server.asking(text="one")
    server.model.until_entered()
    waiting = [server.asking(text="word " * length) for length in (4, 2, 3)]
    server.until(lambda: server.page()[("ref_queue_depth", "")] == 3)
    assert patch(server, "*", batching={"scheduler": "count-only", "max_batch_requests": 3}).status_code == 200
    server.model.gate.set()
    assert [asked.answer().status_code for asked in (first, *waiting)] == [200] * 4
    assert [sorted(batch) for batch in server.model.batches] == [[1], [2, 3, 4]]


def test_lanes_are_switched_on_while_requests_wait(server: Running) -> None:
    server.model.gate.clear()
    first = server.asking(text="one")
    server.model.until_entered()
    before = server.asking(text="word " * 30)
    server.until(lambda: server.page()[("ref_queue_depth", "")] == 1)
    assert (
        patch(server, "*", governance={"lanes": True, "lane_boundary_tokens": 10, "lane_age_ms": 600_000}).status_code
        == 200
    )
    after = server.asking(text="two words")
    server.until(lambda: server.page()[("ref_queue_depth", "")] == 2)
    server.model.gate.set()
    assert [asked.answer().status_code for asked in (first, before, after)] == [200] * 3
    assert server.model.batches == [[1], [2], [30]]
    assert server.page()[("ref_queue_wait_seconds_count", "short")] == 1


def test_the_model_and_the_memory_are_tuned_too(server: Running) -> None:
    assert patch(server, "*", model={"version": "v2"}, memory={"compaction_ms": 500}).status_code == 200
    assert server.ask(text="a").json()["model_version"] == "v2"
    assert server.pool.config.compaction_ms == 500
    page = server.page()
    assert page[("ref_latency_by_version_seconds_count", "v2")] == 1
    assert page[("ref_model_version_changes_total", "")] == 1


def test_the_light_model_follows_the_version(server: Running) -> None:
    assert patch(server, "*", governance={"standby": "on"}).status_code == 200
    assert server.ask(text="a").json()["source"] == "standby"
    assert patch(server, "*", model={"version": "v2"}).status_code == 200
    answer = server.ask(text="a").json()
    assert (answer["source"], answer["model_version"]) == ("standby", "v2")
    assert server.page()[("ref_standby_requests_total", "")] == 2
    assert patch(server, "*", governance={"standby": "off"}).status_code == 200
    assert server.ask(text="a").json()["source"] == "model"


def test_sessions_are_shortened_at_once(server: Running) -> None:
    for name in "abc":
        server.ask(text="hello", session=name)
    assert patch(server, "*", sessions={"max_sessions": 1}).status_code == 200
    assert server.page()[("ref_sessions", "")] == 1


def test_one_profile_at_a_time_on_the_workers_thread(server: Running) -> None:
    async def both() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, headers=ADMIN, trust_env=False) as client:
            return list(await asyncio.gather(*(client.post("/debug/profile?seconds=0.1") for _ in range(2))))

    good, busy = sorted(asyncio.run(both()), key=lambda answer: answer.status_code)
    assert (good.status_code, busy.status_code, busy.json()["error"]) == (200, 409, "busy")
    trace = msgspec.json.decode(gzip.decompress(good.content))
    assert [event["name"] for event in trace["traceEvents"]] == ["latdoctor-worker"] * 2
    assert server.client.post("/debug/profile?seconds=0.1", headers=ADMIN).status_code == 200


@pytest.mark.parametrize("seconds", ["0", "-1", "11", "nan", "inf", "soon"])
def test_a_profile_has_a_sensible_length(shared: Running, seconds: str) -> None:
    answer = shared.client.post(f"/debug/profile?seconds={seconds}", headers=ADMIN)
    assert (answer.status_code, answer.json()["error"]) == (422, "invalid")


def test_debug_endpoints_of_the_running_server(server: Running) -> None:
    server.model.gate.clear()
    asked = [server.asking(text="one")]
    server.model.until_entered()
    asked.append(server.asking(text="one two"))
    server.until(lambda: server.page()[("ref_queue_depth", "")] == 1)
    queue = server.client.get("/debug/queue", headers=ADMIN).json()
    threads = server.client.get("/debug/threads", headers=ADMIN).json()
    memory = server.client.get("/debug/memory", headers=ADMIN).json()
    server.model.gate.set()
    assert (queue["depth"], queue["tokens"], queue["works"][0]["tokens"]) == (1, 2, 2)
    assert [name for name, stack in threads.items() if "worker" in name and "forward" in "".join(stack)]
    assert memory["reserved_bytes"] == 64
    assert [one.answer().status_code for one in asked] == [200, 200]
