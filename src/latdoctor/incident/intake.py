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

from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.incident import alerts, events
from latdoctor.incident.alerted_incidents import AlertedIncident, AlertedIncidents
from latdoctor.incident.joining import joined
from latdoctor.incident.opening import alone, opened
from latdoctor.incident.sop import Sop
from latdoctor.incident.state import Incident
from latdoctor.incident.stopwatch import is_time
from latdoctor.journal.entry import unix_seconds
from latdoctor.journal.store import Journal

LOCK = "the intake of alerts"
CLOCK = "alertmanager"  # whose clock told when an alert began
_NAMES = 3  # alerts that a title names

Bodies = list[tuple[str, str, Struct]]


@dataclass(frozen=True, slots=True)
class About:
    """What an incident that an alert opens is about. `targets`: what is looked at; none: whatever is in its time.

    `hosts` as in `events.Opened`. `anew`: a firing whose incident was closed opens another one, as a human asks for it;
    what an Alertmanager repeats does not.
    """

    targets: tuple[str, ...] = ()
    sop: Sop | None = None
    by: str = ""
    close_on_resolve: bool = False
    hosts: tuple[str, ...] = ()
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
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
class _Waiting:
    alerted: events.Alerted
    outcome: Taken | LatdoctorError | None = None


@dataclass(slots=True)
class Intake:
    """Of one journal. Any number of threads and processes may take in at once."""

    journal: Journal
    place: Path  # the state folder
    about: About = field(default_factory=About)
    _known: AlertedIncidents = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: deque[_Waiting] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._known = AlertedIncidents(self.journal)

    def take(self, alerted: events.Alerted) -> Taken:
        """Journals what is new. Raises LatdoctorError: then nothing of it is known to be journaled."""
        waiting = _Waiting(alerted)
        self._pending.append(waiting)
        with self._lock:
            if waiting.outcome is None:  # else who held the lock took it along
                self._take_all()
        if isinstance(waiting.outcome, Taken):
            return waiting.outcome
        raise waiting.outcome or OperationError("the alert was not taken in", next_step="send it again")

    def watched(self) -> AlertedIncident | None:
        """The open incident of what is looked at, if there is one and only one. Raises JournalError."""
        with self._lock:
            self._refresh()
            return self._known.found.get(joined(self._known.standing(), self.about.targets))

    def _take_all(self) -> None:
        batch = [self._pending.popleft() for _ in range(len(self._pending))]
        bodies: Bodies = []
        try:
            with alone(self.place, LOCK):
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

    def _planned(self, alerted: events.Alerted, bodies: Bodies) -> Taken:
        """What is to be journaled goes to `bodies`; only an incident is opened at once."""
        found, begins, now = self._known.of_group(alerted.key), False, unix_seconds(self.journal.clock().at)
        if found is None or found.closed:
            firing = [alert for alert in alerted.alerts if alert.status == events.FIRING]
            known = None if self.about.anew else found
            begun = [alert for alert in firing if known is None or not known.goes_on(alerted.key, alert, now)]
            if begun:
                found, begins = self._opened(alerted.key, begun)
        if found is None:  # what is resolved already opens nothing
            return Taken("", False, 0, len(alerted.alerts), True)
        new = _news(found, alerted, now, only_known=found.closed)
        if new:
            news = structs.replace(alerted, alerts=new)
            self._known.learn(found.id, news, now)
            bodies.extend((found.id, events.ALERTED, piece) for piece in alerts.entries(news))
        closes = bool(new) and found.resolved and not found.closed and self.about.close_on_resolve
        if closes:
            bodies.append((found.id, events.CLOSED, _closing(found, self.about.by)))
            found.closed = True
        return Taken(
            incident=found.id,
            opened=begins,
            new=len(new),
            repeated=len(alerted.alerts) - len(new),
            resolved=found.resolved,
            closed=closes,
        )

    def _opened(self, key: str, begun: Sequence[events.Alert]) -> tuple[AlertedIncident, bool]:
        """The incident of these alerts, and whether it is new: another one may be open for the same target."""
        wanted = opening_of(key, begun, self.about)
        opening = opened(self.journal, self.place, wanted, self.about.sop, self._standing)
        self._refresh()
        return self._known.found[opening.id], opening.new

    def _standing(self) -> Sequence[Incident]:
        self._refresh()
        return self._known.standing()


def opening_of(key: str, firing: Sequence[events.Alert], about: About) -> events.Opened:
    """How an incident is opened by alerts of the group `key` that fire."""
    told = [alert.starts_at for alert in firing if alert.starts_at is not None]
    starts = [one for one in told if is_time(one)] or told  # one that cannot be hides none that can
    return events.Opened(
        title=title_of(firing),
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


def title_of(firing: Sequence[events.Alert]) -> str:
    """What one alert says of itself, or the names of several."""
    names = list(dict.fromkeys(alert.name or alert.fingerprint for alert in firing))
    summaries = {alert.annotations.get("summary", "") for alert in firing}
    if len(names) == 1 and len(summaries) == 1 and (summary := summaries.pop()):
        return f"{names[0]}: {summary}"
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _news(found: AlertedIncident, alerted: events.Alerted, now: float, *, only_known: bool) -> tuple[events.Alert, ...]:
    """The alerts that stand otherwise than they did, each as it stands last; of a closed incident only its own."""
    last = {alert.fingerprint: alert for alert in alerted.alerts}
    return tuple(
        alert
        for name, alert in last.items()
        if found.news(alerted.key, alert, now) and (not only_known or (alerted.key, name) in found.alerts)
    )


def _closing(found: AlertedIncident, by: str) -> events.Closed:
    false = found.confirmed == events.FALSE_ALARM
    outcome = events.FALSE_ALARM if false else events.RESOLVED
    return events.Closed(outcome, "every alert is resolved", by)
