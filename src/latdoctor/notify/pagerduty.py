"""PagerDuty, Events API v2: an alert that is triggered, acknowledged and resolved, and change events beside it.

https://developer.pagerduty.com/docs/events-api-v2/overview/: a summary of at most 1024 characters, a `dedup_key` of at
most 255, an event of at most 512 KB. A change event wakes nobody.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct, field

from latdoctor.incident import events
from latdoctor.incident.state import Incident
from latdoctor.notify import receiver as what
from latdoctor.notify.messages import DEFAULT_SEVERITY, INCOMPLETE, Details, Notice, key_of
from latdoctor.notify.receiver import MASK, PAGERDUTY, Message, Receiver
from latdoctor.sanitize import TITLE, clean, fitted

ALERTS, CHANGES = "/v2/enqueue", "/v2/change/enqueue"
MAX_SUMMARY, MAX_SOURCE, MAX_DETAILS = 1024, 255, 60
TRIGGER, ACKNOWLEDGE, RESOLVE, CHANGE = "trigger", "acknowledge", "resolve", "change"


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


def message(incident: Incident, telling: Notice, receiver: Receiver) -> Message | None:
    """What PagerDuty is told of it; None where that is nothing for PagerDuty: a plan changes nothing, for one."""
    action = _action(incident, telling)
    if not action:
        return None
    payload = _payload(incident, telling, alert=action == TRIGGER)
    event: Struct
    if action == CHANGE:
        event = _Change(MASK, payload)
    elif action == TRIGGER:
        event = _Alert(action, _dedup_key(incident, telling), MASK, payload, "latdoctor")
    else:
        event = _Alert(action, _dedup_key(incident, telling), MASK)
    return Message(
        to=receiver.name,
        kind=PAGERDUTY,
        what=telling.what,
        incident=incident.id,
        key=key_of(incident, telling),
        message=f"{action}: {telling.message}",
        url=receiver.base + (CHANGES if action == CHANGE else ALERTS),
        headers=(("Content-Type", "application/json"),),
        body=msgspec.json.encode(event),
    )


def dedup_key(incident: Incident) -> str:
    """By which PagerDuty knows the incident: 64 hexadecimal digits.

    Of a group of alerts it is what an Alertmanager itself sends to PagerDuty (`Key.Hash` in its `notify`): both speak
    of one alert there, and nobody is woken twice.
    """
    first = next(iter(incident.alerts), "")
    return hashlib.sha256((incident.opened.key or first or incident.id).encode()).hexdigest()


def _dedup_key(incident: Incident, telling: Notice) -> str:
    """A change that may still stand wakes somebody anew, also where the incident was acknowledged."""
    if telling.state != INCOMPLETE:
        return dedup_key(incident)
    return hashlib.sha256(f"{incident.id} {telling.part}".encode()).hexdigest()


def _action(incident: Incident, telling: Notice) -> str:
    """An incident that is over wakes nobody any more: what was not sent by then is sent as its end alone."""
    harms = incident.open and (incident.firing or incident.opened.source == events.BY_HAND)
    match telling.what:
        case what.ALERT:
            return RESOLVE if telling.state == events.RESOLVED else TRIGGER if harms else ""
        case what.DIAGNOSIS | what.LATE:
            return TRIGGER if harms and telling.severity != "info" else ""
        case what.TAKEN:
            return ACKNOWLEDGE if incident.open else ""
        case what.CLOSED:
            return RESOLVE
        case what.CHANGE | what.VERIFY | what.ROLLBACK:
            return TRIGGER if telling.state == INCOMPLETE else CHANGE
        case what.TEST:
            return telling.state
    return ""


def _payload(incident: Incident, telling: Notice, *, alert: bool) -> _Payload:
    opened = incident.opened
    title = fitted(opened.title, TITLE)
    told = f"{title}: {telling.message}" if title else telling.message
    summary = clean(told, MAX_SUMMARY).strip() or incident.id
    source = clean(", ".join(opened.targets), MAX_SOURCE).strip() or "latdoctor"
    details = _details(telling.details, incident)
    if not alert:
        return _Payload(summary, source, timestamp=telling.at, custom_details=details)
    return _Payload(
        summary=summary,
        source=source,
        severity=telling.severity or DEFAULT_SEVERITY,
        timestamp=telling.at,
        group=clean(opened.sop, MAX_SOURCE),
        kind=telling.what,
        custom_details=details,
    )


def _details(told: Details, incident: Incident) -> dict[str, str]:
    """By name; what has a name of another is numbered."""
    found: dict[str, str] = {"Incident": incident.id}
    for name, text in told[:MAX_DETAILS]:
        same = sum(key == name or key.startswith(f"{name} ") for key in found)
        found[f"{name} {same + 1}" if same else name] = clean(text, MAX_SUMMARY)
    return found
