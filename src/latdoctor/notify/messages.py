"""Notices of an incident, derived from its entries: cleaned texts, independent of the receiver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from msgspec import Struct

from latdoctor.evidence.redaction.documents import without_secrets_in
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.incident import events
from latdoctor.incident.events import AlertStatus, Confirmation, OpenedBy
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry
from latdoctor.notify.receiver_config import Message, NoticeKind, Receiver
from latdoctor.remediation import run_history
from latdoctor.remediation.change import Change, Value
from latdoctor.remediation.run_result import Outcome
from latdoctor.sanitize import clean, fitted
from latdoctor.units import percent

SEVERITIES: Final = ("critical", "error", "warning", "info")  # the worst first
# Common values of the `severity` label (kubernetes-mixin, Prometheus' own rules, Opsgenie's P1 to P5).
_LABELS: Final = {
    "critical": ("critical", "crit", "page", "fatal", "emergency", "disaster", "sev1", "p1"),
    "error": ("error", "err", "high", "major", "sev2", "p2"),
    "warning": ("warning", "warn", "medium", "minor", "ticket", "sev3", "p3"),
    "info": ("info", "information", "informational", "low", "notice", "none", "debug", "sev4", "p4", "p5"),
}
_OF_LABEL: Final = {word: severity for severity, words in _LABELS.items() for word in words}
DEFAULT_SEVERITY: Final = "error"  # PagerDuty requires one; Alertmanager defaults to this too


def of_alert(labels: Mapping[str, str]) -> str:
    """Severity of an alert with these labels; DEFAULT_SEVERITY for an unknown label."""
    return _OF_LABEL.get(labels.get("severity", "").strip().lower(), DEFAULT_SEVERITY)


def of_level(level: str) -> str:
    """Of a diagnosis' verdict. One that is not healthy and not known to hurt is a warning."""
    return level if level in SEVERITIES else "info" if level == "healthy" else "warning"


def worst(found: Iterable[str]) -> str:
    """The worst of them; DEFAULT_SEVERITY if empty."""
    return min(found, key=SEVERITIES.index, default=DEFAULT_SEVERITY)


Details = tuple[tuple[str, str], ...]  # name and text

MAX_TEXT = 1000  # characters of a detail
LONGEST_NAME = 80  # columns of an alert's name
MOST = 5  # alerts, causes, fields that are listed individually
_FIELD_LABELS = ("service", "job", "namespace", "instance", "pod", "severity")  # labels that locate an alert


def details_of(**collected: str) -> Details:
    """Non-empty details, cleaned."""
    named = ((name.replace("_", " "), clean(text, MAX_TEXT).strip()) for name, text in collected.items())
    return tuple((name, text) for name, text in named if text)


def of_alerts(alerts: Sequence[events.Alert], truncated: int = 0) -> tuple[str, Details]:
    """State of all alerts of an incident."""
    firing = [alert for alert in alerts if alert.status == AlertStatus.FIRING]
    named = (fitted(alert.name or alert.fingerprint, LONGEST_NAME) for alert in (firing or alerts)[:MOST])
    names = ", ".join(dict.fromkeys(named))
    more = f" and {len(firing) - MOST} more" if len(firing) > MOST else ""
    message = f"{names}{more} firing" if firing else f"{names} resolved"
    first = (firing or list(alerts))[:1]
    details: list[tuple[str, str]] = []
    for alert in first:
        about = alert.annotations
        where = ", ".join(f"{name}={alert.labels[name]}" for name in _FIELD_LABELS if name in alert.labels)
        details += details_of(
            Summary=about.get("summary", ""),
            Description=about.get("description", about.get("message", "")),
            Labels=where,
            Runbook=about.get("runbook_url", ""),
            Rule=alert.generator,
        )
    count = f"{len(firing)} firing, {len(alerts) - len(firing)} resolved"
    left_out = f", and {truncated} that the sender left out" if truncated else ""
    return message, (*details, *details_of(Alerts=f"{count}{left_out}"))


def of_diagnosis(notice: events.DiagnosisRecord) -> tuple[str, Details]:
    """Verdict, causes with their findings, and missing evidence."""
    named = [cause for cause in notice.causes if cause.named]
    message = notice.message or notice.level
    if named:  # in front, because a phone shows the beginning only
        first = named[0].because[:1]
        evidence = f": {first[0]}" if first else ""
        message = f"cause: {named[0].title} ({percent(named[0].probability)}){evidence}; {message}"
    details: list[tuple[str, str]] = []
    for cause in (named or list(notice.causes))[:MOST]:
        certainty = f"{cause.probability:.0%} {'named' if cause.named else 'candidate'}"
        of = f" ({', '.join(cause.subjects[:MOST])})" if cause.subjects else ""
        because = f": {'; '.join(cause.because[:MOST])}" if cause.because else ""
        details.append(("Cause", clean(f"{cause.title} [{cause.id}] {certainty}{of}{because}", MAX_TEXT)))
    books = ", ".join(dict.fromkeys(book for cause in named for book in cause.playbooks))
    return message, (
        *details_of(Target=notice.target),
        *details,
        *details_of(Playbooks=books, Not_seen="; ".join(notice.unseen[:MOST]), Diagnosis=notice.run_id),
    )


