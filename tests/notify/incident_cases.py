"""Incidents from cases/*.json, each entry at a number of seconds, and the receivers."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.entry import JournalEntry, Moment, encode_body, next_entry
from latdoctor.notify.receiver_config import Receiver, ReceiverKind

CASES = Path(__file__).parent / "cases"
STORIES = tuple(sorted(path.stem for path in CASES.glob("*.json")))
BEGAN = datetime.datetime(2026, 11, 22, 2, 51, tzinfo=datetime.UTC)
BOOT = "boot-1"

RECEIVERS = (
    Receiver("on-call", ReceiverKind.PAGERDUTY),
    Receiver("channel", ReceiverKind.SLACK, url_file=Path("slack.url")),
    Receiver("archive", ReceiverKind.WEBHOOK, url="https://hooks.example.org/incidents"),
)


def at(seconds: float) -> Moment:
    """So many seconds after the beginning."""
    when = BEGAN + datetime.timedelta(seconds=seconds)
    return Moment(when.isoformat(timespec="microseconds").replace("+00:00", "Z"), 1000.0 + seconds, BOOT)


def entries(told: Sequence[dict[str, Any]]) -> list[JournalEntry]:
    made: list[JournalEntry] = []
    for one in told:
        before = made[-1] if made else None
        made.append(next_entry(before, one["run"], one["kind"], encode_body(one["body"]), at(one["at"])))
    return made


def story(name: str) -> list[dict[str, Any]]:
    """What the file tells, one entry after the other."""
    told = json.loads((CASES / f"{name}.json").read_text())
    assert isinstance(told, list)
    return told


def incident(name: str, upto: int | None = None) -> Incident:
    """The incident of a story, up to an entry of it."""
    (found,) = incidents_in(entries(story(name)[:upto]))
    return found
