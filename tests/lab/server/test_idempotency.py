"""A change that is repeated with its Idempotency-Key is applied once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.idempotency import MAX_KEY_LENGTH, IdempotencyKeys
from tests.lab.server.running_server import ADMIN, Running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with Running() as running:
        yield running


def patch(server: Running, key: str, lanes: bool, etag: str = "*") -> httpx.Response:
    body, headers = {"governance": {"lanes": lanes}}, {**ADMIN, "if-match": etag, "idempotency-key": key}
    return server.client.patch("/admin/config", json=body, headers=headers)


def lanes(server: Running) -> bool:
    return bool(server.client.get("/admin/config", headers=ADMIN).json()["governance"]["lanes"])


def test_repeated_change_is_not_applied_again(server: Running) -> None:
    first = patch(server, "one", True)
    assert (first.status_code, lanes(server)) == (200, True)
    patch(server, "one-undo", False)
    again = patch(server, "one", True)
    assert (again.status_code, again.content, again.headers["etag"]) == (200, first.content, first.headers["etag"])
    assert again.headers["instance-id"] == first.headers["instance-id"]
    assert not lanes(server)


def test_change_without_a_key_is_applied_each_time(server: Running) -> None:
    tags = set()
    for _ in range(2):
        body, headers = {"governance": {"lanes": False}}, {**ADMIN, "if-match": "*"}
        tags.add(server.client.patch("/admin/config", json=body, headers=headers).headers["etag"])
    assert len(tags) == 2


def test_refused_change_is_not_remembered(server: Running) -> None:
    assert patch(server, "stale", True, '"none"').status_code == 412
    assert patch(server, "stale", True).status_code == 200
    assert lanes(server)


def test_key_of_another_request_is_refused(server: Running) -> None:
    patch(server, "mine", True)
    other = patch(server, "mine", False)
    assert (other.status_code, other.json()["error"]) == (422, "key-reused")
    assert lanes(server)


@pytest.mark.parametrize("key", ["", "x" * (MAX_KEY_LENGTH + 1), "a\tb"])
def test_invalid_key_is_refused(server: Running, key: str) -> None:
    assert patch(server, key, True).json()["error"] == "invalid-key"


def test_requests_with_one_key_at_the_same_time_run_the_operation_once(server: Running) -> None:
    headers = {**ADMIN, "if-match": "*", "idempotency-key": "warm"}
    server.model.gate.clear()

    def warm_up(_: int) -> httpx.Response:
        return httpx.post(f"{server.url}/admin/warm-up", headers=headers, trust_env=False, timeout=20)

    with ThreadPoolExecutor(4) as pool:
        sent = pool.map(warm_up, range(4))
        server.model.gate.set()
        answers = list(sent)
    assert {answer.status_code for answer in answers} == {200}
    assert server.client.get("/admin/acts", headers=ADMIN).json()["warm_ups"] == 1


def request(key: str) -> Request:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"idempotency-key", key.encode())]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


class Handler:
    """Counts how often it is called; raises `error` once."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, _: Request) -> Response:
        self.calls += 1
        await self.gate.wait()
        error, self.error = self.error, None
        if error:
            raise error
        return Response(str(self.calls).encode())


def test_oldest_keys_are_forgotten() -> None:
    async def main() -> None:
        keys, handler = IdempotencyKeys(limit=2), Handler()
        bodies = [(await keys.respond(request(key), handler)).body for key in ("a", "b", "a", "c", "b", "a")]
        assert bodies == [b"1", b"2", b"1", b"3", b"2", b"4"]

    asyncio.run(main())


def test_repetition_of_a_request_that_fails_is_tried_by_itself() -> None:
    async def main() -> None:
        keys, handler = IdempotencyKeys(), Handler()
        handler.gate.clear()
        handler.error = BadRequest(412, "changed", "it has changed")
        tasks = [asyncio.create_task(keys.respond(request("a"), handler)) for _ in range(3)]
        await asyncio.sleep(0)
        handler.gate.set()
        first, *others = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(first, BadRequest)
        assert [one.body for one in others if isinstance(one, Response)] == [b"2", b"2"]

    asyncio.run(main())
