"""Evidence for the stages of an SOP in the journal. Unknown never meets a stage.

Void evidence does not count: a run that was rolled back mitigates nothing, and an alert that fires again is not
resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN, TruthStatus
from latdoctor.diagnosis.codes import Level
from latdoctor.evidence.model import Evidence, Origin, Reading, Window
from latdoctor.incident import events
from latdoctor.incident.elapsed import Elapsed, IncidentStart
from latdoctor.incident.events import AlertStatus, Confirmation
from latdoctor.incident.sop.model import RUN_CLOSED, RUN_OPENED, Sign
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry, unix_seconds
from latdoctor.remediation import run_history
from latdoctor.remediation.guards import MAX_EVIDENCE_AGE
from latdoctor.remediation.observation import Observation, evaluate_all
from latdoctor.remediation.run_result import Outcome
from latdoctor.sanitize import clean

_WHY = 160  # characters of why something is not known
LONGEST_GAP = 60.0  # seconds without a sample that interrupt a condition


@dataclass(frozen=True, slots=True)
class SignEvidence:
    """Result of a sign for one entry: holds, fails or unknown, with a message."""

    status: TruthStatus
    entry: JournalEntry
    message: str = ""


@dataclass(frozen=True, slots=True)
class SignContext:
    """The incident, how long after its start each entry was journaled, and the entry after which it has to be."""

    incident: Incident
    passed: Mapping[str, Elapsed]
    start: IncidentStart
    since: JournalEntry | None = None

    @property
    def entries(self) -> Iterator[JournalEntry]:
        least = self.since.seq if self.since else 0
        return (entry for entry in self.incident.entries if entry.seq > least)


def evidence_of(sign: Sign, scene: SignContext) -> tuple[SignEvidence, ...]:
    """Results for each entry that the sign concerns, in order, up to the first that holds."""
    found: list[SignEvidence] = []
    for one in _EVIDENCE.get(sign.event, _plain)(sign, scene):
        found.append(one)
        if one.status == HOLDS:
            break
    return tuple(found)


def _plain(sign: Sign, scene: SignContext) -> Iterator[SignEvidence]:
    for entry in scene.entries:
        if entry.kind == sign.event:
            values = _VALUES[sign.event](entry)
            status = _weakest(_compare(accepted, values[name]) for name, accepted in sign.qualifiers.items())
            message = ", ".join(f"{name} {' and '.join(values[name]) or 'none'}" for name in sign.qualifiers)
            why = f" ({_why_unknown(entry)})" if status == UNKNOWN and entry.kind == events.CONFIRMED else ""
            yield SignEvidence(status, entry, f"{message}{why}")


def _why_unknown(entry: JournalEntry) -> str:
    return clean(decode_body(entry, events.AlertConfirmed).message, _WHY)


def _compare(accepted: Sequence[str], values: Sequence[str]) -> TruthStatus:
    if set(accepted) & set(values):
        return HOLDS
    return UNKNOWN if set(values) & _NOT_KNOWN else FAILS


def _weakest(statuses: Iterator[TruthStatus]) -> TruthStatus:
    found = set(statuses)
    return FAILS if FAILS in found else UNKNOWN if UNKNOWN in found else HOLDS


# Values by which an entry reports an unknown result.
_NOT_KNOWN = frozenset({Confirmation.UNKNOWN, Level.INCONCLUSIVE, Outcome.INCOMPLETE.value})

Values = Mapping[str, tuple[str, ...]]


def _confirmed(entry: JournalEntry) -> Values:
    return {"status": (decode_body(entry, events.AlertConfirmed).status,)}


def _diagnosed(entry: JournalEntry) -> Values:
    found = decode_body(entry, events.DiagnosisRecord)
    tiers = dict.fromkeys(cause.tier for cause in found.causes if cause.named)
    return {"answer": (found.answer,), "level": (found.level,), "tier": tuple(tiers)}


def _closing(entry: JournalEntry) -> Values:
    return {"outcome": (decode_body(entry, run_history.RunClosed).outcome.value,)}


_VALUES: Mapping[str, Callable[[JournalEntry], Values]] = {
    events.CONFIRMED: _confirmed,
    events.DIAGNOSED: _diagnosed,
    events.PLANNED: lambda entry: {"risk": (decode_body(entry, events.PlanRecord).risk,)},
    RUN_OPENED: lambda entry: {"risk": (decode_body(entry, run_history.RunOpened).plan.risk,)},
    RUN_CLOSED: _closing,
    events.NOTIFIED: lambda entry: {"sent": ("true" if decode_body(entry, events.NotificationSent).sent else "false",)},
    events.CLOSED: lambda entry: {"outcome": (decode_body(entry, events.IncidentClosed).outcome,)},
}


def _diagnoses(sign: Sign, scene: SignContext) -> Iterator[SignEvidence]:
    """A diagnosis counts if its evidence is from the incident, and from after the stage that the sign follows."""
    for one in _plain(sign, scene):
        observed = decode_body(one.entry, events.DiagnosisRecord)
        if observed.seen_until is None:
            yield SignEvidence(UNKNOWN, one.entry, "the time range of the diagnosis is unknown")
        elif observed.seen_until < scene.start.at - MAX_EVIDENCE_AGE:
            yield SignEvidence(FAILS, one.entry, "the evidence of the diagnosis is from before the incident")
        elif scene.since and (observed.seen_from is None or observed.seen_from < unix_seconds(scene.since.at)):
            yield SignEvidence(UNKNOWN, one.entry, "the evidence of the diagnosis began before that")
        else:
            yield one


def _runs(sign: Sign, scene: SignContext) -> Iterator[SignEvidence]:
    """The last closing of each run counts, unless it is being rolled back."""
    last: dict[str, JournalEntry] = {}
    for entry in scene.incident.entries:
        if entry.kind in (RUN_CLOSED, "rollback.begun"):
            last[entry.run] = entry
    for one in _plain(sign, scene):
        history = last[one.entry.run]
        if history is one.entry:
            yield one
        elif one.status == HOLDS:
            yield SignEvidence(FAILS, one.entry, f"run {one.entry.run} was rolled back")


def _alerts(sign: Sign, scene: SignContext) -> Iterator[SignEvidence]:
    """State of the alerts after each notification; resolved only where none fires again later."""
    accepted = sign.qualifiers.get("status", (AlertStatus.FIRING,))
    alerts: dict[str, AlertStatus] = {}
    history: list[tuple[AlertStatus, JournalEntry, int]] = []
    for entry in scene.incident.entries:
        if entry.kind == events.ALERTED:
            notification = decode_body(entry, events.AlertsReceived)
            alerts.update({alert.fingerprint: alert.status for alert in notification.alerts})
            state = AlertStatus.FIRING if AlertStatus.FIRING in alerts.values() else AlertStatus.RESOLVED
            history.append((state, entry, notification.truncated))
    fires_last = max((place for place, (state, _, _) in enumerate(history) if state == AlertStatus.FIRING), default=-1)
    least = scene.since.seq if scene.since else 0
    for place, (state, entry, truncated) in enumerate(history):
        if entry.seq <= least:
            continue
        if state == AlertStatus.RESOLVED and place < fires_last:
            yield SignEvidence(FAILS, entry, "the alert fired again")
        elif state == AlertStatus.RESOLVED and truncated:
            yield SignEvidence(UNKNOWN, entry, f"{truncated} alerts were left out of the notification")
        else:
            yield SignEvidence(HOLDS if state in accepted else FAILS, entry, f"status {state}")


def _samples(sign: Sign, scene: SignContext) -> Iterator[SignEvidence]:
    """The condition in each sample; met after it held for `holds` consecutive seconds."""
    since: float | None = None  # start of the uninterrupted samples in which it held
    ended = after = 0.0
    if scene.since:
        after = scene.passed[scene.since.digest].seconds or 0.0
    for entry in scene.entries:
        if entry.kind != events.SAMPLED:
            continue
        sample, at = decode_body(entry, events.ServiceSampled), scene.passed[entry.digest]
        if at.seconds is None:
            since = None
            yield SignEvidence(UNKNOWN, entry, at.why)
            continue
        began = at.seconds - sample.seconds
        if scene.since and began < after:
            continue  # part of it is from before
        status, message = _sampled(sign, sample, entry, unix_seconds(entry.at))
        if status != HOLDS:
            since = None
        elif since is None or began - ended > LONGEST_GAP:
            since = began
        ended = at.seconds
        if status == HOLDS and since is not None and ended - since < sign.holds:
            status, message = FAILS, f"{message}, for {ended - since:.0f} s of {sign.holds:.0f} s so far"
        yield SignEvidence(status, entry, message)


def _sampled(sign: Sign, sample: events.ServiceSampled, entry: JournalEntry, at: float) -> tuple[TruthStatus, str]:
    """Whether the condition holds for every subject of the sample, and the observed values."""
    if sign.when is None:
        return UNKNOWN, "the sign has no condition"
    window = Window(at - sample.seconds, at)
    readings = tuple(
        Reading(
            signal, subject, value, Origin(entry.digest), window, bound=sample.bounds.get(subject, {}).get(signal, "")
        )
        for subject, values in sample.values.items()
        for signal, value in values.items()
    )
    slo = {} if sample.slo_p99 is None else {"slo.p99": sample.slo_p99}
    observed = evaluate_all(sign.when, Observation(Evidence(readings=readings), {}, slo, at - sample.seconds, at), {})
    return observed.status, observed.summary


_EVIDENCE: Mapping[str, Callable[[Sign, SignContext], Iterator[SignEvidence]]] = {
    events.ALERTED: _alerts,
    events.DIAGNOSED: _diagnoses,
    RUN_CLOSED: _runs,
    events.SAMPLED: _samples,
}
