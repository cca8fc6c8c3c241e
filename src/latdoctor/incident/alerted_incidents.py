"""Which alerts belong to which incident, and how they stood last; kept up by reading what is new in the journal."""

from __future__ import annotations

from dataclasses import dataclass, field

from latdoctor.incident import events
from latdoctor.incident.state import Incident, body
from latdoctor.journal.entry import Entry, unix_seconds
from latdoctor.journal.store import Journal, JournalError

AlertKey = tuple[str, str]  # the key of its group, its fingerprint
# Seconds for which a firing that has ended is not heard again: so far one Alertmanager of several lags behind another
# (gossip takes seconds, and each waits 15 s for those before it). Later it counts, though it began as before: an alert
# that was lost on the way from Prometheus times out, and comes back with its old beginning.
LAG = 60.0


@dataclass(slots=True)
class AlertedIncident:
    """One incident as far as its alerts go. `confirmed`: what a look said of it last; empty before the first."""

    id: str
    opened: events.Opened
    closed: bool = False
    confirmed: str = ""
    alerts: dict[AlertKey, events.Alert] = field(default_factory=dict)  # each as it stood last
    heard: dict[AlertKey, float] = field(default_factory=dict)  # unix seconds since when each stands so
    truncated: dict[str, int] = field(default_factory=dict)  # by group, alerts that its last entry left out

    def news(self, key: str, alert: events.Alert, now: float) -> bool:
        """Whether it stands otherwise than it did. `now` is in unix seconds."""
        known = self.alerts.get((key, alert.fingerprint))
        return known is None or (known.status != alert.status and not self._is_late(key, alert, known, now))

    def goes_on(self, key: str, alert: events.Alert, now: float) -> bool:
        """Whether this is the very firing that the incident knows: it goes on, or is told again after its end."""
        known = self.alerts.get((key, alert.fingerprint))
        if known is None or alert.status != events.FIRING:
            return False
        if known.status == events.RESOLVED:
            return self._is_late(key, alert, known, now)
        return None in (known.starts_at, alert.starts_at) or known.starts_at == alert.starts_at

    def learn(self, told: events.Alerted, at: float) -> None:
        """What came at `at` (unix seconds)."""
        self.alerts.update({(told.key, alert.fingerprint): alert for alert in told.alerts})
        self.heard.update({(told.key, alert.fingerprint): at for alert in told.alerts})
        self.truncated[told.key] = told.truncated

    @property
    def resolved(self) -> bool:
        """Whether every alert is known to be resolved."""
        standing = [alert.status for alert in self.alerts.values()]
        return bool(standing) and events.FIRING not in standing and not any(self.truncated.values())

    def _is_late(self, key: str, alert: events.Alert, known: events.Alert, now: float) -> bool:
        """Whether it tells what was so before `known`, and only came after it: of several Alertmanagers one may lag.

        The end of a firing before the one that goes on; or, for `LAG`, a firing whose end is known: one that begins
        anew has a later `startsAt`. Where a time is not told nothing is proven, and it counts.
        """
        if known.starts_at is None:
            return False
        if alert.status == events.RESOLVED:
            return alert.ends_at is not None and alert.ends_at < known.starts_at
        lags = now - self.heard.get((key, alert.fingerprint), now) <= LAG
        return lags and alert.starts_at is not None and alert.starts_at <= known.starts_at


class AlertedIncidents:
    """Every incident that was opened. Not for several threads at once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.forget()

    def forget(self) -> None:
        """Whatever was learnt and is not known to be in the journal: the next `refresh` reads all of it again."""
        self._last: Entry | None = None
        self.found: dict[str, AlertedIncident] = {}
        self._groups: dict[str, str] = {}

    def refresh(self) -> None:
        """Learns what was journaled since. Raises JournalError, msgspec.ValidationError."""
        try:
            for entry in self._journal.after(self._last):
                self._add(entry)
                self._last = entry
        except JournalError:
            self.forget()
            raise

    def of_group(self, key: str) -> AlertedIncident | None:
        """The last incident that alerts of this group belonged to."""
        return self.found.get(self._groups.get(key, ""))

    def standing(self) -> tuple[Incident, ...]:
        """The open ones as incidents without their entries, for who asks which is meant."""
        return tuple(Incident(one.id, one.opened) for one in self.found.values() if not one.closed)

    def learn(self, incident: str, told: events.Alerted, at: float) -> None:
        """What is about to be journaled, so that it is not taken for new a second time."""
        self._groups[told.key] = incident
        self.found[incident].learn(told, at)

    def _add(self, entry: Entry) -> None:
        if entry.kind == events.OPENED:
            opened = body(entry, events.Opened)
            self.found.setdefault(entry.run, AlertedIncident(entry.run, opened))
            if opened.key:
                self._groups[opened.key] = entry.run
            return
        found = self.found.get(entry.run)
        if found is None:
            return
        match entry.kind:
            case events.ALERTED:
                told = body(entry, events.Alerted)
                self._groups[told.key] = entry.run
                found.learn(told, unix_seconds(entry.at))
            case events.CONFIRMED:
                found.confirmed = body(entry, events.Confirmed).status
            case events.CLOSED:
                found.closed = True
