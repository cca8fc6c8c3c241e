"""The messages of whole incidents, as files have them; and what no message may ever break, whatever it tells of.

`LATDOCTOR_GOLDEN=write` writes the files anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from latdoctor.incident import events
from latdoctor.incident.state import Incident
from latdoctor.notify import pagerduty, slack, webhook
from latdoctor.notify.messages import INCOMPLETE, SEVERITIES, Notice, notices, of_alert, of_level, worst
from latdoctor.notify.outbox import MAKERS
from latdoctor.notify.receiver_config import MASK, NOTICE_KINDS, Message, NoticeKind, Receiver, ReceiverKind
from tests.notify import incident_cases as stories
from tests.notify.incident_cases import RECEIVERS, STORIES

GOLDEN = Path(__file__).parent / "golden"
ON_CALL, CHANNEL, ARCHIVE = RECEIVERS


def made(incident: Incident, receiver: Receiver) -> list[Message]:
    """Whatever this receiver could be told of the incident as it stands."""
    found = (MAKERS[receiver.kind](incident, telling, receiver) for telling in notices(incident))
    return [message for message in found if message is not None]


def as_told(name: str, receiver: Receiver) -> list[Message]:
    """The messages of an incident that is told of as it goes on: each once, as it was when it was first made."""
    found: dict[str, Message] = {}
    for count in range(1, len(stories.story(name)) + 1):
        for message in made(stories.incident(name, count), receiver):
            found.setdefault(message.key, message)
    return list(found.values())


@pytest.mark.parametrize("receiver", RECEIVERS, ids=lambda one: one.kind)
@pytest.mark.parametrize("name", STORIES)
def test_messages_match_golden_files(name: str, receiver: Receiver) -> None:
    told = [
        {
            "what": message.what,
            "key": message.key,
            "says": message.message,
            "url": message.url,
            "headers": dict(message.headers),
            "body": _without_version(json.loads(message.body)),
        }
        for message in as_told(name, receiver)
    ]
    path = GOLDEN / f"{name}.{receiver.kind}.json"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(json.dumps(told, indent=1) + "\n")
    assert told == json.loads(path.read_text())


def _without_version(body: dict[str, Any]) -> dict[str, Any]:
    if "tool" in body:
        body["tool"].pop("version")
    return body


@pytest.mark.parametrize("name", STORIES)
def test_messages_have_unique_keys_and_no_secrets(name: str) -> None:
    for receiver in RECEIVERS:
        messages = as_told(name, receiver)
        assert len({message.key for message in messages}) == len(messages)
        for message in messages:
            assert re.fullmatch(r"[\x21-\x2d\x2f-\x7e]+", message.key), "plain, and without a full stop"
            check(message)


# PagerDuty


def test_an_incident_is_triggered_acknowledged_resolved_by_one_key() -> None:
    told = [json.loads(message.body) for message in as_told("promo-rush", ON_CALL)]
    alerts = [event for event in told if "event_action" in event]
    assert [event["event_action"] for event in alerts] == ["trigger", "trigger", "resolve", "resolve"]
    assert {event["dedup_key"] for event in alerts} == {pagerduty.dedup_key(stories.incident("promo-rush"))}
    changes = [message for message in as_told("promo-rush", ON_CALL) if message.url.endswith(pagerduty.CHANGES)]
    assert [message.what for message in changes] == [NoticeKind.CHANGE, NoticeKind.VERIFY]
    assert "long-alone → token-budget" in json.loads(changes[0].body)["payload"]["custom_details"]["Changed"]


def test_the_key_of_a_group_is_the_one_that_an_alertmanager_itself_sends() -> None:
    key = stories.incident("promo-rush").opened.key
    assert pagerduty.dedup_key(stories.incident("promo-rush")) == hashlib.sha256(key.encode()).hexdigest()


@pytest.mark.parametrize("key", ["", "x" * 5000, "ключ", "\x00"])
def test_a_key_is_never_longer_than_pagerduty_takes(key: str) -> None:
    incident = Incident("inc-1", events.IncidentOpened("t", (), events.OpenedBy.ALERT, "", "", key=key))
    assert re.fullmatch(r"[0-9a-f]{64}", pagerduty.dedup_key(incident))


def test_dedup_key_without_group_is_the_first_alert() -> None:
    incident = Incident("inc-1", events.IncidentOpened("t", (), events.OpenedBy.ALERT, "", ""))
    assert pagerduty.dedup_key(incident) == hashlib.sha256(b"inc-1").hexdigest()
    for fingerprint in ("aaaa", "bbbb"):
        incident.alerts[fingerprint] = events.Alert(fingerprint, events.AlertStatus.FIRING, "n", {}, {})
        assert pagerduty.dedup_key(incident) == hashlib.sha256(b"aaaa").hexdigest()


def test_incomplete_rollback_pages_again() -> None:
    incident = stories.incident("incomplete")
    (last,) = [json.loads(one.body) for one in made(incident, ON_CALL) if one.what == NoticeKind.ROLLBACK]
    assert last["event_action"] == "trigger"
    assert last["payload"]["severity"] == "critical"
    assert last["dedup_key"] != pagerduty.dedup_key(incident)
    (back,) = [one for one in made(stories.incident("rolled-back"), ON_CALL) if one.what == NoticeKind.ROLLBACK]
    assert back.url.endswith(pagerduty.CHANGES)


def test_ended_incident_does_not_page() -> None:
    for name in ("promo-rush", "false-alarm"):
        actions = [json.loads(one.body).get("event_action") for one in made(stories.incident(name), ON_CALL)]
        assert "trigger" not in actions
        assert "resolve" in actions


def test_pagerduty_ignores_healthy_diagnoses_and_plans() -> None:
    told = [(message.what, json.loads(message.body)["event_action"]) for message in as_told("by-hand", ON_CALL)]
    assert told == [(NoticeKind.ALERT, "trigger"), (NoticeKind.TAKEN, "acknowledge")]


@pytest.mark.parametrize(
    ("label", "severity"),
    [
        ("critical", "critical"),
        ("PAGE", "critical"),
        (" warning ", "warning"),
        ("P2", "error"),
        ("none", "info"),
        ("", "error"),
        ("<!here>", "error"),
    ],
)
def test_the_label_of_an_alert_as_one_of_four_words(label: str, severity: str) -> None:
    assert of_alert({"severity": label}) == severity


def test_without_a_label_a_level_or_anything_it_is_not_harmless() -> None:
    assert of_alert({}) == worst([]) == "error"
    assert [of_level(level) for level in ("critical", "warning", "info", "healthy", "inconclusive", "?")] == [
        "critical", "warning", "info", "info", "warning", "warning",
    ]  # fmt: skip
    assert worst(["info", "critical", "warning"]) == "critical"


# What holds of every message

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def check(message: Message) -> None:
    body = json.loads(message.body)
    assert not [text for text in texts(body) if CONTROL.search(text)]
    {
        ReceiverKind.PAGERDUTY: check_pagerduty,
        ReceiverKind.SLACK: check_slack,
        ReceiverKind.WEBHOOK: check_webhook,
    }[message.kind](body)


def check_pagerduty(body: dict[str, Any]) -> None:
    assert body["routing_key"] == MASK
    assert len(json.dumps(body)) <= 512_000
    payload = body.get("payload")
    if "event_action" in body:
        assert body["event_action"] in ("trigger", "acknowledge", "resolve")
        assert 0 < len(body["dedup_key"]) <= 255
        assert (payload is not None) == (body["event_action"] == "trigger")
    if payload is not None:
        assert 0 < len(payload["summary"]) <= 1024
        assert payload["source"]
        assert all(isinstance(value, str) for value in payload["custom_details"].values())
        assert payload.get("severity", "info") in SEVERITIES
        assert ("severity" in payload) == ("event_action" in body)


RAW = re.compile(r"[<>]|&(?!amp;|lt;|gt;)")
FIELDS = {
    "header": {"type", "text"},
    "section": {"type", "text", "fields"},
    "context": {"type", "elements"},
    "plain_text": {"type", "text", "emoji"},
    "mrkdwn": {"type", "text", "verbatim"},
}


def check_slack(body: dict[str, Any]) -> None:
    """By https://docs.slack.dev/reference/block-kit/blocks and …/composition-objects/text-object."""
    assert (body["mrkdwn"], body["parse"], body["link_names"], body["unfurl_links"]) == (False, "none", False, False)
    assert 1 <= len(body["blocks"]) <= 50
    assert 1 <= len(body["text"]) <= 3000
    assert not [text for text in texts(body) if RAW.search(text)], "no mention, link or date"
    for block in body["blocks"]:
        assert set(block) <= FIELDS[block["type"]]
        objects = [one for key in ("fields", "elements") for one in block.get(key, [])]
        objects += [block["text"]] if block.get("text") else []
        limit = {"header": 150, "section": 3000, "context": 3000}[block["type"]]
        assert objects
        assert len(block.get("fields", [])) <= 10
        assert len(block.get("elements", [])) <= 10
        for one in objects:
            assert set(one) == FIELDS[one["type"]]
            assert 1 <= len(one["text"]) <= (2000 if "fields" in block else limit)
            if one["type"] == "mrkdwn":
                assert re.fullmatch(r"\*[A-Z][A-Za-z ]*\*", one["text"]), "our own words alone"
                assert one["verbatim"] is True
            else:
                assert one["emoji"] is False


