"""Generic webhook: latdoctor's own JSON, signed per Standard Webhooks where a secret is configured.

`schema_version` changes when a field is renamed, retyped or removed, not when one is added. `id` equals the header
`webhook-id`, for deduplication. https://www.standardwebhooks.com/
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from latdoctor import __version__
from latdoctor.incident.state import Incident
from latdoctor.notify.messages import Notice, key_of, message_of
from latdoctor.notify.receiver_config import Message, Receiver
from latdoctor.sanitize import clean

SCHEMA_VERSION = "1"
LONGEST, MOST = 2000, 60  # characters of a text, and details


class ToolVersion(Struct, frozen=True):
    name: str
    version: str


class IncidentSummary(Struct, frozen=True):
    """The incident. `began`: unix seconds by `clock`; null where unknown."""

    id: str
    title: str
    targets: tuple[str, ...]
    source: str
    sop: str
    began: float | None
    clock: str


class JournalPosition(Struct, frozen=True):
    """Position in the journal."""

    seq: int
    kind: str
    run: str
    digest: str


class Detail(Struct, frozen=True):
    name: str
    text: str


class Notification(Struct, frozen=True):
    """The payload. `at` is RFC 3339 in UTC; null is unknown."""

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
    """JSON Schema of the payload."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Webhook notification of latdoctor, version {SCHEMA_VERSION}",
        **msgspec.json.schema(Notification),
    }


def message(incident: Incident, notice: Notice, receiver: Receiver) -> Message | None:
    """All of it, as JSON."""
    key = key_of(incident, notice)
    opened, entry = incident.opened, notice.entry
    notification = Notification(
        schema_version=SCHEMA_VERSION,
        tool=ToolVersion("latdoctor", __version__),
        id=key,
        what=notice.what,
        at=notice.at,
        says=clean(notice.message, LONGEST),
        severity=notice.severity or None,
        state=notice.state or None,
        details=tuple(Detail(clean(name, LONGEST), clean(text, LONGEST)) for name, text in notice.details[:MOST]),
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
    return message_of(receiver, incident, notice, notification, headers=(("webhook-id", key),))
