"""Intake of alert notifications: changes are journaled, repetitions are not.

A notification is answered after its changes are on disk. If the process is killed before that, the sender retries; if
after, the retry finds the journaled state and adds nothing. Concurrent notifications share a transaction.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from latdoctor.diagnosis.codes import CheckStatus, FindingKind
from latdoctor.diagnosis.result import Check, Diagnosis
from latdoctor.diagnosis.rule_schema import SEVERITIES
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.incident import alertmanager, events
from latdoctor.incident.elapsed import is_time
from latdoctor.incident.events import AlertConfirmed, AlertStatus, Confirmation, IncidentOutcome, OpenedBy
from latdoctor.incident.lookup import open_incidents_for
from latdoctor.incident.open import exclusive, open_incident
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry, JournalError, unix_seconds
from latdoctor.journal.store import Journal
from latdoctor.sanitize import clean

HARMFUL = "warning"  # a verdict of this level or higher confirms; a lower one decides nothing
_SHOWN = 3
_LONGEST = 500  # characters


def confirmation_of(diagnosis: Diagnosis) -> AlertConfirmed:
    """Confirmation by the verdict alone: a broken SLO makes it critical, and healthy requires every essential signal.
    Anything between is unknown.
    """
    verdict = diagnosis.verdict
    level = verdict.level
    if level in SEVERITIES and SEVERITIES.index(level) >= SEVERITIES.index(HARMFUL):
        pain = [check.message for check in diagnosis.checks if _hurts(check)]
        return _confirmation(Confirmation.CONFIRMED, (verdict.message, *pain[:_SHOWN]), diagnosis)
    if level == "healthy":
        return _confirmation(Confirmation.FALSE_ALARM, (verdict.message,), diagnosis)
    return _confirmation(Confirmation.UNKNOWN, (verdict.message, *verdict.reasons[:_SHOWN]), diagnosis)


def not_observed(why: str) -> AlertConfirmed:
    """Unknown, because no source could be read."""
    return AlertConfirmed(Confirmation.UNKNOWN, clean(f"no source could be read: {why}", _LONGEST))


def _hurts(check: Check) -> bool:
    return check.status == CheckStatus.FIRED and check.kind != FindingKind.SPECIFIC and bool(check.severity)


def _confirmation(status: Confirmation, parts: tuple[str, ...], diagnosis: Diagnosis) -> AlertConfirmed:
    return AlertConfirmed(status, clean("; ".join(parts), _LONGEST), diagnosis.run_id)


AlertKey = tuple[str, str]  # the key of its group, its fingerprint
# Seconds for which a firing that has ended is ignored if repeated: one Alertmanager of several lags behind another
# (gossip takes seconds, and each waits 15 s for those before it). Later it counts, though it began as before: an alert
# that was lost on the way from Prometheus times out, and fires again with its old start time.
LAG = 60.0


@dataclass(slots=True)
class AlertedIncident:
    """Alert state of one incident. `confirmed`: status of the last confirmation; empty before the first.

    `unexamined`: an alert began to fire after the last diagnosis, which may be of another trouble.
    """

    id: str
    opened: events.IncidentOpened
    closed: bool = False
    confirmed: str = ""
    unexamined: bool = True
    alerts: dict[AlertKey, events.Alert] = field(default_factory=dict)  # latest state
    changed_at: dict[AlertKey, float] = field(default_factory=dict)  # unix seconds of the last change
    truncated: dict[str, int] = field(default_factory=dict)  # by group, alerts that its last entry left out

    def is_change(self, key: str, alert: events.Alert, now: float) -> bool:
        """Whether `alert` differs from the known state. `now` is in unix seconds."""
        known = self.alerts.get((key, alert.fingerprint))
        return known is None or (known.status != alert.status and not self._is_outdated(key, alert, known, now))

    def is_known_firing(self, key: str, alert: events.Alert, now: float) -> bool:
        """Whether this firing is already known: still firing, or repeated shortly after its end."""
        known = self.alerts.get((key, alert.fingerprint))
        if known is None or alert.status != AlertStatus.FIRING:
            return False
        if known.status == AlertStatus.RESOLVED:
            return self._is_outdated(key, alert, known, now)
        return None in (known.starts_at, alert.starts_at) or known.starts_at == alert.starts_at

    def record(self, received: events.AlertsReceived, at: float) -> None:
        """Record the notification received at `at` (unix seconds)."""
        known = {(key, alert.name) for (key, _), alert in self.alerts.items()}
        firing = (alert for alert in received.alerts if alert.status == AlertStatus.FIRING)
        self.unexamined = self.unexamined or any((received.key, alert.name) not in known for alert in firing)
        self.alerts.update({(received.key, alert.fingerprint): alert for alert in received.alerts})
        self.changed_at.update({(received.key, alert.fingerprint): at for alert in received.alerts})
        self.truncated[received.key] = received.truncated

    @property
    def resolved(self) -> bool:
        """Whether every alert is known to be resolved."""
        statuses = [alert.status for alert in self.alerts.values()]
        return bool(statuses) and AlertStatus.FIRING not in statuses and not any(self.truncated.values())

    def _is_outdated(self, key: str, alert: events.Alert, known: events.Alert, now: float) -> bool:
        """Whether `alert` is older than `known` but arrived later, as from a lagging Alertmanager.

        True for the end of an earlier firing and, within `LAG`, for a firing whose end is known (a new firing has a
        later `startsAt`). Without times nothing is proven, and the alert counts.
        """
        if known.starts_at is None:
            return False
        if alert.status == AlertStatus.RESOLVED:
            return alert.ends_at is not None and alert.ends_at < known.starts_at
        lags = now - self.changed_at.get((key, alert.fingerprint), now) <= LAG
        return lags and alert.starts_at is not None and alert.starts_at <= known.starts_at


class AlertedIncidents:
    """Every incident that was opened. Not for several threads at once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.reset()

    def reset(self) -> None:
        """Discard the state: the next `refresh` reads the whole journal."""
        self._last: JournalEntry | None = None
        self.by_id: dict[str, AlertedIncident] = {}
        self._groups: dict[str, str] = {}

    def refresh(self) -> None:
        """Read new journal entries. Raises JournalError, msgspec.ValidationError."""
        try:
            for entry in self._journal.after(self._last):
                self._add(entry)
                self._last = entry
        except JournalError:
            self.reset()
            raise

    def of_group(self, key: str) -> AlertedIncident | None:
        """The last incident that alerts of this group belonged to."""
        return self.by_id.get(self._groups.get(key, ""))

    def open_incidents(self) -> tuple[Incident, ...]:
        """Open incidents without their entries, for matching."""
        return tuple(Incident(one.id, one.opened) for one in self.by_id.values() if not one.closed)

    def record(self, incident: str, received: events.AlertsReceived, at: float) -> None:
        """Record what is about to be journaled, so that it does not count as new again."""
        self._groups[received.key] = incident
        self.by_id[incident].record(received, at)

    def _add(self, entry: JournalEntry) -> None:
        if entry.kind == events.OPENED:
            open_incident = decode_body(entry, events.IncidentOpened)
            self.by_id.setdefault(entry.run, AlertedIncident(entry.run, open_incident))
            if open_incident.key:
                self._groups[open_incident.key] = entry.run
            return
        found = self.by_id.get(entry.run)
        if found is None:
            return
        match entry.kind:
            case events.ALERTED:
                received = decode_body(entry, events.AlertsReceived)
                self._groups[received.key] = entry.run
                found.record(received, unix_seconds(entry.at))
            case events.CONFIRMED:
                found.confirmed = decode_body(entry, events.AlertConfirmed).status
            case events.DIAGNOSED:
                found.unexamined = False
            case events.CLOSED:
                found.closed = True