def of_plan(plan: events.PlanRecord) -> tuple[str, Details]:
    message = f"planned for {plan.target}, nothing was changed: {plan.title}"
    return message, details_of(Playbook=plan.playbook, Risk=plan.risk, Cause=plan.cause, Plan=plan.digest[:12])


def of_change(change: Change) -> Details:
    """Each field, old and new."""
    fields = "; ".join(f"{one.name}: {_value(one.before)} → {_value(one.after)}" for one in change.fields[:MOST])
    more = f"; and {len(change.fields) - MOST} more" if len(change.fields) > MOST else ""
    return details_of(Step=change.step, Changed=f"{fields}{more}")


def _value(value: Value) -> str:
    return "not set" if value is None else clean(str(value), 100)


# State of a `Notice` besides events.FIRING and events.RESOLVED.
INCOMPLETE = "incomplete"  # a change may still be in place after a failed rollback

LONGEST = 500  # characters of a message line


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. `part` distinguishes notices of one kind: the entry's digest, or a stage's id.

    `entry` is its journal entry; a late stage has none, and `since` is how many seconds ago it became late. `also`:
    receivers that get it regardless of their subscription.
    """

    what: NoticeKind
    part: str
    at: str  # RFC 3339, UTC
    message: str
    details: Details = ()
    severity: str = ""  # critical | error | warning | info; empty: none
    state: str = ""
    entry: JournalEntry | None = None
    since: float = 0.0
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageNotice:
    """A stage of the SOP that is met or late. `since`: seconds ago. `notify`: the receivers that the SOP names."""

    id: str
    title: str
    what: NoticeKind  # MET | LATE
    at: str
    since: float
    message: str
    notify: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SopNotices:
    """Notices of the SOP: its stages, and the receivers of the incident's start and end."""

    stages: tuple[StageNotice, ...] = ()
    notify: tuple[str, ...] = ()


NO_NOTICES = SopNotices()


def key_of(incident: Incident, notice: Notice) -> str:
    """Key of a message, unique per receiver. Without full stops, which Standard Webhooks uses as separators."""
    return f"{incident.id}/{notice.what}/{notice.part}".replace(".", "-")


def message_of(
    receiver: Receiver,
    incident: Incident,
    notice: Notice,
    payload: Struct,
    *,
    text: str = "",
    path: str = "",
    content_type: str = "application/json",
    headers: tuple[tuple[str, str], ...] = (),
) -> Message:
    """The message of a notice for `receiver`, without credentials and prompts.

    `text`: its short form, by default that of the notice.
    """
    return Message(
        to=receiver.name,
        kind=receiver.kind,
        what=notice.what,
        incident=incident.id,
        key=key_of(incident, notice),
        message=without_secrets(text or notice.message),
        url=receiver.base + path,
        headers=(("Content-Type", content_type), *headers),
        body=msgspec.json.encode(without_secrets_in(payload)),
    )


def notices(incident: Incident, news: SopNotices = NO_NOTICES) -> tuple[Notice, ...]:
    """In the order of the journal, then the stages. Raises msgspec.ValidationError."""
    collected = [*_of_entries(incident), *(_of_stage(stage) for stage in news.stages)]
    ends = (NoticeKind.ALERT, NoticeKind.CLOSED)
    return tuple(replace(one, also=news.notify) if one.what in ends else one for one in collected)


def _of_stage(stage: StageNotice) -> Notice:
    severity = "error" if stage.what == NoticeKind.LATE else "info"
    message = clean(f"{stage.title}: {stage.message}", LONGEST)
    return Notice(stage.what, stage.id, stage.at, message, (), severity, since=stage.since, also=stage.notify)


def _of_entries(incident: Incident) -> Iterator[Notice]:
    alerts: dict[str, events.Alert] = {}
    runs = {run.id: run for run in run_history.runs(incident.entries)}
    taken = False
    for entry in incident.entries:
        notice = _of_alert(entry, alerts) or _of_entry(entry) or _of_run(entry, runs)
        if notice is None or (notice.what == NoticeKind.TAKEN and taken):
            continue
        taken = taken or notice.what == NoticeKind.TAKEN
        yield replace(notice, entry=entry)


