"""The real commands of an incident, with receivers that work, hang and are not there: mending goes on all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from latdoctor.incident import events
from latdoctor.incident.state import decode_body
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from tests.cli.running import private_file
from tests.crash.command import Command
from tests.crash.target import BEFORE, Target
from tests.http.stub_server import Server, answering, hangs, serving

CANARY = "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ry12"


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    with Target() as target:
        yield Command(tmp_path, target)


def configured(command: Command, well: Server, other: str) -> None:
    private_file(command.folder / "pagerduty.key", CANARY)
    (command.folder / "latdoctor.yaml").write_text(f"""
notify:
  on-call: {{kind: pagerduty, url: "http://127.0.0.1:{well.port}", key_file: pagerduty.key, allow_private: true}}
  archive: {{kind: webhook, url: "{other}", allow_private: true}}
""")
    done(command, "trust")


def done(command: Command, *words: str) -> str:
    ended = command.ended(command.line(*words))
    assert ended.code == 0, ended.err
    assert CANARY not in ended.out + ended.err
    return ended.out


def shown(event: dict[str, Any]) -> str:
    """An alert's action, or of a change event the first words of its summary."""
    return str(event.get("event_action") or event["payload"]["summary"].partition(": ")[2].split(" on ")[0])


def test_change_is_notified_without_side_effects(command: Command) -> None:
    with serving(answering(202)) as well, serving(hangs) as hanging:
        configured(command, well, "http://127.0.0.1:9/gone")
        done(command, "sop", "start", "--title", "slow", "--target", command.target.url, "--by", "ada")
        done(command, "sop", "note", "--stage", "diagnosed", "--by", "ada")
        configured(command, well, hanging.url)
        command.remember()
        ended = command.ended(command.remediate("--apply", "--yes", "-o", "json", playbook="test.proven"))
        assert ended.code == 0, ended.err
        assert "latdoctor: archive " in ended.err, "it is told that it could not be told"
        (result,) = json.loads(ended.out)["results"]
        configured(command, well, "http://127.0.0.1:9/gone")
        done(command, "rollback", result["run"])
        assert command.target.seen().config == BEFORE
        done(command, "sop", "close", "--outcome", "resolved", "--text", "taken back")
        told = [shown(json.loads(one)) for one in well.bodies]
    journal = Journal.reading(command.state / JOURNAL)
    begun = [entry for entry in journal.entries() if entry.kind == events.NOTIFYING]
    assert told[:2] == ["trigger", "acknowledge"]
    assert [one.split()[0] for one in told[2:-1]] == ["changed", "verified", "rolled"], told
    assert told[-1] == "resolve"
    assert {decode_body(one, events.NotificationStarted).to for one in begun} == {"on-call", "archive"}
    assert CANARY.encode() not in journal.path.read_bytes()
    assert journal.verify() is not None
