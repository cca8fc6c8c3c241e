"""A webhook of anybody's: our own JSON, signed as Standard Webhooks has it where a secret is configured.

`schema_version` changes where a field is renamed, retyped or removed; one that is added changes nothing. `id` is also
the header `webhook-id`: who gets it twice has had it before. https://www.standardwebhooks.com/
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from latdoctor import __version__
from latdoctor.incident.state import Incident
from latdoctor.notify.messages import Notice, key_of
from latdoctor.notify.receiver import WEBHOOK, Message, Receiver
from latdoctor.sanitize import clean

SCHEMA_VERSION = "1"
LONGEST, MOST = 2000, 60  # characters of a text, and details


class ToolVersion(Struct, frozen=True):
    name: str
    version: str


class IncidentSummary(Struct, frozen=True):
    """The incident. `began`: unix seconds, by whose clock `clock` says; null where that is not told."""

    id: str
    title: str
    targets: tuple[str, ...]
    source: str
    sop: str
    began: float | None
    clock: str


class JournalPosition(Struct, frozen=True):
    """Where it stands in the journal."""

    seq: int
    kind: str
    run: str
    digest: str


class Detail(Struct, frozen=True):
    name: str
    text: str


class Notification(Struct, frozen=True):
    """What is sent. `at` is RFC 3339 in UTC; null is not told."""

    schema_version: str
    tool: ToolVersion
    id: str
    what: str
    at: str
    says: str
    severity: str | None
    state: str | None
    details: tuple[Detail, ...]
    incident: IncidentSummary
    entry: JournalPosition | None


def schema() -> dict[str, Any]:
    """The JSON Schema of what is sent."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"What a webhook of latdoctor is told, version {SCHEMA_VERSION}",
        **msgspec.json.schema(Notification),
    }


def message(incident: Incident, telling: Notice, receiver: Receiver) -> Message | None:
    """All of it, as JSON."""
    key = key_of(incident, telling)
    opened, entry = incident.opened, telling.entry
    told = Notification(
        schema_version=SCHEMA_VERSION,
        tool=ToolVersion("latdoctor", __version__),
        id=key,
        what=telling.what,
        at=telling.at,
        says=clean(telling.message, LONGEST),
        severity=telling.severity or None,
        state=telling.state or None,
        details=tuple(Detail(clean(name, LONGEST), clean(text, LONGEST)) for name, text in telling.details[:MOST]),
        incident=IncidentSummary(
            id=incident.id,
            title=clean(opened.title, LONGEST),
            targets=tuple(clean(target, LONGEST) for target in opened.targets[:MOST]),
            source=opened.source,
            sop=clean(opened.sop, LONGEST),
            began=opened.began,
            clock=clean(opened.clock, LONGEST),
        ),
        entry=JournalPosition(entry.seq, entry.kind, entry.run, entry.digest) if entry else None,
    )
    return Message(
        to=receiver.name,
        kind=WEBHOOK,
        what=telling.what,
        incident=incident.id,
        key=key,
        message=telling.message,
        url=receiver.base,
        headers=(("Content-Type", "application/json"), ("webhook-id", key)),
        body=msgspec.json.encode(told),
    )
