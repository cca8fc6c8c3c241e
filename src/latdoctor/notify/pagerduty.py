"""PagerDuty, Events API v2: alerts that are triggered, acknowledged and resolved, and change events.

https://developer.pagerduty.com/docs/events-api-v2/overview/: a summary of at most 1024 characters, a `dedup_key` of at
most 255, an event of at most 512 KB. A change event does not page.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

from msgspec import Struct, field

from latdoctor.incident.events import AlertStatus, OpenedBy
from latdoctor.incident.state import Incident
from latdoctor.notify.messages import DEFAULT_SEVERITY, INCOMPLETE, Details, Notice, message_of
from latdoctor.notify.receiver_config import MASK, Message, NoticeKind, Receiver
from latdoctor.sanitize import TITLE, clean, fitted

ALERTS, CHANGES = "/v2/enqueue", "/v2/change/enqueue"
MAX_SUMMARY, MAX_SOURCE, MAX_DETAILS = 1024, 255, 60


class EventAction(StrEnum):
    """Action of an event; `CHANGE` is a change event."""

    TRIGGER = "trigger"
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"
    CHANGE = "change"


class _Payload(Struct, frozen=True, omit_defaults=True):
    summary: str
    source: str
    severity: str = ""  # of an alert only
    timestamp: str = ""
    group: str = ""
    kind: str = field(default="", name="class")
    custom_details: dict[str, str] = {}


class _Alert(Struct, frozen=True, omit_defaults=True):
    event_action: str
    dedup_key: str
    routing_key: str
    payload: _Payload | None = None
    client: str = ""


class _Change(Struct, frozen=True, omit_defaults=True):
    routing_key: str
    payload: _Payload


def message(incident: Incident, notice: Notice, receiver: Receiver) -> Message | None:
    """Event for a notice; None where PagerDuty has no use for it, as for a plan."""
    action = _action(incident, notice)
    if not action:
        return None
    payload = _payload(incident, notice, alert=action == EventAction.TRIGGER)
    event: Struct
    if action == EventAction.CHANGE:
        event = _Change(MASK, payload)
    elif action == EventAction.TRIGGER:
        event = _Alert(action, _event_key(incident, notice), MASK, payload, "latdoctor")
    else:
        event = _Alert(action, _event_key(incident, notice), MASK)
    path = CHANGES if action == EventAction.CHANGE else ALERTS
    return message_of(receiver, incident, notice, event, text=f"{action}: {notice.message}", path=path)


def dedup_key(incident: Incident) -> str:
    """PagerDuty's key of the incident: 64 hexadecimal digits.

    For a group of alerts it equals the key that Alertmanager sends to PagerDuty (`Key.Hash` in its `notify`), so that
    both refer to one PagerDuty alert and page once.
    """
    first = next(iter(incident.alerts), "")
    return hashlib.sha256((incident.opened.key or first or incident.id).encode()).hexdigest()


def _event_key(incident: Incident, notice: Notice) -> str:
    """A change that may still be in place pages again, also where the incident was acknowledged."""
    if notice.state != INCOMPLETE:
        return dedup_key(incident)
    return hashlib.sha256(f"{incident.id} {notice.part}".encode()).hexdigest()


def _action(incident: Incident, notice: Notice) -> str:
    """Event action; empty: none. A closed incident does not page: unsent notices collapse into its end."""
    harms = incident.open and (incident.firing or incident.opened.source == OpenedBy.HAND)
    match notice.what:
        case NoticeKind.ALERT:
            return EventAction.RESOLVE if notice.state == AlertStatus.RESOLVED else EventAction.TRIGGER if harms else ""
        case NoticeKind.DIAGNOSIS | NoticeKind.LATE:
            return EventAction.TRIGGER if harms and notice.severity != "info" else ""
        case NoticeKind.TAKEN:
            return EventAction.ACKNOWLEDGE if incident.open else ""
        case NoticeKind.CLOSED:
            return EventAction.RESOLVE
        case NoticeKind.CHANGE | NoticeKind.VERIFY | NoticeKind.ROLLBACK:
            return EventAction.TRIGGER if notice.state == INCOMPLETE else EventAction.CHANGE
        case NoticeKind.TEST:
            return notice.state
    return ""


def _payload(incident: Incident, notice: Notice, *, alert: bool) -> _Payload:
    opened = incident.opened
    title = fitted(opened.title, TITLE)
    pairs = f"{title}: {notice.message}" if title else notice.message
    summary = clean(pairs, MAX_SUMMARY).strip() or incident.id
    source = clean(", ".join(opened.targets), MAX_SOURCE).strip() or "latdoctor"
    details = _details(notice.details, incident)
    if not alert:
        return _Payload(summary, source, timestamp=notice.at, custom_details=details)
    return _Payload(
        summary=summary,
        source=source,
        severity=notice.severity or DEFAULT_SEVERITY,
        timestamp=notice.at,
        group=clean(opened.sop, MAX_SOURCE),
        kind=notice.what,
        custom_details=details,
    )


def _details(pairs: Details, incident: Incident) -> dict[str, str]:
    """Details by name; duplicate names are numbered."""
    found: dict[str, str] = {"Incident": incident.id}
    for name, text in pairs[:MAX_DETAILS]:
        same = sum(key == name or key.startswith(f"{name} ") for key in found)
        found[f"{name} {same + 1}" if same else name] = clean(text, MAX_SUMMARY)
    return found
