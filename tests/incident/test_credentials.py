"""Credentials in alerts and notes are in no entry of the journal, and so in nothing that is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.incident import recorder
from latdoctor.incident.alert_intake import Intake
from latdoctor.incident.alertmanager import parse
from latdoctor.incident.recorder import field_without_credentials, without_credentials
from latdoctor.incident.sop.loader import shipped
from latdoctor.incident.state import incidents_in
from latdoctor.incident.timeline import timeline
from latdoctor.journal.store import Journal
from latdoctor.notify.messages import notices
from latdoctor.notify.outbox import MAKERS
from latdoctor.sanitize import clean
from tests.cli.running import run
from tests.incident.alert_builders import alert, notification
from tests.notify.incident_cases import RECEIVERS
from tests.report.test_timeline_forms import FORMS

CANARY = "c4n4ryc4n4ryc4n4ry"
PEM = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"http://ann:{CANARY}@prometheus:9090/graph?g0.expr=p99", "http://prometheus:9090/graph?g0.expr=p99"),
        (f"https://grafana/d/1?auth_token={CANARY}&from=now", "https://grafana/d/1?auth_token=redacted&from=now"),
        (f"curl -H 'Authorization: Bearer {CANARY}' shop", "curl -H 'Authorization: Bearer redacted' shop"),
        (f"it works with password={CANARY}, not without", "it works with password=redacted, not without"),
        (f"pass\u200bword: {CANARY}", "password: redacted"),
        (f"key hf_{CANARY} is dead", "key redacted is dead"),
        (f"{PEM[0]}\n{CANARY}\n{PEM[1]}", " redacted ".join(PEM)),
        ("P99 2.4 s, SLO 500 ms: 12 tokens/s, pad_token=0", "P99 2.4 s, SLO 500 ms: 12 tokens/s, pad_token=0"),
    ],
)
def test_what_is_left_of_a_text(text: str, shown: str) -> None:
    assert without_credentials(text, 500) == shown
    assert without_credentials(shown, 500) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("password", f"{CANARY} and {CANARY}", "redacted"),
        ("API_KEY", CANARY, "redacted"),
        ("url", f"http://u:{CANARY}@shop:80/", "http://shop:80/"),
        ("authorization", f"Basic {CANARY}", "redacted"),
        ("token", "12", "12"),
        ("token_type", "prompt", "prompt"),
        ("severity", "critical", "critical"),
        ("password", "redacted", "redacted"),
        (f"http://u:{CANARY}@x", f"token={CANARY}", "token=redacted"),
    ],
)
def test_what_is_left_of_a_label(name: str, value: str, shown: str) -> None:
    assert field_without_credentials(name, value, 500) == shown


@given(st.text(max_size=60), st.text("abc=:/@ token password", max_size=80), st.integers(2, 60))
def test_any_input_is_cleaned_and_bounded(name: str, text: str, limit: int) -> None:
    for shown in (without_credentials(text, limit), field_without_credentials(clean(name, 40), text, limit)):
        assert len(shown) <= limit
        assert clean(shown) == shown


def leaking() -> dict[str, Any]:
    told = alert(1)
    told["generatorURL"] = f"http://ann:{CANARY}@prometheus:9090/graph?token={CANARY}"
    told["labels"] |= {"password": CANARY, "upstream": f"http://ann:{CANARY}@shop/"}
    told["annotations"] |= {"summary": f"log in with token={CANARY}", "runbook_url": f"https://wiki/?api_key={CANARY}"}
    return told


def test_credentials_are_neither_stored_nor_printed(tmp_path: Path) -> None:
    journal = Journal.opened(tmp_path / "journal.sqlite")
    Intake(journal, tmp_path).take(parse(notification([leaking()], key=f'{{}}:{{url="http://u:{CANARY}@x"}}')))
    (incident,) = incidents_in(journal.entries())
    recorder.add_note(journal, incident, f"the password: {CANARY}", "Ada")
    recorder.mark_stage(journal, incident, shipped()["slow-inference"], "confirmed", f"token={CANARY}", "Ada")
    recorder.close_incident(journal, incident, "resolved", f"secret={CANARY}", "Ada")
    (incident,) = incidents_in(journal.entries())
    assert CANARY.encode() not in (tmp_path / "journal.sqlite").read_bytes()
    assert all(CANARY not in form(timeline(incident)) for form in FORMS.values())
    told = [MAKERS[to.kind](incident, one, to) for one in notices(incident) for to in RECEIVERS]
    assert sum(message is not None for message in told) > len(RECEIVERS)
    assert all(CANARY.encode() not in message.body and CANARY not in message.message for message in told if message)
    assert "http://prometheus:9090/graph" in FORMS["json"](timeline(incident)), "what is no secret is told"


def test_groups_that_only_differ_by_a_secret_stay_apart() -> None:
    keys = {parse(notification([alert(1)], key=f"x=http://u:{one}@h")).key for one in ("a", "b")}
    assert len(keys) == 2
    assert not [key for key in keys if "u:" in key]


def test_a_title_that_is_given_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run(["sop", "start", "--title", f"slow since token={CANARY}"]).code == 0
    assert CANARY.encode() not in (tmp_path / "state" / "journal.sqlite").read_bytes()
