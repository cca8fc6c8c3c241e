"""What the listener answers whom, and that nobody can take more of it than it gives."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.incident import webhook_server
from latdoctor.incident.alert_intake import IntakeResult
from latdoctor.incident.alertmanager import MAX_BYTES
from latdoctor.incident.events import AlertsReceived
from latdoctor.journal.entry import JournalError
from tests.incident.alert_builders import alert, notification

PATIENCE = 20.0
GOOD = notification([alert(1)])


@dataclass
class Desk:
    """Takes notifications in, or fails to."""

    url: str = ""
    taken: list[AlertsReceived] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    trouble: LatdoctorError | None = None

    def take(self, alerted: AlertsReceived) -> IntakeResult:
        if self.trouble:
            raise self.trouble
        self.taken.append(alerted)
        return IntakeResult("inc-1", len(self.taken) == 1, len(alerted.alerts), 0, False)


@contextlib.contextmanager
def listening(authorization: str = "") -> Iterator[Desk]:
    desk = Desk()
    with webhook_server.serve_webhook("127.0.0.1", 0, authorization, desk.take, desk.said.append) as url:
        desk.url = url
        yield desk


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: dict[str, str]


def ask(desk: Desk, method: str = "POST", path: str = "/alerts", body: bytes | None = GOOD, **headers: str) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(desk.url).netloc, timeout=PATIENCE)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(), dict(answer.getheaders()))
    finally:
        connection.close()


def raw(desk: Desk, content: bytes) -> bytes:
    """What is answered to these bytes, after which nothing more is sent."""
    place = urlsplit(desk.url)
    with socket.create_connection((place.hostname, place.port), PATIENCE) as client:
        answer = b""
        with contextlib.suppress(OSError):  # it was answered before all was read
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(65536):
                answer += part
        return answer


def test_a_notification_is_taken_in() -> None:
    with listening() as desk:
        answer = ask(desk)
        assert (answer.status, answer.text) == (200, "inc-1: 1 new, 0 known, opened\n")
        assert [len(one.alerts) for one in desk.taken] == [1]
        assert "Python" not in answer.headers["Server"]


def test_health_check_reveals_nothing_else() -> None:
    with listening("Bearer t0ken") as desk:
        answer = ask(desk, "GET", "/healthz", None)
        assert (answer.status, answer.text) == (204, "")


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ("Bearer t0ken", 200),
        ("bearer  t0ken ", 200),
        ("", 401),
        ("Bearer", 401),
        ("Bearer t0ke", 401),
        ("Bearer t0kenn", 401),
        ("Basic t0ken", 401),
        ("t0ken", 401),
    ],
)
def test_token_is_required(shown: str, status: int) -> None:
    with listening("Bearer t0ken") as desk:
        assert ask(desk, Authorization=shown).status == status
        assert len(desk.taken) == (status == 200)


def test_a_user_and_a_password_do_as_well() -> None:
    with listening("Basic bWU6eA==") as desk:
        statuses = [ask(desk, Authorization=shown).status for shown in ("Basic bWU6eA==", "basic bWU6eQ==", "")]
    assert statuses == [200, 401, 401]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/alerts", 405),
        ("POST", "/healthz", 405),
        ("POST", "/", 404),
        ("GET", "/x", 404),
        ("PUT", "/alerts", 501),
    ],
)
def test_other_places(method: str, path: str, status: int) -> None:
    with listening() as desk:
        assert ask(desk, method, path).status == status
        assert desk.taken == []


def test_malformed_notification_is_reported_to_both_sides() -> None:
    with listening() as desk:
        answer = ask(desk, body=b'{"version": "4", "groupKey": "k", "alerts": [{"status": "\x1b[31m"}]}')
        assert answer.status == 400
        assert len(desk.said) == 1
        answer = ask(desk, body=b'{"version": "4", "groupKey": "k", "alerts": [{"status": "loud"}]}')
        assert (answer.status, "$.alerts[0].status" in answer.text) == (400, True)
        assert "127.0.0.1" in desk.said[1]


def test_what_cannot_be_journaled_is_to_be_sent_again() -> None:
    with listening() as desk:
        desk.trouble = JournalError("the disk is full", where="/secret/place")
        answer = ask(desk)
        assert (answer.status, "/secret/place" in answer.text) == (503, False)
        assert "the disk is full" in desk.said[0]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /alerts HTTP/1.1\r\nHost: x\r\n\r\n", b"411"),
        (b"POST /alerts HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"POST /alerts HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"411"),
        (b"POST /alerts HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST /alerts HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BYTES + 1), b"413"),
        (b"POST /alerts HTTP/1.1\r\nContent-Length: 99\r\n\r\n{", b"408"),
        (b"POST /alerts HTTP/1.1\r\nContent-Length: " + "٣".encode() + b"\r\n\r\n", b"411"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", b"Bad request"),
        (b"POST " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
    ],
)
def test_odd_requests(head: bytes, status: bytes) -> None:
    with listening() as desk:
        answer = raw(desk, head)
        assert status in answer.split(b"\n")[0], answer
        assert desk.taken == []
        assert ask(desk).status == 200


def test_heads_without_an_end_are_not_read_for_ever() -> None:
    with listening() as desk:
        raw(desk, b"GET /healthz HTTP/1.1\r\n" + b"A: " + b"b" * (webhook_server.MAX_HEAD + MAX_BYTES))
        assert ask(desk).status == 200


def test_slow_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "LONGEST", 0.3)
    with listening() as desk:
        place = urlsplit(desk.url)
        with socket.create_connection((place.hostname, place.port), PATIENCE) as client:
            until = time.monotonic() + PATIENCE
            with contextlib.suppress(OSError):
                while time.monotonic() < until:
                    client.sendall(b"P")  # a byte now and then
                    client.settimeout(0.02)
                    with contextlib.suppress(TimeoutError):
                        if not client.recv(1):
                            break
            assert time.monotonic() < until
    assert desk.said == []


def test_too_many_at_once_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "MAX_CONNECTIONS", 2)
    with listening() as desk, contextlib.ExitStack() as stack:
        place = urlsplit(desk.url)
        for _ in range(2):
            client = stack.enter_context(socket.create_connection((place.hostname, place.port), PATIENCE))
            client.sendall(b"POST ")
        until = time.monotonic() + PATIENCE
        status = 200
        while status == 200 and time.monotonic() < until:  # until both have been accepted
            with contextlib.suppress(OSError):
                status = ask(desk, "GET", "/healthz", None).status
        assert status in (503, 204)
        assert raw(desk, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 503")
        stack.close()
        while ask(desk).status == 503 and time.monotonic() < until:
            pass
        assert ask(desk).status == 200


def test_what_has_arrived_is_answered_before_it_ends() -> None:
    arrived, go_on = threading.Event(), threading.Event()
    answers: list[Answer] = []
    desk = Desk()

    def take(alerted: AlertsReceived) -> IntakeResult:
        arrived.set()
        assert go_on.wait(PATIENCE)
        return desk.take(alerted)

    with webhook_server.serve_webhook("127.0.0.1", 0, "", take, desk.said.append) as url:
        desk.url = url
        client = threading.Thread(target=lambda: answers.append(ask(desk)))
        client.start()
        assert arrived.wait(PATIENCE)
        threading.Timer(0.05, go_on.set).start()
    client.join()
    assert [answer.status for answer in answers] == [200]


def test_an_address_that_is_taken() -> None:
    with listening() as desk:
        port = urlsplit(desk.url).port
        assert port
        with (
            pytest.raises(OperationError, match="choose another address"),
            webhook_server.serve_webhook("127.0.0.1", port, "", desk.take, print),
        ):
            pass


def test_it_can_listen_on_the_sixth_version_too() -> None:
    desk = Desk()
    try:
        with webhook_server.serve_webhook("::1", 0, "", desk.take, desk.said.append) as url:
            desk.url = url
            assert url.startswith("http://[::1]:")
            assert ask(desk).status == 200
    except OperationError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize(("path", "status"), [("/healthz", 204), ("/alerts", 405), ("/x", 404)])
def test_head_is_answered_as_get_is_without_a_body(path: str, status: int) -> None:
    with listening("Bearer t0ken") as desk:
        asked, headed = ask(desk, "GET", path, None), raw(desk, f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
        assert asked.status == status
        assert headed.split(b" ")[1] == str(status).encode()
        assert headed.endswith(b"\r\n\r\n")


def test_wrong_token_is_logged_once_and_never_shown() -> None:
    with listening("Bearer t0ken") as desk:
        for _ in range(20):
            assert ask(desk, Authorization="Bearer wr0ng").status == 401
        assert ask(desk).status == 401
        (line,) = desk.said
    assert "401" in line
    assert "127.0.0.1" in line
    assert "--auth-file" in line
    assert "wr0ng" not in line
    assert "t0ken" not in line
