"""Secrets: from files or the environment into the one message they are for, and into nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from latdoctor.errors import UsageError
from latdoctor.http.client import Secret
from latdoctor.notify.receiver_config import MASK, Message, Receiver, ReceiverKind
from latdoctor.notify.transport import Keys, load_keys, signature, signed_request

CANARY = "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ry12"  # 32 letters and digits, as a routing key
SIGNING = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOOK = f"https://hooks.slack.com/services/T0/B0/{CANARY}"


@pytest.fixture
def kept(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a secret into a file."""

    def write(text: str) -> Path:
        path = tmp_path / "secret"
        path.write_text(text)
        return path

    return write


def message(kind: str, **fields: object) -> Message:
    body = msgspec.json.encode({"event_action": "trigger", "routing_key": MASK, **fields})
    return Message("r", kind, "alert", "inc-1", "inc-1/alert/1", "message", "https://here.example/x", (), body)


def refused(call: Callable[[], object]) -> UsageError:
    """The error, which tells nothing: neither in its text, nor in a variable of any frame of ours."""
    with pytest.raises(UsageError) as raised:
        call()
    error = raised.value
    assert error.__cause__ is None
    frames = [f for f, _ in traceback.walk_tb(error.__traceback__) if "/src/latdoctor/" in f.f_code.co_filename]
    assert frames
    shown = "".join(repr(value) for frame in frames for value in frame.f_locals.values())
    assert CANARY not in shown + str(error) + repr(vars(error))
    return error


def test_the_routing_key_goes_into_the_event_where_its_place_is(kept: Callable[[str], Path]) -> None:
    receiver = Receiver("r", ReceiverKind.PAGERDUTY, key_file=kept(f"{CANARY}\n"))
    secrets = load_keys(receiver)
    request = signed_request(message(ReceiverKind.PAGERDUTY), receiver, secrets, 0.0)
    assert request.content is not None
    assert msgspec.json.decode(request.content) == {"event_action": "trigger", "routing_key": CANARY}
    assert request.content.count(CANARY.encode()) == 1
    assert CANARY not in repr(request) + repr(secrets)


def test_the_address_of_a_channel_comes_from_its_file(kept: Callable[[str], Path]) -> None:
    receiver = Receiver("r", ReceiverKind.SLACK, url_file=kept(HOOK))
    request = signed_request(message(ReceiverKind.SLACK), receiver, load_keys(receiver), 0.0)
    assert request.url == HOOK
    assert CANARY not in repr(request)


def test_the_environment_serves_where_no_file_is_named(
    monkeypatch: pytest.MonkeyPatch, kept: Callable[[str], Path]
) -> None:
    monkeypatch.setenv("LATDOCTOR_NOTIFY_ON_CALL", CANARY)
    assert load_keys(Receiver("on-call", ReceiverKind.PAGERDUTY)).key.reveal() == CANARY
    monkeypatch.setenv("LATDOCTOR_NOTIFY_ON_CALL", HOOK)
    assert load_keys(Receiver("on-call", ReceiverKind.SLACK)).url.reveal() == HOOK
    assert load_keys(Receiver("on-call", ReceiverKind.PAGERDUTY, key_file=kept("k" * 32))).key.reveal() == "k" * 32


def test_the_signature_is_that_of_the_standard() -> None:
    """The values of its own tests: libraries/python/tests/test_webhooks.py in standard-webhooks/standard-webhooks."""
    told = replace(
        message(ReceiverKind.WEBHOOK),
        body=b'{"test": 2432232314}',
        headers=(("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),),
    )
    receiver = Receiver("r", ReceiverKind.WEBHOOK, url="https://here.example/x")
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature(receiver, Secret(SIGNING), told, "1614265330") == expected
    request = signed_request(told, receiver, Keys(Secret(), Secret(SIGNING)), 1614265330.9)
    assert request.headers["webhook-signature"] == expected
    assert request.headers["webhook-timestamp"] == "1614265330"
    assert request.content == told.body


def test_without_a_secret_a_webhook_is_not_signed() -> None:
    receiver = Receiver("r", ReceiverKind.WEBHOOK, url="https://here.example/x")
    assert (
        "webhook-signature"
        not in signed_request(message(ReceiverKind.WEBHOOK), receiver, load_keys(receiver), 0.0).headers
    )


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (ReceiverKind.PAGERDUTY, f"{CANARY}{CANARY}", "32 letters"),
        (ReceiverKind.PAGERDUTY, f"{CANARY[:-1]} {CANARY}", "32 letters"),
        (ReceiverKind.PAGERDUTY, f"{CANARY}\u00e9", "no plain text"),
        (ReceiverKind.PAGERDUTY, "", "empty"),
        (ReceiverKind.PAGERDUTY, CANARY * 200, "more than 4096"),
        (ReceiverKind.WEBHOOK, CANARY, "whsec_"),
        (ReceiverKind.WEBHOOK, f"whsec_{CANARY[:8]}", "whsec_"),
        (ReceiverKind.WEBHOOK, f"whsec_{CANARY}!!", "whsec_"),
        (ReceiverKind.WEBHOOK, f"whsec_{CANARY * 4}", "whsec_"),
    ],
)
def test_invalid_secret_is_not_printed(kept: Callable[[str], Path], kind: str, text: str, why: str) -> None:
    url = "https://here.example/x" if kind == ReceiverKind.WEBHOOK else ""
    receiver = Receiver("r", kind, url=url, key_file=kept(text))
    assert why in str(refused(lambda: load_keys(receiver)))


