"""Whatever comes in: a clear 4xx as JSON, and the next request is answered as if nothing had been."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.config import BatchingConfig, QueueConfig, ServerConfig
from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.inference_server import ServerIdentity
from latdoctor.lab.server.intent_request import MAX_BODY_BYTES, IntentRequest, parse
from tests.lab.server.running_server import Running

BAD = {
    "empty": (b"", 400, "malformed"),
    "not-json": (b"{", 400, "malformed"),
    "not-utf8": (b'{"text": "\xff"}', 400, "malformed"),
    "half-a-surrogate": (b'{"text": "\\ud800 x"}', 400, "malformed"),
    "deep": (b"[" * 60_000, 422, "invalid"),
    "deep-inside": (b'{"text": ' + b"[" * 60_000, 422, "invalid"),
    "list": (b"[]", 422, "invalid"),
    "nothing-asked": (b"{}", 422, "invalid"),
    "both-asked": (b'{"text": "a", "audio_seconds": 1}', 422, "invalid"),
    "text-is-a-number": (b'{"text": 5}', 422, "invalid"),
    "audio-is-a-text": (b'{"audio_seconds": "1"}', 422, "invalid"),
    "negative": (b'{"audio_seconds": -1}', 422, "invalid"),
    "zero": (b'{"audio_seconds": 0}', 422, "invalid"),
    "absurd": (b'{"audio_seconds": 1e300}', 422, "invalid"),
    "beyond-float": (b'{"audio_seconds": 1e999}', 422, "invalid"),
    "nan": (b'{"audio_seconds": NaN}', 400, "malformed"),
    "no-word": (b'{"text": " \\n\\t ... "}', 422, "empty"),
    "unknown-field": (b'{"text": "a", "model": "b"}', 422, "invalid"),
    "session-with-a-newline": (b'{"text": "a", "session": "a\\nb"}', 422, "invalid"),
    "session-too-long": (b'{"text": "a", "session": "' + b"s" * 81 + b'"}', 422, "invalid"),
    "transcript-of-no-session": (b'{"text": "a", "transcript": ["b"]}', 422, "invalid"),
    "transcript-is-a-text": (b'{"text": "a", "session": "s", "transcript": "b"}', 422, "invalid"),
    "transcript-of-numbers": (b'{"text": "a", "session": "s", "transcript": [1]}', 422, "invalid"),
    "transcript-of-21-turns": (
        b'{"text": "a", "session": "s", "transcript": [' + b'"b",' * 20 + b'"b"]}',
        422,
        "invalid",
    ),
    "priority": (b'{"text": "a", "priority": 3}', 422, "invalid"),
    "attempt": (b'{"text": "a", "attempt": -1}', 422, "invalid"),
    "too-many-tokens": (b'{"text": "' + b"a " * 600 + b'"}', 413, "too-long"),
    "too-much-audio": (b'{"audio_seconds": 60}', 413, "too-long"),
    "huge": (b'{"text": "' + b"a" * MAX_BODY_BYTES + b'"}', 413, "too-large"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with Running() as running:
        yield running


@pytest.mark.parametrize(("body", "status", "error"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_without_side_effects(shared: Running, body: bytes, status: int, error: str) -> None:
    before = shared.page()[("ref_rejected_total", error)]
    answer = shared.client.post("/v1/intent", content=body)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.json()["detail"]
    assert "Traceback" not in answer.text
    assert shared.page()[("ref_rejected_total", error)] == before + 1
    assert shared.ask(text="hello").status_code == 200


def test_a_huge_body_without_a_length_is_cut_off(shared: Running) -> None:
    answer = shared.client.post("/v1/intent", content=(b"a" * 8192 for _ in range(100)))
    assert (answer.status_code, answer.json()["error"]) == (413, "too-large")
    assert shared.ask(text="hello").status_code == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/v1/intent", 405)])
def test_other_paths_and_methods_are_answered_as_json(shared: Running, method: str, path: str, status: int) -> None:
    answer = shared.client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "detail"}


def test_a_body_that_never_ends_is_not_read_for_ever(shared: Running) -> None:
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        connection.sendall(b"POST /v1/intent HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n{")
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    assert shared.ask(text="hello").status_code == 200


def test_bytes_that_are_not_http_have_no_side_effects(shared: Running) -> None:
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        connection.sendall(b"\x00\xff\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")
    assert shared.ask(text="hello").status_code == 200


def test_a_body_that_does_not_come_is_given_up() -> None:
    with (
        Running(identity=ServerIdentity(body_seconds=0.05)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as slow,
    ):
        slow.sendall(b"POST /v1/intent HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        assert server.page()[("ref_rejected_total", "slow-body")] == 1


def vanish(server: Running, body: bytes) -> socket.socket:
    """A client that has sent a whole request, and resets its connection when it is closed."""
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sendall(b"POST /v1/intent HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    return connection


def test_a_client_that_goes_away_is_not_computed_for(server: Running) -> None:
    server.model.gate.clear()
    first = server.asking(text="one")
    server.model.until_entered()
    gone = vanish(server, b'{"text": "one two"}')
    server.until(lambda: server.page()[("ref_queue_depth", "")] == 1)
    gone.close()
    server.until(lambda: server.page()[("ref_requests_cancelled_total", "")] == 1)
    assert server.page()[("ref_queue_depth", "")] == 0
    server.model.gate.set()
    assert first.answer().status_code == 200
    assert server.ask(text="one two three").status_code == 200
    assert server.model.batches == [[1], [3]]


def test_a_client_that_goes_away_half_way_through_its_body(server: Running) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(b"POST /v1/intent HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
    server.until(lambda: server.page()[("ref_arrivals_total", "")] == 1)
    connection.close()
    server.until(lambda: server.page()[("ref_requests_cancelled_total", "")] == 1)
    assert server.ask(text="hello").status_code == 200


def test_a_request_over_the_token_budget_is_computed_alone() -> None:
    config = ServerConfig(batching=BatchingConfig(max_batch_tokens=16), queue=QueueConfig(max_tokens=16))
    with Running(config) as server:
        assert server.ask(text="word " * 100).status_code == 200
        assert server.model.batches == [[100]]


@given(st.binary(max_size=200))
def test_parsing_any_bytes_gives_a_request_or_a_refusal(body: bytes) -> None:
    try:
        status = 200 if isinstance(parse(body), IntentRequest) else 0
    except BadRequest as refused:
        status = refused.status
    assert status in {200, 400, 413, 422}


def test_an_unforeseen_failure_is_a_500_without_its_traceback(server: Running) -> None:
    def broken(_: object) -> bool:
        raise RuntimeError("secret")

    take_away = server.parts.stages.wrap("preprocess", lambda _: broken)
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        answer = client.post("/v1/intent", json={"text": "a"})
    assert answer.status_code == 500
    assert answer.json()["error"] == "internal"
    assert "secret" not in answer.text
    take_away()
    assert server.ask(text="hello").status_code == 200
    assert server.page()[("ref_requests_total", "500")] == 1