LOCK = "the intake of alerts"
CLOCK = "alertmanager"  # clock of an alert's start time
_NAMES = 3  # alerts that a title names

Bodies = list[tuple[str, str, Struct]]


@dataclass(frozen=True, slots=True)
class IncidentTemplate:
    """Properties of incidents that alerts open. `targets`: what to diagnose; empty: any target diagnosed while open.

    `hosts` as in `events.IncidentOpened`. `anew`: a firing whose incident was closed opens another one (`sop start`);
    a repetition by an Alertmanager does not.
    """

    targets: tuple[str, ...] = ()
    sop: Sop | None = None
    by: str = ""
    close_on_resolve: bool = False
    hosts: tuple[str, ...] = ()
    anew: bool = False


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """Result of a notification. `incident` is empty where it belongs to none and opened none.

    `new`: changed alerts; `repeated`: the others. `resolved`: no alert of the incident fires any more; `closed`: the
    incident was closed for that reason, as configured. `unexamined`: as of the incident.
    """

    incident: str
    opened: bool
    new: int
    repeated: int
    resolved: bool
    closed: bool = False
    unexamined: bool = False


@dataclass(slots=True)
class _PendingNotification:
    alerted: events.AlertsReceived
    outcome: IntakeResult | LatdoctorError | None = None