def _of_alert(entry: JournalEntry, alerts: dict[str, events.Alert]) -> Notice | None:
    """State of the alerts after this entry; `alerts` holds those so far, and is updated."""
    if entry.kind != events.ALERTED:
        return None
    alerted = decode_body(entry, events.AlertsReceived)
    alerts.update({alert.fingerprint: alert for alert in alerted.alerts})
    firing = [alert for alert in alerts.values() if alert.status == AlertStatus.FIRING]
    message, details = of_alerts(tuple(alerts.values()), alerted.truncated)
    return _notice(
        entry,
        NoticeKind.ALERT,
        message,
        details,
        worst(of_alert(alert.labels) for alert in firing) if firing else "info",
        AlertStatus.FIRING if firing else AlertStatus.RESOLVED,
    )


def _of_entry(entry: JournalEntry) -> Notice | None:
    match entry.kind:
        case events.OPENED:
            opened = decode_body(entry, events.IncidentOpened)
            if opened.source != OpenedBy.HAND:
                return None  # the alert that opened it is notified instead
            message = f"opened by {opened.by or 'hand'}"
            return _notice(
                entry,
                NoticeKind.ALERT,
                message,
                details_of(Targets=", ".join(opened.targets)),
                "error",
                AlertStatus.FIRING,
            )
        case events.CONFIRMED:
            confirmation = decode_body(entry, events.AlertConfirmed)
            false = confirmation.status == Confirmation.FALSE_ALARM
            return _notice(
                entry,
                NoticeKind.CONFIRMED,
                f"{confirmation.status}: {confirmation.message}",
                (),
                "info" if false else "error",
            )
        case events.DIAGNOSED:
            notice = decode_body(entry, events.DiagnosisRecord)
            message, details = of_diagnosis(notice)
            return _notice(entry, NoticeKind.DIAGNOSIS, message, details, of_level(notice.level))
        case events.PLANNED:
            message, details = of_plan(decode_body(entry, events.PlanRecord))
            return _notice(entry, NoticeKind.PLAN, message, details, "info")
        case events.MARKED:
            marked = decode_body(entry, events.StageMarked)
            return _notice(
                entry, NoticeKind.TAKEN, f"{marked.by or 'an operator'} is at work: {marked.stage} {marked.text}"
            )
        case events.NOTED:
            noted = decode_body(entry, events.NoteAdded)
            return _notice(entry, NoticeKind.TAKEN, f"{noted.by or 'an operator'} is at work: {noted.text}")
        case events.CLOSED:
            closed = decode_body(entry, events.IncidentClosed)
            by = f"by {closed.by}, " if closed.by else ""
            collected = f"closed {by}{closed.outcome}{f': {closed.message}' if closed.message else ''}"
            return _notice(entry, NoticeKind.CLOSED, collected, (), "info", AlertStatus.RESOLVED)
    return None


def _of_run(entry: JournalEntry, runs: Mapping[str, run_history.RunState]) -> Notice | None:
    run = runs.get(entry.run)
    if run is None:
        return None
    title, target = run.plan.title, run.plan.target.name
    known = details_of(Run=run.id, Playbook=run.plan.playbook, Target=target)
    match entry.kind:
        case "change.made":
            change = run.change(decode_body(entry, run_history.ChangeRef))
            return _notice(entry, NoticeKind.CHANGE, f"changed {target}: {title}", (*known, *of_change(change)), "info")
        case "verify.passed":
            return _notice(entry, NoticeKind.VERIFY, f"verified on {target}, and it stays: {title}", known, "info")
        case "run.closed":
            return _of_end(entry, decode_body(entry, run_history.RunClosed), f"{target}: {title}", known)
    return None


def _of_end(entry: JournalEntry, closed: run_history.RunClosed, of: str, known: Details) -> Notice | None:
    why = details_of(Reason=closed.reason)
    if closed.outcome is Outcome.ROLLED_BACK:
        return _notice(entry, NoticeKind.ROLLBACK, f"rolled back, all is as before on {of}", (*known, *why), "warning")
    if closed.outcome is Outcome.INCOMPLETE:
        message = f"NOT rolled back, a change may still be in place on {of}"
        step = details_of(Next=f"latdoctor recover; latdoctor runs show {entry.run}")
        return _notice(entry, NoticeKind.ROLLBACK, message, (*known, *why, *step), "critical", INCOMPLETE)
    return None


def _notice(
    entry: JournalEntry,
    kind: NoticeKind,
    message: str,
    details: Sequence[tuple[str, str]] = (),
    severity: str = "",
    state: str = "",
) -> Notice:
    return Notice(kind, entry.digest[:16], entry.at, clean(message, LONGEST).strip(), tuple(details), severity, state)