def check_webhook(body: dict[str, Any]) -> None:
    assert set(body) == {
        "schema_version", "tool", "id", "what", "at", "says", "severity", "state", "details", "incident", "entry",
    }  # fmt: skip
    assert body["schema_version"] == webhook.SCHEMA_VERSION
    jsonschema.validate(body, webhook.schema())
    assert set(body["incident"]) == {"id", "title", "targets", "source", "sop", "began", "clock"}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


NASTY = some.text(max_size=400) | some.lists(
    some.sampled_from(
        ["<!channel>", "<@U1>", "&amp;", "&", "<", ">", "*b*", "`", "\x1b[2J", "\u202e", "x" * 900, "|", "\n"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@given(
    title=NASTY,
    says=NASTY,
    details=some.lists(some.tuples(some.sampled_from(["Cause", "Summary", "Not seen"]), NASTY), max_size=80),
    kind=some.sampled_from(NOTICE_KINDS),
    state=some.sampled_from(["", events.AlertStatus.FIRING, events.AlertStatus.RESOLVED, INCOMPLETE]),
    severity=some.sampled_from(["", *SEVERITIES]),
)
def test_any_notice_gives_a_valid_message(
    title: str, says: str, details: list[tuple[str, str]], kind: str, state: str, severity: str
) -> None:
    incident = Incident("inc-1", events.IncidentOpened(title, (says, title), events.OpenedBy.HAND, title, "", key=says))
    telling = Notice(kind, "part", stories.at(0).at, says, tuple(details), severity, state)
    for receiver in RECEIVERS:
        message = MAKERS[receiver.kind](incident, telling, receiver)
        if message is not None:
            check(message)


ENTITY = re.compile(r"&(amp|lt|gt);")


@given(NASTY, some.integers(2, 3000))
@example("& ", 5)  # what fits without the blank
@example("a\n\n", 2)  # a text that is longer is cut, though only blanks were left out
def test_escaping_preserves_characters_and_entities(text: str, limit: int) -> None:
    shown = slack.escaped(text, limit)
    assert 1 <= len(shown) <= limit
    assert not RAW.search(shown)
    back = ENTITY.sub(lambda match: {"amp": "&", "lt": "<", "gt": ">"}[match[1]], shown)
    whole = slack.escaped(text, 10**6)
    if max(len(whole), len(text)) <= limit and "…" not in text:
        assert shown == whole
    elif back.endswith("…"):
        assert shown[:-1].strip() in whole


def test_alerts_are_counted_and_the_first_is_shown() -> None:
    incident = stories.incident("promo-rush", 2)
    many = {f"f{n}": replace_alert(incident, f"f{n}") for n in range(9)}
    told = notices(Incident(incident.id, incident.opened, stories.entries(_alerted(many)), alerts=many))
    assert told[-1].message.endswith("firing")
    assert dict(told[-1].details)["Alerts"] == "9 firing, 0 resolved, and 3 that the sender left out"


def replace_alert(incident: Incident, fingerprint: str) -> events.Alert:
    (first,) = incident.alerts.values()
    return events.Alert(fingerprint, first.status, f"Alert{fingerprint}", first.labels, first.annotations)


def _alerted(alerts: dict[str, events.Alert]) -> list[dict[str, Any]]:
    body = events.AlertsReceived("key", "latdoctor", tuple(alerts.values()), 3)
    import msgspec

    return [{"at": 1, "run": "inc-1", "kind": events.ALERTED, "body": msgspec.to_builtins(body)}]


def test_only_the_first_operator_action_is_sent() -> None:
    taken = [one for one in notices(stories.incident("by-hand")) if one.what == NoticeKind.TAKEN]
    assert [one.message for one in taken] == ["ada is at work: customers write that search takes 5 s"]


def test_an_allowed_address_is_the_configured_one_or_the_kinds_own() -> None:
    assert ON_CALL.allowed == ("https://events.pagerduty.com", "https://events.eu.pagerduty.com")
    assert ARCHIVE.allowed == ("https://hooks.example.org/incidents",)
    assert replace(ARCHIVE, allow=("https://a.example",)).allowed == ("https://a.example",)
    assert replace(ON_CALL, name="on-call.2").variable == "LATDOCTOR_NOTIFY_ON_CALL_2"
