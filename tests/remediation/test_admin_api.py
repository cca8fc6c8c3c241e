"""One exchange: bounded whatever the other side does, and silent about the token whatever it says."""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from latdoctor.errors import LatdoctorError
from latdoctor.http.client import Secret
from latdoctor.remediation import admin_api
from latdoctor.remediation.admin_api import MAX_BYTES, AdminRequest, AdminResponse, ResolveAddress, json_object, send
from latdoctor.remediation.change import Contended, Deadline, Refused, Unauthorized, Unreachable
from latdoctor.sanitize import clean
from tests.http.stub_server import answering, dripping, hangs, serving
from tests.remediation.actions.lossy_proxy import PATIENCE

CANARY = "canary-in-the-mine-0123456789"
TOKEN = Secret(CANARY)
LONG, SHORT = 10.0, 0.3  # seconds; the short one where a test waits for nothing to happen


def ask(
    url: str,
    method: str = "GET",
    content: bytes | None = None,
    *,
    seconds: float = LONG,
    token: Secret = TOKEN,
    place: ResolveAddress | None = None,
) -> AdminResponse:
    return send(AdminRequest(method, url, content, '"tag"' if content else ""), token, Deadline.after(seconds), place)


def says_nothing(error: BaseException, secret: str = CANARY) -> None:
    """Neither the message, nor any of what it came from, nor a local variable of any frame."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if "/latdoctor/" in frame.f_code.co_filename]
    assert frames
    assert error.__cause__ is None
    assert error.__context__ is None
    text = "".join(repr(value) for frame in frames for value in frame.f_locals.values())
    assert secret not in text + str(error) + repr(error) + repr(vars(error))


STATUSES = {
    **dict.fromkeys((401, 403), Unauthorized),
    **dict.fromkeys((301, 302, 307, 400, 404, 405, 409, 415, 422, 428, 429, 501, 505), Refused),
    412: Contended,
    **dict.fromkeys((500, 502, 503, 504), Unreachable),
}
HIDDEN = CANARY[:5] + "\u200b" + CANARY[5:]  # an invisible character that is removed
BODIES = {
    "text": f"you sent Bearer {CANARY} to me".encode(),
    "hidden": HIDDEN.encode(),
    "detail": msgspec.json.encode({"error": "no", "detail": f"not for {HIDDEN}"}),
    "at the cut": b"x" * 290 + CANARY.encode(),
    "bytes": b"\xff" + CANARY.encode() + b"\x1b[2J",
    "deep": b"[" * 60_000,
    "large": b"y" * 200_000,
    "none": b"",
}


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
def test_a_status_is_an_error_of_a_kind(status: int, kind: type[LatdoctorError]) -> None:
    with serving(answering(status, b'{"detail": "it says so"}', "location: http://127.0.0.1:9/")) as server:
        with pytest.raises(kind, match=f"{status}: it says so") as raised:
            ask(server.url, "PATCH", b"{}")
        assert type(raised.value) is kind
        assert raised.value.where == server.url
        assert len(server.seen) == 1
        says_nothing(raised.value)


@pytest.mark.parametrize("status", [409, 412, 500, 302])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_echoed_token_is_not_reported(status: int, body: bytes) -> None:
    with serving(answering(status, body)) as server, pytest.raises(LatdoctorError) as raised:
        ask(server.url)
    says_nothing(raised.value)
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 600


def test_response_and_its_etag() -> None:
    with serving(answering(200, b'{"a": 1}', 'etag: "v"')) as server:
        answer = ask(server.url)
    assert json_object(answer, server.url) == {"a": 1}
    assert answer.version == '"v"'
    (asked,) = server.seen
    assert asked.count(CANARY.encode()) == 1
    assert b"\r\nauthorization: bearer " + CANARY.encode() in asked.lower().replace(
        CANARY.lower().encode(), CANARY.encode()
    )
    assert b"if-match" not in asked.lower()


@pytest.mark.parametrize("tag", ['"' + "x" * 300 + '"', '"\u00e9"', '"\t"', ""])
def test_unusable_etag_is_ignored(tag: str) -> None:
    with serving(answering(200, b"{}", f"etag: {tag}")) as server:
        assert ask(server.url).version == ""


def test_write_names_its_etag() -> None:
    with serving(answering(204)) as server:
        ask(server.url, "PATCH", b'{"a":1}')
    (asked,) = server.seen
    assert asked.startswith(b"PATCH /x HTTP/1.1\r\n")
    assert asked.endswith(b'\r\n\r\n{"a":1}')
    assert b'\r\nif-match: "tag"' in asked.lower()


def test_without_a_token_none_is_sent() -> None:
    with serving(answering(200, b"{}")) as server:
        ask(server.url, token=Secret())
    assert b"authorization" not in server.seen[0].lower()


def test_a_redirect_is_not_followed() -> None:
    with serving(answering(200)) as other, serving(answering(307, b"", f"location: {other.url}")) as server:
        with pytest.raises(Refused, match="307"):
            ask(server.url)
        assert other.seen == []


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(answering(200, b"{}")) as server:
        assert ask(server.url).body == b"{}"


ENDLESS = {
    "silent": hangs,
    "status": dripping(b"HTTP/1."),
    "headers": dripping(b"HTTP/1.1 200 OK\r\nx: "),
    "body": dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"),
    "no end": dripping(b"HTTP/1.1 200 OK\r\n\r\n"),
    "refusal": dripping(b"HTTP/1.1 409 No\r\ncontent-length: 1000000\r\n\r\n"),
}


@pytest.mark.parametrize("serve", ENDLESS.values(), ids=ENDLESS.keys())
def test_endless_response_is_abandoned_at_the_deadline(serve: Callable[[socket.socket, threading.Event], None]) -> None:
    with serving(serve) as server, pytest.raises(Unreachable, match="did not answer within 300 ms") as raised:
        ask(server.url, seconds=SHORT)
    says_nothing(raised.value)


def test_response_body_of_a_write_is_not_awaited() -> None:
    with serving(ENDLESS["body"]) as server:
        assert ask(server.url, "PATCH", b"{}") == AdminResponse(b"", "")


BROKEN = {
    "nothing": b"",
    "half a line": b"HTTP/1.1 200",
    "no http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
    "bad chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "huge header": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000,
}


@pytest.mark.parametrize("said", BROKEN.values(), ids=BROKEN.keys())
def test_broken_response_is_unreachable(said: bytes) -> None:
    with serving(lambda client, _: client.sendall(said)) as server, pytest.raises(Unreachable) as raised:
        ask(server.url)
    says_nothing(raised.value)


def test_connection_refused_is_unreachable() -> None:
    with serving(hangs) as server:
        pass
    with pytest.raises(Unreachable, match="cannot be reached") as raised:
        ask(server.url)
    says_nothing(raised.value)


def test_too_large_response_is_refused() -> None:
    with serving(answering(200, b" " * (MAX_BYTES + 1))) as server, pytest.raises(Refused, match="more than 1 MiB"):
        ask(server.url)
    with serving(answering(200, b" " * MAX_BYTES)) as server:
        assert len(ask(server.url).body) == MAX_BYTES


def test_compressed_response_is_refused() -> None:
    with serving(answering(200, b"\x1f\x8b", "content-encoding: gzip")) as server:
        with pytest.raises(Refused, match="compressed"):
            ask(server.url)
        assert b"accept-encoding: identity" in server.seen[0].lower()


@pytest.mark.parametrize("token", [CANARY + "\n", CANARY + "\r\nx: y", CANARY + "\0", CANARY + "\ud800"])
def test_unsendable_token_is_not_reported(token: str) -> None:
    with serving(answering(200, b"{}")) as server, pytest.raises(Unreachable, match="cannot be sent") as raised:
        ask(server.url, token=Secret(token))
    assert server.seen == []
    says_nothing(raised.value)


def test_nothing_is_sent_after_the_deadline() -> None:
    with serving(answering(200)) as server, pytest.raises(Unreachable, match="no time left"):
        ask(server.url, seconds=0)
    assert server.seen == []


def test_abandoned_request_sends_nothing() -> None:
    """Else a change could be made after it was said that it was not."""
    go_on, left = threading.Event(), threading.Event()

    def slow(_: str) -> str:
        assert go_on.wait(PATIENCE)
        left.set()
        return "127.0.0.1"

    with serving(answering(200)) as server:
        with pytest.raises(Unreachable, match=r"accepted no connection within [\d.]+ ms"):
            ask(server.url, "PATCH", b"{}", seconds=0.05, place=slow)
        go_on.set()
        assert left.wait(PATIENCE)
        for thread in [one for one in threading.enumerate() if one.name == "latdoctor-http"]:
            thread.join(PATIENCE)
        assert server.seen == []


def test_request_goes_to_the_checked_address_with_its_host_name() -> None:
    with serving(answering(200, b"{}")) as server:
        ask(f"http://name.invalid:{server.port}/x", place=lambda _: "127.0.0.1")
    assert f"host: name.invalid:{server.port}\r\n".encode() in server.seen[0].lower()


def test_refusal_of_the_address_is_raised() -> None:
    def nowhere(_: str) -> str:
        raise Refused("not there")

    with pytest.raises(Refused, match="not there"):
        ask("http://127.0.0.1:9/", place=nowhere)


@given(
    some.binary(max_size=200)
    | some.recursive(some.none() | some.floats() | some.text(), some.lists).map(repr).map(str.encode)
)
def test_any_body_is_an_object_or_refused(body: bytes) -> None:
    try:
        found = json_object(AdminResponse(body, ""), "x")
    except Refused:
        return
    assert isinstance(found, dict)


@given(some.binary(max_size=300))
def test_any_error_detail_is_one_clean_line(body: bytes) -> None:
    detail = admin_api._error_detail(body, TOKEN)
    assert len(detail) <= 300
    assert detail == clean(detail)
