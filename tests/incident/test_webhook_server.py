"""Answers of the webhook server: notifications, credentials, web pages, malformed and oversized requests."""

from __future__ import annotations

import threading
from urllib.parse import urlsplit

import pytest

from latdoctor.errors import OperationError
from latdoctor.http.cross_site import HostNames
from latdoctor.incident import webhook_server
from latdoctor.incident.alert_intake import IntakeResult
from latdoctor.incident.alertmanager import MAX_BYTES
from latdoctor.incident.events import AlertsReceived
from latdoctor.incident.http_connection import MAX_HEAD
from latdoctor.incident.webhook_request import Access
from latdoctor.journal.entry import JournalError
from tests.incident.webhook_client import GOOD, PATIENCE, Answer, Desk, ask, listening, raw


def test_a_notification_is_taken_in() -> None:
    with listening() as desk:
        answer = ask(desk)
        assert (answer.status, answer.text) == (200, "inc-1: 1 new, 0 known, opened\n")
        assert [len(one.alerts) for one in desk.taken] == [1]
        assert "Server" not in answer.headers


def test_health_check_reveals_nothing_else() -> None:
    with listening(Access("Bearer t0ken")) as desk:
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
    with listening(Access("Bearer t0ken")) as desk:
        assert ask(desk, Authorization=shown).status == status
        assert len(desk.taken) == (status == 200)


def test_a_user_and_a_password_do_as_well() -> None:
    with listening(Access("Basic bWU6eA==")) as desk:
        statuses = [ask(desk, Authorization=shown).status for shown in ("Basic bWU6eA==", "basic bWU6eQ==", "")]
    assert statuses == [200, 401, 401]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/alerts", 405),
        ("POST", "/healthz", 405),
        ("POST", "/", 404),
        ("GET", "/x", 404),
        ("PUT", "/alerts", 405),
        ("OPTIONS", "/alerts", 405),
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
        answer = ask(desk, body=b'{"version": "4", "groupKey": "k", "alerts": [{"status": "loud"}]}')
        assert (answer.status, "$.alerts[0].status" in answer.text) == (400, True)
    (line,) = desk.said
    assert "127.0.0.1" in line


def test_malformed_notifications_do_not_flood_the_log() -> None:
    with listening() as desk:
        for _ in range(5):
            assert ask(desk, body=b"{}").status == 400
    assert len(desk.said) == 1


@pytest.mark.parametrize(("length", "status"), [(15_000, b"200"), (20_000, b"431")])
def test_a_head_has_16_kb_however_it_is_cut(length: int, status: bytes) -> None:
    head = HEAD + b"X-Filler: " + b"a" * length + b"\r\nContent-Length: %d\r\n\r\n" % len(GOOD)
    with listening() as desk:
        assert raw(desk, head + GOOD).startswith(b"HTTP/1.1 " + status)


def test_what_cannot_be_journaled_is_to_be_sent_again() -> None:
    with listening() as desk:
        desk.trouble = JournalError("the disk is full", where="/secret/place")
        answer = ask(desk)
        assert (answer.status, "/secret/place" in answer.text) == (503, False)
        assert "the disk is full" in desk.said[0]


HEAD = b"POST /alerts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD + b"\r\n", b"411"),
        (HEAD + b"Content-Length: -1\r\n\r\n", b"400"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (HEAD + b"Content-Length: " + "٣".encode() + b"\r\n\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", b"411"),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
        (HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_BYTES + 1), b"413"),
        (HEAD + b"Content-Length: 99\r\n\r\n{", b"408"),
        (b"POST /alerts HTTP/1.1\r\nContent-Length: 5\r\n\r\n", b"400"),  # no Host
        (HEAD + b"Host: 127.0.0.1\r\n\r\n", b"400"),  # two of them
        (HEAD + b" folded\r\n\r\n", b"415"),
        (HEAD + b"bad name: 1\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", b"400"),
        (b"POST " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 20_000, b"431"),
    ],
)
def test_odd_requests(head: bytes, status: bytes) -> None:
    with listening() as desk:
        answer = raw(desk, head)
        assert answer.split(b" ")[1] == status, answer
        assert desk.taken == []
        assert ask(desk).status == 200


