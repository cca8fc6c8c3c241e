"""Incidents, as the journal's entries add up to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from latdoctor.incident import events
from latdoctor.incident.events import AlertStatus
from latdoctor.journal.entry import JournalEntry

Body = TypeVar("Body")


@dataclass(slots=True)
class Incident:
    """One incident. `entries` are its own and those of its runs, in their order."""

    id: str
    opened: events.IncidentOpened
    entries: list[JournalEntry] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    alerts: dict[str, events.Alert] = field(default_factory=dict)  # by fingerprint, latest state
    closed: events.IncidentClosed | None = None

    @property
    def open(self) -> bool:
        return self.closed is None

    @property
    def firing(self) -> bool:
        return bool(self.still_firing)

    @property
    def still_firing(self) -> tuple[str, ...]:
        """Distinct names of its alerts whose last known state is firing."""
        firing = (alert for alert in self.alerts.values() if alert.status == AlertStatus.FIRING)
        return tuple(dict.fromkeys(alert.name or alert.fingerprint for alert in firing))

    @property
    def closed_at(self) -> str:
        """RFC 3339; empty while it is open."""
        return next((entry.at for entry in self.entries if entry.kind == events.CLOSED), "")

    def of(self, kind: str) -> tuple[JournalEntry, ...]:
        """Its entries of one kind."""
        return tuple(entry for entry in self.entries if entry.kind == kind)


def incidents_in(entries: Iterable[JournalEntry]) -> tuple[Incident, ...]:
    """All incidents, oldest first.

    Entries of a run from before it joined (its refusal, its opening) belong to the incident too. Raises
    msgspec.ValidationError for an entry in the format of another version.
    """
    listed = tuple(entries)
    owner = {
        decode_body(entry, events.RunJoined).joined: entry.run for entry in listed if entry.kind == events.RUN_JOINED
    }
    found: dict[str, Incident] = {}
    for entry in listed:
        if entry.kind == events.OPENED:
            found[entry.run] = Incident(entry.run, decode_body(entry, events.IncidentOpened))
        incident = found.get(owner.get(entry.run, entry.run))
        if incident is not None:
            _add(incident, entry)
    return tuple(found.values())


def _add(incident: Incident, entry: JournalEntry) -> None:
    incident.entries.append(entry)
    match entry.kind:
        case events.RUN_JOINED:
            incident.runs.append(decode_body(entry, events.RunJoined).joined)
        case events.ALERTED:
            incident.alerts.update(
                {alert.fingerprint: alert for alert in decode_body(entry, events.AlertsReceived).alerts}
            )
        case events.CLOSED:
            incident.closed = decode_body(entry, events.IncidentClosed)


def decode_body(entry: JournalEntry, kind: type[Body]) -> Body:
    """Raises msgspec.ValidationError."""
    return msgspec.json.decode(entry.body, type=kind)