def test_missing_secret_error_names_its_source(tmp_path: Path) -> None:
    gone = tmp_path / "no"
    assert str(gone) in str(refused(lambda: load_keys(Receiver("r", ReceiverKind.PAGERDUTY, key_file=gone))))
    assert str(gone) in str(refused(lambda: load_keys(Receiver("r", ReceiverKind.SLACK, url_file=gone))))
    assert "LATDOCTOR_NOTIFY_R" in str(refused(lambda: load_keys(Receiver("r", ReceiverKind.PAGERDUTY))))
    assert "LATDOCTOR_NOTIFY_R" in str(refused(lambda: load_keys(Receiver("r", ReceiverKind.SLACK))))


@pytest.mark.parametrize("text", ["", "no certificate", None])
def test_invalid_certificates_are_reported_before_sending(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    assert "ca.pem" in str(
        refused(lambda: load_keys(Receiver("r", ReceiverKind.WEBHOOK, url="https://a.example", authorities=path)))
    )


ADDRESSES = {
    f"http://hooks.slack.com/services/{CANARY}": "https only",
    f"ftp://hooks.slack.com/{CANARY}": "no https",
    f"https://user:{CANARY}@hooks.slack.com/services/x": "password",
    f"https://{CANARY}@hooks.slack.com/services/x": "password",
    f"https://hooks.slack.com/services/{CANARY}#x": "fragment",
    f"https://hooks.slack.com.evil.example/{CANARY}": "not below",
    f"https://evil.example/hooks.slack.com/{CANARY}": "not below",
    f"https://hooks.slack.com:8443/{CANARY}": "not below",
    f"https://hooks.slack.com/../{CANARY}": "misread",
    f"https://hooks.slack.com/%2e%2e/{CANARY}": "misread",
    f"https://hooks.slack.com\\@evil.example/{CANARY}": "no https",
    f"https://hooks.slack.com/a b/{CANARY}": "no https",
    f"https://[::1/{CANARY}": "no https",
    f"https://hooks.slack.com:99999/{CANARY}": "no https",
    f"//hooks.slack.com/{CANARY}": "no https",
    CANARY: "no https",
}


@pytest.mark.parametrize(("url", "why"), ADDRESSES.items())
def test_forbidden_address_is_not_printed(kept: Callable[[str], Path], url: str, why: str) -> None:
    assert why in str(refused(lambda: load_keys(Receiver("r", ReceiverKind.SLACK, url_file=kept(url)))))


def test_what_is_allowed_can_be_configured(kept: Callable[[str], Path]) -> None:
    receiver = Receiver(
        "r",
        ReceiverKind.SLACK,
        url_file=kept(f"https://chat.example/hooks/{CANARY}"),
        allow=("https://chat.example/hooks",),
    )
    assert load_keys(receiver).url
    refused(lambda: load_keys(replace(receiver, allow=("https://chat.example/hook",))))
    refused(lambda: load_keys(replace(receiver, allow=("not an address", "https://[::1"))))


def test_a_question_mark_belongs_into_a_file(kept: Callable[[str], Path]) -> None:
    url = f"https://here.example/x?sig={CANARY}"
    allow = ("https://here.example",)
    assert load_keys(Receiver("r", ReceiverKind.WEBHOOK, url_file=kept(url), allow=allow)).url.reveal() == url
    with pytest.raises(UsageError, match="url_file"):
        load_keys(Receiver("r", ReceiverKind.WEBHOOK, url=url))


def test_every_part_of_a_secret_address_is_a_secret() -> None:
    told = {secret.reveal() for secret in Keys(Secret(f"{HOOK}?sig=0123456"), Secret("k")).all}
    assert {HOOK + "?sig=0123456", f"/services/T0/B0/{CANARY}", CANARY, "sig=0123456", "k"} <= told
    assert "T0" not in told