@dataclass(slots=True)
class Intake:
    """Intake into one journal. Safe for any number of threads and processes."""

    journal: Journal
    place: Path  # the state folder
    about: IncidentTemplate = field(default_factory=IncidentTemplate)
    _incidents: AlertedIncidents = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: deque[_PendingNotification] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._incidents = AlertedIncidents(self.journal)

    def take(self, alerted: events.AlertsReceived) -> IntakeResult:
        """Journal the changes. Raises LatdoctorError: then none of them is known to be journaled."""
        waiting = _PendingNotification(alerted)
        self._pending.append(waiting)
        with self._lock:
            if waiting.outcome is None:  # else the thread that held the lock has processed it
                self._take_all()
        if isinstance(waiting.outcome, IntakeResult):
            return waiting.outcome
        raise waiting.outcome or OperationError("the alert was not recorded", next_step="send it again")

    def monitored_incidents(self) -> tuple[AlertedIncident, ...]:
        """The open incidents of the monitored target, in the order of their opening. Raises JournalError."""
        with self._lock:
            self._refresh()
            fitting = open_incidents_for(self._incidents.open_incidents(), self.about.targets)
            return tuple(self._incidents.by_id[one.id] for one in fitting)

    def _take_all(self) -> None:
        batch = [self._pending.popleft() for _ in range(len(self._pending))]
        bodies: Bodies = []
        try:
            with exclusive(self.place, LOCK):
                self._refresh()
                taken = [self._plan(one.alerted, bodies) for one in batch]
                if bodies:
                    self.journal.append_all(bodies)
        except LatdoctorError as error:
            self._incidents.reset()
            for one in batch:
                one.outcome = error
        except BaseException:
            self._incidents.reset()
            raise
        else:
            for one, outcome in zip(batch, taken, strict=True):
                one.outcome = outcome

    def _refresh(self) -> None:
        try:
            self._incidents.refresh()
        except msgspec.ValidationError as error:
            raise OperationError(
                f"the journal has incident entries of another version: {error}",
                where=str(self.journal.path),
                next_step="update latdoctor",
            ) from error

    def _plan(self, alerted: events.AlertsReceived, bodies: Bodies) -> IntakeResult:
        """Plan the journal entries into `bodies`; only an incident is opened immediately."""
        found, begins, now = self._incidents.of_group(alerted.key), False, unix_seconds(self.journal.clock().at)
        if found is None or found.closed:
            firing = [alert for alert in alerted.alerts if alert.status == AlertStatus.FIRING]
            known = None if self.about.anew else found
            started = [alert for alert in firing if known is None or not known.is_known_firing(alerted.key, alert, now)]
            if started:
                found, begins = self._opened(alerted.key, started)
        if found is None:  # resolved alerts open nothing
            return IntakeResult("", False, 0, len(alerted.alerts), True)
        new = _changed_alerts(found, alerted, now, only_known=found.closed)
        if new:
            news = structs.replace(alerted, alerts=new)
            self._incidents.record(found.id, news, now)
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
            unexamined=bool(new) and found.unexamined and not found.closed,
        )

    def _opened(self, key: str, started: Sequence[events.Alert]) -> tuple[AlertedIncident, bool]:
        """The incident of these alerts, and whether it is new: another one may be open for the same target."""
        event = incident_opened(key, started, self.about)
        opening = open_incident(self.journal, self.place, event, self.about.sop, self._open_incidents)
        self._refresh()
        return self._incidents.by_id[opening.id], opening.new

    def _open_incidents(self) -> Sequence[Incident]:
        self._refresh()
        return self._incidents.open_incidents()


def incident_opened(key: str, firing: Sequence[events.Alert], about: IncidentTemplate) -> events.IncidentOpened:
    """How an incident is opened by alerts of the group `key` that fire."""
    received = [alert.starts_at for alert in firing if alert.starts_at is not None]
    starts = [one for one in received if is_time(one)] or received  # one that cannot be hides none that can
    return events.IncidentOpened(
        title=title_of_alerts(firing),
        targets=about.targets,
        source=OpenedBy.ALERT,
        sop=about.sop.id if about.sop else "",
        sop_digest=about.sop.digest if about.sop else "",
        began=min(starts, default=None),
        clock=CLOCK if starts else "",
        by=about.by,
        key=key,
        hosts=about.hosts,
    )


def title_of_alerts(firing: Sequence[events.Alert]) -> str:
    """Summary of a single alert, or the names of several."""
    names = list(dict.fromkeys(alert.name or alert.fingerprint for alert in firing))
    summaries = {alert.annotations.get("summary", "") for alert in firing}
    if len(names) == 1 and len(summaries) == 1 and (summary := summaries.pop()):
        return f"{names[0]}: {summary}"
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _changed_alerts(
    found: AlertedIncident, alerted: events.AlertsReceived, now: float, *, only_known: bool
) -> tuple[events.Alert, ...]:
    """Alerts that differ from their known state, latest first; of a closed incident only its own."""
    last = {alert.fingerprint: alert for alert in alerted.alerts}
    return tuple(
        alert
        for name, alert in last.items()
        if found.is_change(alerted.key, alert, now) and (not only_known or (alerted.key, name) in found.alerts)
    )


def _closing(found: AlertedIncident, by: str) -> events.IncidentClosed:
    false = found.confirmed == Confirmation.FALSE_ALARM
    outcome = IncidentOutcome.FALSE_ALARM if false else IncidentOutcome.RESOLVED
    return events.IncidentClosed(outcome, "every alert is resolved", by)
