"""Slow and silent clients without credentials, however many, keep no alert out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from latdoctor.incident import webhook_server
from latdoctor.incident.alert_intake import IntakeResult
from latdoctor.incident.events import AlertsReceived
from latdoctor.incident.webhook_request import Access
from tests.incident.webhook_client import GOOD, PATIENCE, Desk, answered, ask, connect, listening, raw

MANY = 400
TOKEN = Access("Bearer t0ken")
POST = b"POST /alerts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALF = b"Content-Length: 9\r\n\r\n{"
SENT = {
    "nothing": b"",
    "half a request line": b"POST /al",
    "a head without its end": POST,
    "a byte": b"P",
}


@contextlib.contextmanager
def slow_clients(desk: Desk, content: bytes, count: int = MANY) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(desk)) for _ in range(count)]
        for client in clients:
            with contextlib.suppress(ConnectionError):  # it was evicted
                client.sendall(content)
        yield clients


@pytest.mark.parametrize("content", SENT.values(), ids=SENT.keys())
def test_alert_is_answered_while_slow_clients_without_credentials_hold_every_place(content: bytes) -> None:
    with listening(TOKEN) as desk, slow_clients(desk, content) as slow:
        assert [ask(desk, Authorization="Bearer t0ken").status for _ in range(5)] == [200] * 5
        assert ask(desk, "GET", "/healthz", None).status == 204
        early, late = slow[: MANY - webhook_server.MAX_HEADS], slow[-1]
        assert [answered(one) for one in early] == [b""] * len(early), "evicted without an answer"
        late.setblocking(False)
        with pytest.raises(BlockingIOError):  # still open, and the newest one
            late.recv(1)
    assert len(desk.taken) == 5


def test_half_a_body_without_credentials_is_refused_at_once() -> None:
    with listening(TOKEN) as desk, slow_clients(desk, POST + HALF, 40) as slow:
        assert all(answered(one).startswith(b"HTTP/1.1 401 ") for one in slow)


def test_refused_client_can_send_its_whole_body_and_read_why() -> None:
    """A reset in the midst of it would look like a broken network to the sender."""
    body = b"x" * (4 << 20)
    with listening(TOKEN) as desk, connect(desk) as client:
        client.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body))
        client.sendall(body)
        assert answered(client).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("content", [b"", POST, POST + HALF], ids=["nothing", "half a head", "half a body"])
def test_a_listener_without_a_token_is_not_starved_either(content: bytes) -> None:
    with listening() as desk, slow_clients(desk, content):
        assert [ask(desk).status for _ in range(5)] == [200] * 5


def test_authenticated_notifications_are_never_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "MAX_BODIES", 2)
    monkeypatch.setattr(webhook_server, "ROOM", 0.0)
    token = b"Authorization: Bearer t0ken\r\n"
    with listening(TOKEN) as desk, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(desk)) for _ in range(2)]
        for client in clients:
            client.sendall(POST + token + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(GOOD))
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")  # it has its place
        refused = raw(desk, POST + token + HALF)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in refused
        for client in clients:
            client.sendall(GOOD)
            assert answered(client).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr(webhook_server, "ROOM", PATIENCE)  # a place is free a moment after the answer
        assert ask(desk, Authorization="Bearer t0ken").status == 200


def test_next_notification_waits_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "MAX_BODIES", 1)
    monkeypatch.setattr(webhook_server, "ROOM", PATIENCE)
    arrived, go_on = threading.Event(), threading.Event()
    desk = Desk()

    def take(alerted: AlertsReceived) -> IntakeResult:
        arrived.set()
        assert go_on.wait(PATIENCE)
        return desk.take(alerted)

    statuses: list[int] = []
    with webhook_server.serve_webhook("127.0.0.1", 0, TOKEN, take, desk.said.append) as url:
        desk.url = url
        clients = [
            threading.Thread(target=lambda: statuses.append(ask(desk, Authorization="Bearer t0ken").status))
            for _ in range(3)
        ]
        for client in clients:
            client.start()
        assert arrived.wait(PATIENCE)
        go_on.set()
        for client in clients:
            client.join()
    assert statuses == [200] * 3


@pytest.mark.parametrize(
    ("limit", "sent", "answer"),
    [
        ("HEAD_SECONDS", b"", b""),
        ("HEAD_SECONDS", POST, b""),
        ("BODY_SECONDS", POST + HALF, b"HTTP/1.1 503 "),
    ],
)
def test_slow_client_is_disconnected(limit: str, sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, limit, 0.05)
    with listening() as desk, connect(desk) as client:
        client.sendall(sent)
        assert answered(client)[:13] == answer
    assert desk.said == []


def test_eviction_is_logged_once() -> None:
    with listening(TOKEN) as desk, slow_clients(desk, b""):
        assert ask(desk, Authorization="Bearer t0ken").status == 200
    (line,) = desk.said
    assert "closed the oldest, from 127.0.0.1" in line


def test_connections_that_cannot_be_accepted_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files: as the kernel reports it, and not for ever."""
    refused = _failing_accept(monkeypatch, OSError(24, "Too many open files"), 3)
    with listening(TOKEN) as desk:
        assert ask(desk, Authorization="Bearer t0ken").status == 200
        assert refused() == 3
    assert [line for line in desk.said if "Too many open files" in line]


def _failing_accept(monkeypatch: pytest.MonkeyPatch, error: OSError, times: int) -> Callable[[], int]:
    accept, failed = asyncio.SelectorEventLoop.sock_accept, 0

    async def sock_accept(loop: asyncio.SelectorEventLoop, listening: socket.socket) -> tuple[socket.socket, object]:
        nonlocal failed
        if failed < times:
            failed += 1
            raise error
        return await accept(loop, listening)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", sock_accept)
    return lambda: failed
