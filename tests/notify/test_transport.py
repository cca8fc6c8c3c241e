"""One try against real servers: whatever they do it ends, and nothing secret is told."""

from __future__ import annotations

import datetime
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from latdoctor.http.client import Secret
from latdoctor.notify.receiver_config import Message, Receiver, ReceiverKind
from latdoctor.notify.transport import LONGEST_ASKED, AttemptResult, Keys, attempt, pause, retry_after
from latdoctor.sanitize import clean
from tests.http.stub_server import Serve, answering, dripping, hangs, serving

CANARY = "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ry12"
NOW = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC)
SECONDS, SHORT = 10.0, 0.3
KEYS = Keys(Secret(), Secret(CANARY))
EVENT = b'{"routing_key":"\xe2\x80\xa6","event_action":"trigger"}'


def receiver(url: str, **fields: object) -> Receiver:
    return replace(Receiver("r", ReceiverKind.PAGERDUTY, url=url, allow_private=True), **fields)  # type: ignore[arg-type]


def message(url: str, tries: int = 0) -> Message:
    headers = (("Content-Type", "application/json"),)
    return Message(
        "r", ReceiverKind.PAGERDUTY, "alert", "inc-1", "inc-1/alert/1", "message", url, headers, EVENT, tries
    )


def here(*_: object) -> list[str]:
    return ["127.0.0.1"]


def tried(
    url: str,
    *,
    to: Receiver | None = None,
    keys: Keys = KEYS,
    tries: int = 0,
    seconds: float = SECONDS,
    resolve: Callable[[str, int], list[str]] = here,
) -> AttemptResult:
    outcome = attempt(message(url, tries), to or receiver(url), keys, NOW.timestamp(), resolve, seconds)
    assert CANARY not in outcome.why
    assert outcome.why == clean(outcome.why)
    assert len(outcome.why) < 500
    assert bool(outcome.why) != outcome.sent
    return outcome


@pytest.mark.parametrize("status", [200, 202, 204])
def test_what_is_taken_is_sent(status: int) -> None:
    with serving(answering(status, b'{"status": "success"}' if status != 204 else b"")) as server:
        assert tried(server.url) == AttemptResult(sent=True)
        (asked,) = server.seen
    assert asked.startswith(b"POST /x HTTP/1.1\r\n")
    assert asked.endswith(b'"event_action":"trigger"}')
    assert asked.count(CANARY.encode()) == 1


STATUSES = {
    400: (False, None),
    401: (False, None),
    403: (False, None),
    404: (False, None),
    410: (False, None),
    413: (False, None),
    501: (False, None),
    425: (False, 1.0),
    429: (False, 1.0),
    408: (True, 1.0),
    500: (True, 1.0),
    502: (True, 1.0),
    503: (True, 1.0),
    504: (True, 1.0),
}


@pytest.mark.parametrize(("status", "expected"), STATUSES.items())
def test_a_refusal_is_final_and_a_failure_is_not(status: int, expected: tuple[bool, float | None]) -> None:
    with serving(answering(status, b"it says so")) as server:
        outcome = tried(server.url)
    assert (outcome.unsure, outcome.again_after) == expected
    assert f"it answered {status}: it says so" in outcome.why


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with (
        serving(answering(200)) as other,
        serving(answering(status, b"", f"location: {other.url}?{CANARY}")) as server,
    ):
        outcome = tried(server.url)
        assert other.seen == []
    assert (outcome.sent, outcome.again_after) == (False, None)
    assert "not followed" in outcome.why


ENDLESS: dict[str, Serve] = {
    "silent": hangs,
    "status": dripping(b"HTTP/1."),
    "headers": dripping(b"HTTP/1.1 200 OK\r\nx: "),
    "refusal": dripping(b"HTTP/1.1 500 No\r\ncontent-length: 1000000\r\n\r\n"),
    "hangs up": lambda client, _: None,
    "no http": lambda client, _: client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"),
}


@pytest.mark.parametrize("serve", ENDLESS.values(), ids=ENDLESS.keys())
def test_silent_receiver_may_have_received_it(serve: Serve) -> None:
    with serving(serve) as server:
        outcome = tried(server.url, seconds=SHORT)
    assert outcome.unsure
    assert outcome.again_after == 1.0


