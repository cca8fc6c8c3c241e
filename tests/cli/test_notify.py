"""`latdoctor notify`: who is told of what, once; and that no secret is in anything that it prints or keeps."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.cli.notifier import notifying
from latdoctor.incident import events
from latdoctor.incident.state import decode_body
from latdoctor.journal.store import Journal
from latdoctor.remediation import run_history
from tests.cli.running import Outcome, private_file, run, write_trusted
from tests.http.stub_server import Server, answering, each, hangs, serving
from tests.notify import incident_cases as stories
from tests.remediation.actions.lossy_proxy import PATIENCE

CANARY = "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ry12"
SIGNING = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "inc-20261122-0251-4f2a"


@pytest.fixture(autouse=True)
def home(apart: Path) -> Path:
    return apart


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(answering(202)) as one:
        yield one


def configure(server: Server, more: str = "") -> None:
    private_file("pagerduty.key", f"{CANARY}\n")
    private_file("slack.url", f"http://127.0.0.1:{server.port}/services/T0/B0/{CANARY}\n")
    private_file("webhook.key", SIGNING)
    here = f"http://127.0.0.1:{server.port}"
    write_trusted(f"""
notify:
  on-call:
    kind: pagerduty
    url: {here}
    key_file: pagerduty.key
    allow_private: true
    on: [alert, change, late, closed]
  channel:
    kind: slack
    url_file: slack.url
    allow: [{here}/services]
    allow_private: true
    on: [alert, diagnosis]
  archive:
    kind: webhook
    url: {here}/hook
    key_file: webhook.key
    allow_private: true
    on: [diagnosis]
{more}""")


def happened(count: int = 4) -> Journal:
    """An incident whose alert has just come and was just diagnosed."""
    journal = Journal.opened(Path("state/journal.sqlite").absolute())
    for one in stories.story("promo-rush")[:count]:
        journal.append(one["run"], one["kind"], one["body"])
    return journal


def quiet(outcome: Outcome) -> Outcome:
    for secret in (CANARY, SIGNING, SIGNING.removeprefix("whsec_")):
        assert secret not in outcome.out + outcome.err
    return outcome


def nothing_kept() -> None:
    kept = {"pagerduty.key", "slack.url", "webhook.key"}
    for path in Path().rglob("*"):
        if path.is_file() and path.name not in kept:
            assert CANARY.encode() not in path.read_bytes(), path


def test_all_that_is_due_is_sent_and_then_nothing_more(server: Server) -> None:
    configure(server)
    happened()
    outcome = quiet(run(["notify", "send"]))
    assert (outcome.code, outcome.out.splitlines()[-1][:7]) == (0, "4 sent."), outcome
    assert sorted(line.split(":")[0] for line in outcome.err.splitlines()) == [
        "archive",
        "channel",
        "channel",
        "on-call",
    ]
    assert len(server.seen) == 4
    again = quiet(run(["notify", "send"]))
    assert (again.code, len(server.seen)) == (0, 4)
    assert "Nothing is due" in again.out
    nothing_kept()


def test_a_dry_run_shows_all_of_it_and_sends_and_writes_nothing(server: Server) -> None:
    configure(server)
    happened()
    before = Path("state/journal.sqlite").read_bytes()
    outcome = quiet(run(["notify", "send", "--dry-run"]))
    assert outcome.code == 0
    assert '"routing_key": "…"' in outcome.out
    assert "POST … (the address in " in outcome.out
    assert "webhook-signature: …" in outcome.out
    shown = json.loads(quiet(run(["notify", "send", "--dry-run", "-o", "json"])).out)
    assert [(one["to"], one["what"]) for one in shown["messages"]] == [
        ("on-call", "alert"), ("channel", "alert"), ("channel", "diagnosis"), ("archive", "diagnosis"),
    ]  # fmt: skip
    assert server.seen == []
    assert Path("state/journal.sqlite").read_bytes() == before


def test_what_a_dry_run_shows_is_what_is_sent(server: Server) -> None:
    configure(server)
    happened()
    shown = json.loads(run(["notify", "send", "--dry-run", "-o", "json"]).out)["messages"]
    run(["notify", "send"])
    sent = [json.loads(decode_body) for decode_body in server.bodies]
    for one in sent:
        if "routing_key" in one:
            assert one["routing_key"] == CANARY
            one["routing_key"] = "…"
    order = json.dumps
    assert sorted(map(order, sent)) == sorted(order(one["body"]) for one in shown)


def test_one_receiver_and_one_incident(server: Server) -> None:
    configure(server)
    happened()
    assert quiet(run(["notify", "send", "--to", "channel", "--incident", "inc-2026"])).code == 0
    assert len(server.seen) == 2
    assert quiet(run(["notify", "send", "--incident", "nothing"])).code == 2
    assert quiet(run(["notify", "send", "--to", "nobody"])).code == 2


def test_refusal_is_reported_and_retried_only_with_again() -> None:
    with serving(each(answering(404, f"no_team {CANARY}".encode()), answering(200))) as server:
        configure(server)
        happened(2)
        first = quiet(run(["notify", "send", "--to", "channel"]))
        assert first.code == 1
        assert "NOT sent alert" in first.err
        assert "no_team …" in first.err
        assert "given up" in first.err
        assert quiet(run(["notify", "send", "--to", "channel"])).code == 0
        assert len(server.seen) == 1
        assert quiet(run(["notify", "send", "--to", "channel", "--again"])).code == 0
        assert len(server.seen) == 2
    nothing_kept()


def test_waiting_messages_are_listed_with_receiver_and_time() -> None:
    with serving(answering(503, b"", "retry-after: 600")) as server:
        configure(server)
        happened()
        first = quiet(run(["notify", "send"]))
        assert first.code == 1
        assert re.search(r"^channel: 2 messages wait, next try in 10 min$", first.out, re.MULTILINE), first.out
        assert re.search(r"^on-call: 1 message waits, next try in 10 min$", first.out, re.MULTILINE), first.out
        assert first.out.splitlines()[-1] == "0 sent, 3 tries failed. Next: latdoctor notify send, in 10 min"
        then = quiet(run(["notify", "send"]))
        assert (then.code, len(server.seen)) == (1, 3), "nothing was due"
        assert "channel: 2 messages wait" in then.out
        last = then.out.splitlines()[-1]  # some seconds may be over by now
        assert re.fullmatch(r"Nothing is due now\. Next: latdoctor notify send, in (10|9\.\d+) min", last)
        dry = quiet(run(["notify", "send", "--dry-run"]))
        assert "on-call: 1 message waits" in dry.out
        told = json.loads(quiet(run(["notify", "send", "-o", "json"])).out)
        assert {one["to"]: one["count"] for one in told["waiting"]} == {"on-call": 1, "channel": 2, "archive": 1}
        assert all(500 < one["again_after"] <= 600 for one in told["waiting"])


def test_when_all_was_sent_nothing_waits(server: Server) -> None:
    configure(server)
    happened()
    outcome = run(["notify", "send"])
    assert outcome.out == "4 sent. Next: latdoctor timeline\n"


def test_missing_secret_is_reported_and_others_notified(server: Server) -> None:
    configure(server)
    Path("pagerduty.key").unlink()
    happened()
    outcome = quiet(run(["notify", "send"]))
    assert outcome.code == 1
    assert "pagerduty.key" in outcome.out
    assert len(server.seen) == 3
    assert quiet(run(["notify", "send", "--dry-run"])).code == 2


@pytest.mark.parametrize(("name", "count"), [("on-call", 2), ("channel", 1), ("archive", 1)])
def test_test_message_is_sent_and_not_journaled(server: Server, name: str, count: int) -> None:
    configure(server)
    shown = quiet(run(["notify", "test", name, "--dry-run"]))
    assert (shown.code, server.seen) == (0, [])
    assert "nothing is wrong" in shown.out
    outcome = quiet(run(["notify", "test", name]))
    assert (outcome.code, len(server.seen)) == (0, count), outcome
    if name == "on-call":
        told = [json.loads(decode_body) for decode_body in server.bodies]
        assert [one["event_action"] for one in told] == ["trigger", "resolve"]
        assert told[0]["dedup_key"] == told[1]["dedup_key"]
        assert told[0]["payload"]["severity"] == "info"
    assert not Path("state").exists()


@pytest.mark.parametrize("status", [302, 403, 500])
def test_refused_test_has_a_reason(status: int) -> None:
    with serving(answering(status, f"it says {CANARY}".encode())) as server:
        configure(server)
        for name in ("on-call", "channel", "archive"):
            outcome = run(["notify", "test", name])
            assert outcome.code == 1
            assert str(status) in outcome.err
            assert name == "archive" or quiet(outcome)  # what is no secret of its own it may repeat
        assert len(server.seen) == 3


def test_loopback_requires_allow_private(server: Server) -> None:
    configure(server)
    text = (
        Path("latdoctor.yaml")
        .read_text()
        .replace("http://127", "https://127")
        .replace("allow_private: true", "allow_private: false")
    )
    write_trusted(text)
    outcome = quiet(run(["notify", "test", "archive"]))
    assert outcome.code == 1
    assert "allow_private is not set" in outcome.err
    assert server.seen == []


BAD = {
    "kind: mail": "not one of pagerduty, slack, webhook",
    "kind: slack\n    url: https://hooks.slack.com/services/x": "its address is a secret",
    "kind: slack\n    key_file: x": "its address is its key",
    "kind: pagerduty\n    url_file: x": "its address is no secret",
    "kind: webhook": "a webhook needs an address",
    "kind: webhook\n    url: https://a.example\n    url_file: b": "a webhook needs an address",
    "kind: webhook\n    url_file: b": "needs 'allow'",
    "kind: pagerduty\n    on: [alert, everything]": "'everything' is not one of alert,",
    "kind: pagerduty\n    allow_private: maybe": "allow_private: Expected bool",
    "kind: pagerduty\n    routing_key: abc": "unknown key 'routing_key'",
}


@pytest.mark.parametrize(("text", "why"), BAD.items(), ids=range(len(BAD)))
def test_configuration_errors_have_lines(text: str, why: str) -> None:
    write_trusted(f"notify:\n  one:\n    {text}\n")
    outcome = run(["notify", "send"])
    assert outcome.code == 2
    assert why in outcome.err
    assert "latdoctor.yaml:" in outcome.err


def test_all_problems_are_reported_at_once() -> None:
    write_trusted("notify:\n  a b/c: {kind: mail}\n  two: {kind: webhook}\nother: 1\n")
    outcome = run(["notify", "send"])
    assert all(why in outcome.err for why in ("is no valid name", "not one of", "an address", "unknown key 'other'"))


def test_no_receivers_error_has_a_next_step() -> None:
    for command in ("send", "test x"):
        outcome = run(["notify", *command.split()])
        assert (outcome.code, "latdoctor.yaml" in outcome.err) == (2, True)


# Beside a command that goes on


def test_background_sender_sends_all_by_the_end(server: Server) -> None:
    configure(server)
    said: list[str] = []
    with notifying(said.append, PATIENCE) as poke:
        journal = happened(2)
        poke()
        for one in stories.story("promo-rush")[2:4]:
            poke(journal.append(one["run"], one["kind"], one["body"]))
    assert said == []
    told = [decode_body(entry, events.NotificationSent) for entry in journal.entries(kinds=(events.NOTIFIED,))]
    assert sorted((one.to, one.what) for one in told) == [
        ("archive", "diagnosis"), ("channel", "alert"), ("channel", "diagnosis"), ("on-call", "alert"),
    ]  # fmt: skip
    assert all(one.sent for one in told)


def test_incident_commands_send_notifications(server: Server) -> None:
    configure(server)
    text = Path("latdoctor.yaml").read_text().replace("on: [alert, change, late, closed]", "on: [alert, taken, closed]")
    write_trusted(text.partition("  channel:")[0])
    for command in (
        "sop start --title slow --target shop --by ada",
        "sop note looking --by ada",
        "sop note again --by ada",
        "sop close --text mended --by ada",
    ):
        assert quiet(run(command.split())).code == 0
    told = [json.loads(one) for one in server.bodies]
    assert [one["event_action"] for one in told] == ["trigger", "acknowledge", "resolve"]
    assert len({one["dedup_key"] for one in told}) == 1
    assert told[0]["payload"]["source"] == "shop"


def test_hanging_receiver_delays_nothing() -> None:
    with serving(hangs) as hanging, serving(answering(200)) as well:
        configure(well)
        text = Path("latdoctor.yaml").read_text()
        write_trusted(text.replace(f"url: http://127.0.0.1:{well.port}\n", f"url: http://127.0.0.1:{hanging.port}\n"))
        said: list[str] = []
        with notifying(said.append, 0.5) as poke:
            journal = happened()
            poke()
            while len(journal.entries(kinds=(events.NOTIFIED,))) < 3:
                assert threading.active_count()
        assert said == ["latdoctor: on-call: messages are pending. Next: latdoctor notify send"]
        hanging.end.set()
        for thread in [one for one in threading.enumerate() if one.name.startswith("notify ")]:
            thread.join(PATIENCE)


def test_errors_are_logged_once_and_never_raised(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(server)
    private_file("pagerduty.key", f"{CANARY}x")
    private_file("slack.url", f"https://evil.example/{CANARY}")
    said: list[str] = []

    def broken(*_: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr("latdoctor.notify.webhook.msgspec.json.encode", broken)
    with notifying(said.append, PATIENCE) as poke:
        poke()
        poke("with anything")
    monkeypatch.undo()
    assert len(said) == len(set(said)) >= 2
    assert not [line for line in said if CANARY in line]
    assert any("32 letters" in line for line in said)
    assert any("https://evil.example cannot be its address" in line for line in said)


def test_a_configuration_that_is_broken_disturbs_nothing() -> None:
    write_trusted("notify: [\n")
    said: list[str] = []
    with notifying(said.append) as poke:
        poke()
    assert len(said) == 1
    assert "no receiver is notified" in said[0]


def test_broken_receiver_does_not_prevent_rollback() -> None:
    journal = Journal.opened(Path("state/journal.sqlite").absolute())
    with serving(answering(404, b"{}")) as there:
        url = f"http://127.0.0.1:{there.port}"
        write_trusted(f"targets: {{bot: {{admin: ['{url}']}}}}\nnotify: {{a: {{kind: sms}}}}\n")
        for one in stories.story("promo-rush"):
            told = json.loads(json.dumps(one["body"]).replace("http://10.0.0.7:8080", url))
            journal.append(one["run"], one["kind"], told)
        (mended,) = run_history.runs(journal.entries())
        outcome = run(["rollback", mended.id])
        assert "no receiver is notified: latdoctor.yaml:2: " in outcome.err
        assert outcome.code != 2
        assert there.seen  # the way in was found: the target was asked how it stands


def test_without_receivers_nothing_is_started() -> None:
    before = threading.active_count()
    with notifying() as poke:
        poke()
        assert threading.active_count() == before
    assert not Path("state").exists()