def test_heads_without_an_end_are_not_read_for_ever() -> None:
    with listening() as desk:
        answer = raw(desk, b"GET /healthz HTTP/1.1\r\n" + b"A: " + b"b" * (MAX_HEAD + MAX_BYTES))
        assert answer.split(b" ")[1] in (b"431", b"")
        assert ask(desk).status == 200


def test_client_that_waits_for_permission_gets_it_with_valid_credentials_only() -> None:
    body = b"{}"
    head = HEAD + b"Authorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    with listening(Access("Bearer t0ken")) as desk:
        assert raw(desk, head % b"t0ken" + body).startswith(b"HTTP/1.1 400 ")
        assert raw(desk, head % b"t0ken").startswith(b"HTTP/1.1 100 ")
        assert raw(desk, head % b"wr0ng").startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:9095"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 403),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Host": "evil.example:9095"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "127.0.0.1@evil.example"}, 421),
        ({"Host": "localhost"}, 200),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "text/plain; application/json"}, 415),
        ({"Content_Type": ""}, 415),
        ({"Content_Type": "Application/JSON; charset=utf-8"}, 200),
    ],
)
def test_web_page_can_open_no_incident(headers: dict[str, str], status: int) -> None:
    with listening() as desk:
        answer = ask(desk, **headers)
        assert answer.status == status
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
        assert len(desk.taken) == (status == 200)
        assert len(desk.said) == (status != 200)


def test_preflight_request_of_a_page_is_refused() -> None:
    with listening() as desk:
        page = {"Origin": "http://evil.example", "Access_Control_Request_Method": "POST"}
        assert ask(desk, "OPTIONS", body=None, **page).status == 403


@pytest.mark.parametrize(("host", "status"), [("listener.monitoring:9095", 200), ("10.0.0.7", 421)])
def test_configured_host_name_is_accepted(host: str, status: int) -> None:
    with listening(Access(hosts=HostNames.of("127.0.0.1", ["Listener.Monitoring."]))) as desk:
        assert ask(desk, Host=host).status == status
        assert all("--host-name" in line and host in line for line in desk.said)


def test_what_has_arrived_is_answered_before_it_ends() -> None:
    arrived, go_on = threading.Event(), threading.Event()
    answers: list[Answer] = []
    desk = Desk()

    def take(alerted: AlertsReceived) -> IntakeResult:
        arrived.set()
        assert go_on.wait(PATIENCE)
        return desk.take(alerted)

    with webhook_server.serve_webhook("127.0.0.1", 0, Access(), take, desk.said.append) as url:
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
            webhook_server.serve_webhook("127.0.0.1", port, Access(), desk.take, print),
        ):
            pass


def test_it_can_listen_on_the_sixth_version_too() -> None:
    desk = Desk()
    try:
        with webhook_server.serve_webhook("::1", 0, Access(), desk.take, desk.said.append) as url:
            desk.url = url
            assert url.startswith("http://[::1]:")
            assert ask(desk).status == 200
    except OperationError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize(("path", "status"), [("/healthz", 204), ("/alerts", 405), ("/x", 404)])
def test_head_is_answered_as_get_is_without_a_body(path: str, status: int) -> None:
    with listening(Access("Bearer t0ken")) as desk:
        asked, headed = (
            ask(desk, "GET", path, None),
            raw(desk, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()),
        )
        assert asked.status == status
        assert headed.split(b" ")[1] == str(status).encode()
        assert headed.endswith(b"\r\n\r\n")


def test_wrong_token_is_logged_once_and_never_shown() -> None:
    with listening(Access("Bearer t0ken")) as desk:
        for _ in range(20):
            assert ask(desk, Authorization="Bearer wr0ng").status == 401
        assert ask(desk).status == 401
        (line,) = desk.said
    assert "401" in line
    assert "127.0.0.1" in line
    assert "--auth-file" in line
    assert "wr0ng" not in line
    assert "t0ken" not in line