def test_of_what_was_taken_the_answer_is_not_waited_for() -> None:
    with serving(dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")) as server:
        assert tried(server.url).sent


def test_refused_connection_has_not_received_it() -> None:
    with serving(hangs) as server:
        url = server.url
    outcome = tried(url)
    assert not outcome.unsure
    assert outcome.again_after == 1.0


BODIES = {
    "huge": b"y" * 5_000_000,
    "repeats": f"you sent {CANARY} to me".encode(),
    "hidden": f"{CANARY[:5]}\u200b{CANARY[5:]}".encode(),
    "errors": b'{"message": "Event object is invalid", "errors": ["bad routing_key ' + CANARY.encode() + b'"]}',
    "control": b"\x1b[2J\x1b]8;;http://evil\x07\xe2\x80\xae\r\n\xff",
    "deep": b"[" * 60_000,
    "none": b"",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("status", [400, 500])
def test_error_text_is_bounded_cleaned_and_redacted(status: int, body: bytes) -> None:
    with serving(answering(status, body)) as server:
        outcome = tried(server.url)
    assert str(status) in outcome.why


def test_pagerduty_error_message_is_reported() -> None:
    with serving(
        answering(400, b'{"status":"invalid event","message":"Event object is invalid","errors":["a","b"]}')
    ) as s:
        assert "Event object is invalid; a; b" in tried(s.url).why


def test_secret_address_is_redacted_from_the_response(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(answering(404, f"no_service /services/T0/B0/{CANARY}".encode())) as server:
        url = f"http://127.0.0.1:{server.port}/services/T0/B0/{CANARY}"
        told = replace(message("…"), kind=ReceiverKind.SLACK)
        outcome = attempt(told, receiver("", kind=ReceiverKind.SLACK), Keys(Secret(url), Secret()), 0.0, here)
        assert server.seen[0].startswith(f"POST /services/T0/B0/{CANARY} ".encode())
    assert "no_service" in outcome.why
    assert CANARY not in outcome.why + caplog.text


# How long to wait


@pytest.mark.parametrize(
    ("said", "tries", "seconds"),
    [
        ("retry-after: 7", 0, 7.0),
        ("retry-after: 7", 5, 32.0),
        ("retry-after: 0", 0, 1.0),
        ("retry-after: 99999999999999999999", 0, LONGEST_ASKED),
        ("retry-after: -5", 0, 1.0),
        ("retry-after: soon", 0, 1.0),
        ("retry-after: 1e9", 0, 1.0),
        (f"retry-after: {format_datetime(NOW + datetime.timedelta(seconds=40), usegmt=True)}", 0, 40.0),
        (f"retry-after: {format_datetime(NOW + datetime.timedelta(days=40), usegmt=True)}", 0, LONGEST_ASKED),
        (f"retry-after: {format_datetime(NOW - datetime.timedelta(days=40), usegmt=True)}", 0, 1.0),
        ("x: y", 20, 300.0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_limited(status: int, said: str, tries: int, seconds: float) -> None:
    with serving(answering(status, b"", said)) as server:
        assert tried(server.url, tries=tries).again_after == seconds


@given(some.text(max_size=60))
def test_any_retry_after_is_a_valid_pause(said: str) -> None:
    assert 0.0 <= retry_after(said, NOW.timestamp()) <= LONGEST_ASKED


def test_pauses_double_up_to_five_minutes() -> None:
    assert [pause(number) for number in (1, 2, 3, 8, 9, 10, 10_000)] == [1, 2, 4, 128, 256, 300, 300]


# Where it goes

INSIDE = ["10.1.2.3", "192.168.0.1", "172.16.0.1", "100.64.0.1", "fd00::1", "::ffff:10.0.0.1"]
LOOPBACK = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"]
NEVER = [
    "169.254.169.254", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "240.0.0.1",  # noqa: S104
    "255.255.255.255", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "nonsense", "",
]  # fmt: skip


@pytest.mark.parametrize("address", [*INSIDE, *LOOPBACK, *NEVER])
def test_a_name_that_leads_inside_is_refused_for_good(address: str) -> None:
    url = "https://hooks.example.org/x"
    for found in ([address], ["93.184.216.34", address]):  # one of several is enough
        outcome = tried(url, to=receiver(url, allow_private=False), resolve=lambda *_, found=found: found)
        assert (outcome.unsure, outcome.again_after) == (False, None)
        assert "is not permitted: allow_private is not set" in outcome.why


@pytest.mark.parametrize("address", NEVER)
def test_special_address_is_refused_even_with_allow_private(address: str) -> None:
    url = "https://hooks.example.org/x"
    assert "is not permitted" in tried(url, resolve=lambda *_: [address]).why


@pytest.mark.parametrize("address", [*INSIDE, "93.184.216.34"])
def test_plain_http_is_limited_to_this_machine(address: str) -> None:
    url = "http://hooks.example.org/x"
    assert "is not permitted" in tried(url, resolve=lambda *_: [address]).why


def test_name_is_resolved_once_and_that_address_used() -> None:
    """Rebinding: the second answer would lead elsewhere."""
    answers = [["127.0.0.1"], ["169.254.169.254"]]
    asked: list[tuple[str, int]] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return answers[len(asked) - 1]

    with serving(answering(202)) as server:
        outcome = tried(f"http://name.invalid:{server.port}/x", resolve=rebinding)
        assert f"host: name.invalid:{server.port}\r\n".encode() in server.seen[0].lower()
    assert outcome.sent
    assert asked == [("name.invalid", server.port)]


def test_a_name_that_leads_nowhere_is_tried_again() -> None:
    def fails(*_: object) -> list[str]:
        raise socket.gaierror("no such name")

    for resolve in (fails, lambda *_: []):
        outcome = tried("https://hooks.example.org/x", resolve=resolve)
        assert (outcome.unsure, outcome.again_after) == (False, 1.0)


def test_the_signature_is_of_the_body_that_is_sent() -> None:
    signing = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    with serving(answering(200)) as server:
        to = receiver(server.url, kind=ReceiverKind.WEBHOOK)
        told = replace(message(server.url), kind=ReceiverKind.WEBHOOK, headers=(("webhook-id", "inc-1/alert/1"),))
        assert attempt(told, to, Keys(Secret(), signing), 1614265330.0, here).sent
        head = server.seen[0].partition(b"\r\n\r\n")[0].decode().lower()
    assert "\r\nwebhook-id: inc-1/alert/1" in head
    assert "\r\nwebhook-timestamp: 1614265330" in head
    assert "\r\nwebhook-signature: v1," in head
