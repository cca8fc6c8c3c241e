"""Takes notifications of alerts in: what is new of them is journaled, whatever else they repeat is not.

A notification is answered once its news are on the disk. Killed before that the sender tries again; killed after it the
repetition finds what was journaled and adds nothing. Notifications that arrive at once share a transaction.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from latdoctor.diagnosis.result import Check, Diagnosis
from latdoctor.diagnosis.rule_schema import SEVERITIES
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.incident import alertmanager, events
from latdoctor.incident.elapsed import is_time
from latdoctor.incident.events import FALSE_ALARM, REAL, UNKNOWN, AlertConfirmed
from latdoctor.incident.lookup import open_incident_for
from latdoctor.incident.open import exclusive, open_incident
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry, JournalError, unix_seconds
from latdoctor.journal.store import Journal
from latdoctor.sanitize import clean

HARMFUL = "warning"  # a verdict from this level on confirms; one below it says neither
_SHOWN = 3
_LONGEST = 500  # characters


def confirmation_of(diagnosis: Diagnosis) -> AlertConfirmed:
    """A broken SLO makes the verdict critical, so the verdict alone decides. Healthy is said only where every essential
    was seen; whatever else could not be told is unknown.
    """
    verdict = diagnosis.verdict
    level = verdict.level
    if level in SEVERITIES and SEVERITIES.index(level) >= SEVERITIES.index(HARMFUL):
        pain = [check.message for check in diagnosis.checks if _hurts(check)]
        return _said(REAL, (verdict.message, *pain[:_SHOWN]), diagnosis)
    if level == "healthy":
        return _said(FALSE_ALARM, (verdict.message,), diagnosis)
    return _said(UNKNOWN, (verdict.message, *verdict.reasons[:_SHOWN]), diagnosis)


def not_observed(why: str) -> AlertConfirmed:
    """Nothing could be looked at, for which there is a reason."""
    return AlertConfirmed(UNKNOWN, clean(f"nothing could be seen: {why}", _LONGEST))


def _hurts(check: Check) -> bool:
    return check.status == "fired" and check.kind != "specific" and bool(check.severity)


def _said(status: str, parts: tuple[str, ...], diagnosis: Diagnosis) -> AlertConfirmed:
    return AlertConfirmed(status, clean("; ".join(parts), _LONGEST), diagnosis.run_id)


AlertKey = tuple[str, str]  # the key of its group, its fingerprint
# Seconds for which a firing that has ended is not heard again: so far one Alertmanager of several lags behind another
# (gossip takes seconds, and each waits 15 s for those before it). Later it counts, though it began as before: an alert
# that was lost on the way from Prometheus times out, and comes back with its old beginning.
LAG = 60.0


@dataclass(slots=True)
class AlertedIncident:
    """One incident as far as its alerts go. `confirmation_of`: what a look said of it last; empty before the first."""

    id: str
    opened: events.IncidentOpened
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

    def learn(self, told: events.AlertsReceived, at: float) -> None:
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
        self._last: JournalEntry | None = None
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

    def learn(self, incident: str, told: events.AlertsReceived, at: float) -> None:
        """What is about to be journaled, so that it is not taken for new a second time."""
        self._groups[told.key] = incident
        self.found[incident].learn(told, at)

    def _add(self, entry: JournalEntry) -> None:
        if entry.kind == events.OPENED:
            open_incident = decode_body(entry, events.IncidentOpened)
            self.found.setdefault(entry.run, AlertedIncident(entry.run, open_incident))
            if open_incident.key:
                self._groups[open_incident.key] = entry.run
            return
        found = self.found.get(entry.run)
        if found is None:
            return
        match entry.kind:
            case events.ALERTED:
                told = decode_body(entry, events.AlertsReceived)
                self._groups[told.key] = entry.run
                found.learn(told, unix_seconds(entry.at))
            case events.CONFIRMED:
                found.confirmed = decode_body(entry, events.AlertConfirmed).status
            case events.CLOSED:
                found.closed = True


LOCK = "the intake of alerts"
CLOCK = "alertmanager"  # whose clock told when an alert began
_NAMES = 3  # alerts that a title names

Bodies = list[tuple[str, str, Struct]]


@dataclass(frozen=True, slots=True)
class IncidentTemplate:
    """What an incident that an alert opens is about. `targets`: what is looked at; none: whatever is in its time.

    `hosts` as in `events.IncidentOpened`. `anew`: a firing whose incident was closed opens another one (`sop start`);
    what an Alertmanager repeats does not.
    """

    targets: tuple[str, ...] = ()
    sop: Sop | None = None
    by: str = ""
    close_on_resolve: bool = False
    hosts: tuple[str, ...] = ()
    anew: bool = False


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """What became of a notification. `incident` is empty where it neither opened one nor belonged to one.

    `new`: alerts that were not known so; `repeated`: the others. `resolved`: no alert of the incident fires any more;
    `closed`: so it was closed, which is done only where that was asked for.
    """

    incident: str
    opened: bool
    new: int
    repeated: int
    resolved: bool
    closed: bool = False


@dataclass(slots=True)
class _PendingNotification:
    alerted: events.AlertsReceived
    outcome: IntakeResult | LatdoctorError | None = None


@dataclass(slots=True)
class Intake:
    """Of one journal. Any number of threads and processes may take in at once."""

    journal: Journal
    place: Path  # the state folder
    about: IncidentTemplate = field(default_factory=IncidentTemplate)
    _known: AlertedIncidents = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: deque[_PendingNotification] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._known = AlertedIncidents(self.journal)

    def take(self, alerted: events.AlertsReceived) -> IntakeResult:
        """Journals what is new. Raises LatdoctorError: then nothing of it is known to be journaled."""
        waiting = _PendingNotification(alerted)
        self._pending.append(waiting)
        with self._lock:
            if waiting.outcome is None:  # else who held the lock took it along
                self._take_all()
        if isinstance(waiting.outcome, IntakeResult):
            return waiting.outcome
        raise waiting.outcome or OperationError("the alert was not taken in", next_step="send it again")

    def watched(self) -> AlertedIncident | None:
        """The open incident of what is looked at, if there is one and only one. Raises JournalError."""
        with self._lock:
            self._refresh()
            return self._known.found.get(open_incident_for(self._known.standing(), self.about.targets))

    def _take_all(self) -> None:
        batch = [self._pending.popleft() for _ in range(len(self._pending))]
        bodies: Bodies = []
        try:
            with exclusive(self.place, LOCK):
                self._refresh()
                taken = [self._planned(one.alerted, bodies) for one in batch]
                if bodies:
                    self.journal.append_all(bodies)
        except LatdoctorError as error:
            self._known.forget()
            for one in batch:
                one.outcome = error
        except BaseException:
            self._known.forget()
            raise
        else:
            for one, outcome in zip(batch, taken, strict=True):
                one.outcome = outcome

    def _refresh(self) -> None:
        try:
            self._known.refresh()
        except msgspec.ValidationError as error:
            raise OperationError(
                f"the journal tells of incidents in another way: {error}",
                where=str(self.journal.path),
                next_step="update latdoctor",
            ) from error

    def _planned(self, alerted: events.AlertsReceived, bodies: Bodies) -> IntakeResult:
        """What is to be journaled goes to `bodies`; only an incident is opened at once."""
        found, begins, now = self._known.of_group(alerted.key), False, unix_seconds(self.journal.clock().at)
        if found is None or found.closed:
            firing = [alert for alert in alerted.alerts if alert.status == events.FIRING]
            known = None if self.about.anew else found
            begun = [alert for alert in firing if known is None or not known.goes_on(alerted.key, alert, now)]
            if begun:
                found, begins = self._opened(alerted.key, begun)
        if found is None:  # what is resolved already opens nothing
            return IntakeResult("", False, 0, len(alerted.alerts), True)
        new = _news(found, alerted, now, only_known=found.closed)
        if new:
            news = structs.replace(alerted, alerts=new)
            self._known.learn(found.id, news, now)
            bodies.extend((found.id, events.ALERTED, piece) for piece in alertmanager.split_for_journal(news))
        closes = bool(new) and found.resolved and not found.closed and self.about.close_on_resolve
        if closes:
            bodies.append((found.id, events.CLOSED, _closing(found, self.about.by)))
            found.closed = True
        return IntakeResult(
            incident=found.id,
            opened=begins,
            new=len(new),
            repeated=len(alerted.alerts) - len(new),
            resolved=found.resolved,
            closed=closes,
        )

    def _opened(self, key: str, begun: Sequence[events.Alert]) -> tuple[AlertedIncident, bool]:
        """The incident of these alerts, and whether it is new: another one may be open for the same target."""
        wanted = incident_opened(key, begun, self.about)
        opening = open_incident(self.journal, self.place, wanted, self.about.sop, self._standing)
        self._refresh()
        return self._known.found[opening.id], opening.new

    def _standing(self) -> Sequence[Incident]:
        self._refresh()
        return self._known.standing()


def incident_opened(key: str, firing: Sequence[events.Alert], about: IncidentTemplate) -> events.IncidentOpened:
    """How an incident is opened by alerts of the group `key` that fire."""
    told = [alert.starts_at for alert in firing if alert.starts_at is not None]
    starts = [one for one in told if is_time(one)] or told  # one that cannot be hides none that can
    return events.IncidentOpened(
        title=title_of_alerts(firing),
        targets=about.targets,
        source=events.BY_ALERT,
        sop=about.sop.id if about.sop else "",
        sop_digest=about.sop.digest if about.sop else "",
        began=min(starts, default=None),
        clock=CLOCK if starts else "",
        by=about.by,
        key=key,
        hosts=about.hosts,
    )


def title_of_alerts(firing: Sequence[events.Alert]) -> str:
    """What one alert says of itself, or the names of several."""
    names = list(dict.fromkeys(alert.name or alert.fingerprint for alert in firing))
    summaries = {alert.annotations.get("summary", "") for alert in firing}
    if len(names) == 1 and len(summaries) == 1 and (summary := summaries.pop()):
        return f"{names[0]}: {summary}"
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _news(
    found: AlertedIncident, alerted: events.AlertsReceived, now: float, *, only_known: bool
) -> tuple[events.Alert, ...]:
    """The alerts that stand otherwise than they did, each as it stands last; of a closed incident only its own."""
    last = {alert.fingerprint: alert for alert in alerted.alerts}
    return tuple(
        alert
        for name, alert in last.items()
        if found.news(alerted.key, alert, now) and (not only_known or (alerted.key, name) in found.alerts)
    )


def _closing(found: AlertedIncident, by: str) -> events.IncidentClosed:
    false = found.confirmed == events.FALSE_ALARM
    outcome = events.FALSE_ALARM if false else events.RESOLVED
    return events.IncidentClosed(outcome, "every alert is resolved", by)
