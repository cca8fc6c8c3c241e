"""What of an incident is worth telling, from its entries: cleaned texts, made for no receiver in particular."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from latdoctor.incident import events
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry
from latdoctor.notify import receiver as what
from latdoctor.remediation import run_history
from latdoctor.remediation.change import Change, Value
from latdoctor.remediation.run_result import Outcome
from latdoctor.sanitize import clean, fitted

SEVERITIES: Final = ("critical", "error", "warning", "info")  # the worst first
# What the `severity` label of an alert usually says (kubernetes-mixin, Prometheus' own rules, Opsgenie's P1 to P5).
_LABELS: Final = {
    "critical": ("critical", "crit", "page", "fatal", "emergency", "disaster", "sev1", "p1"),
    "error": ("error", "err", "high", "major", "sev2", "p2"),
    "warning": ("warning", "warn", "medium", "minor", "ticket", "sev3", "p3"),
    "info": ("info", "information", "informational", "low", "notice", "none", "debug", "sev4", "p4", "p5"),
}
_OF_LABEL: Final = {word: severity for severity, words in _LABELS.items() for word in words}
DEFAULT_SEVERITY: Final = "error"  # PagerDuty wants one; this is what an Alertmanager gives where none is told


def of_alert(labels: Mapping[str, str]) -> str:
    """Of an alert with these labels; UNSAID where its label says nothing that is known."""
    return _OF_LABEL.get(labels.get("severity", "").strip().lower(), DEFAULT_SEVERITY)


def of_level(level: str) -> str:
    """Of a diagnosis' verdict. One that is not healthy and not known to hurt is a warning."""
    return level if level in SEVERITIES else "info" if level == "healthy" else "warning"


def worst(found: Iterable[str]) -> str:
    """The worst of them; UNSAID where there are none."""
    return min(found, key=SEVERITIES.index, default=DEFAULT_SEVERITY)


Details = tuple[tuple[str, str], ...]  # name and text

MAX_TEXT = 1000  # characters of a detail
LONGEST_NAME = 80  # columns of an alert's name
MOST = 5  # alerts, causes, fields that are told one by one
_FIELD_LABELS = ("service", "job", "namespace", "instance", "pod", "severity")  # that tell where it is, in this order


def details_of(**told: str) -> Details:
    """The details that say something, cleaned."""
    named = ((name.replace("_", " "), clean(text, MAX_TEXT).strip()) for name, text in told.items())
    return tuple((name, text) for name, text in named if text)


def of_alerts(alerts: Sequence[events.Alert], truncated: int = 0) -> tuple[str, Details]:
    """How all alerts of an incident stand."""
    firing = [alert for alert in alerts if alert.status == events.FIRING]
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


def of_diagnosis(made: events.DiagnosisRecord) -> tuple[str, Details]:
    """The verdict, the causes with what speaks for them, and what was not seen."""
    named = [cause for cause in made.causes if cause.named]
    message = made.message or made.level
    details: list[tuple[str, str]] = []
    for cause in (named or list(made.causes))[:MOST]:
        ramp = f"{cause.probability:.0%} {'named' if cause.named else 'candidate'}"
        of = f" ({', '.join(cause.subjects[:MOST])})" if cause.subjects else ""
        because = f": {'; '.join(cause.because[:MOST])}" if cause.because else ""
        details.append(("Cause", clean(f"{cause.title} [{cause.id}] {ramp}{of}{because}", MAX_TEXT)))
    books = ", ".join(dict.fromkeys(book for cause in named for book in cause.playbooks))
    return message, (
        *details_of(Target=made.target),
        *details,
        *details_of(Playbooks=books, Not_seen="; ".join(made.unseen[:MOST]), Diagnosis=made.run_id),
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


# What `Notice.state` may say beside events.FIRING and events.RESOLVED.
INCOMPLETE = "incomplete"  # a change may still stand that should not

LONGEST = 500  # characters of what is said in a line


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing. `part` tells it from others of its kind: the entry's digest, or a stage's id.

    `entry` is where it stands in the journal; of a late stage, which no entry tells, `since` says how many seconds ago
    it became so. `also`: receivers that are told whatever they ask for.
    """

    what: str  # receiver.WHATS
    part: str
    at: str  # RFC 3339, UTC
    message: str
    details: Details = ()
    severity: str = ""  # critical | error | warning | info; empty: not told
    state: str = ""
    entry: JournalEntry | None = None
    since: float = 0.0
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageNotice:
    """A stage of the SOP that is met or late. `since`: seconds ago. `notify`: the receivers that the SOP names."""

    id: str
    title: str
    what: str  # receiver.MET | receiver.LATE
    at: str
    since: float
    message: str
    notify: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SopNotices:
    """What the SOP adds: its stages, and who is told of the incident's start and end."""

    stages: tuple[StageNotice, ...] = ()
    notify: tuple[str, ...] = ()


NO_NOTICES = SopNotices()


def key_of(incident: Incident, telling: Notice) -> str:
    """What tells a message from all others of its receiver. Without a full stop: Standard Webhooks parts by those."""
    return f"{incident.id}/{telling.what}/{telling.part}".replace(".", "-")


def notices(incident: Incident, news: SopNotices = NO_NOTICES) -> tuple[Notice, ...]:
    """In the order of the journal, then the stages. Raises msgspec.ValidationError."""
    told = [*_of_entries(incident), *(_of_stage(stage) for stage in news.stages)]
    ends = (what.ALERT, what.CLOSED)
    return tuple(replace(one, also=news.notify) if one.what in ends else one for one in told)


def _of_stage(stage: StageNotice) -> Notice:
    severity = "error" if stage.what == what.LATE else "info"
    message = clean(f"{stage.title}: {stage.message}", LONGEST)
    return Notice(stage.what, stage.id, stage.at, message, (), severity, since=stage.since, also=stage.notify)


def _of_entries(incident: Incident) -> Iterator[Notice]:
    alerts: dict[str, events.Alert] = {}
    runs = {run.id: run for run in run_history.runs(incident.entries)}
    taken = False
    for entry in incident.entries:
        made = _of_alert(entry, alerts) or _of_entry(entry) or _of_run(entry, runs)
        if made is None or (made.what == what.TAKEN and taken):
            continue
        taken = taken or made.what == what.TAKEN
        yield replace(made, entry=entry)


def _of_alert(entry: JournalEntry, alerts: dict[str, events.Alert]) -> Notice | None:
    """How the alerts stand with this entry: `alerts` are those so far, and get its own."""
    if entry.kind != events.ALERTED:
        return None
    alerted = decode_body(entry, events.AlertsReceived)
    alerts.update({alert.fingerprint: alert for alert in alerted.alerts})
    firing = [alert for alert in alerts.values() if alert.status == events.FIRING]
    message, details = of_alerts(tuple(alerts.values()), alerted.truncated)
    return _telling(
        entry,
        what.ALERT,
        message,
        details,
        worst(of_alert(alert.labels) for alert in firing) if firing else "info",
        events.FIRING if firing else events.RESOLVED,
    )


def _of_entry(entry: JournalEntry) -> Notice | None:
    match entry.kind:
        case events.OPENED:
            opened = decode_body(entry, events.IncidentOpened)
            if opened.source != events.BY_HAND:
                return None  # the alert that opened it is told
            message = f"opened by {opened.by or 'hand'}"
            return _telling(
                entry, what.ALERT, message, details_of(Targets=", ".join(opened.targets)), "error", events.FIRING
            )
        case events.CONFIRMED:
            seen = decode_body(entry, events.AlertConfirmed)
            false = seen.status == events.FALSE_ALARM
            return _telling(entry, what.CONFIRMED, f"{seen.status}: {seen.message}", (), "info" if false else "error")
        case events.DIAGNOSED:
            made = decode_body(entry, events.DiagnosisRecord)
            message, details = of_diagnosis(made)
            return _telling(entry, what.DIAGNOSIS, message, details, of_level(made.level))
        case events.PLANNED:
            message, details = of_plan(decode_body(entry, events.PlanRecord))
            return _telling(entry, what.PLAN, message, details, "info")
        case events.MARKED:
            marked = decode_body(entry, events.StageMarked)
            return _telling(entry, what.TAKEN, f"{marked.by or 'somebody'} is at work: {marked.stage} {marked.text}")
        case events.NOTED:
            noted = decode_body(entry, events.NoteAdded)
            return _telling(entry, what.TAKEN, f"{noted.by or 'somebody'} is at work: {noted.text}")
        case events.CLOSED:
            closed = decode_body(entry, events.IncidentClosed)
            who = f"by {closed.by}, " if closed.by else ""
            told = f"closed {who}{closed.outcome}{f': {closed.message}' if closed.message else ''}"
            return _telling(entry, what.CLOSED, told, (), "info", events.RESOLVED)
    return None


def _of_run(entry: JournalEntry, runs: Mapping[str, run_history.RunState]) -> Notice | None:
    run = runs.get(entry.run)
    if run is None:
        return None
    title, target = run.plan.title, run.plan.target.name
    known = details_of(Run=run.id, Playbook=run.plan.playbook, Target=target)
    match entry.kind:
        case "change.made":
            change = run.change(decode_body(entry, run_history.Touched))
            return _telling(entry, what.CHANGE, f"changed {target}: {title}", (*known, *of_change(change)), "info")
        case "verify.passed":
            return _telling(entry, what.VERIFY, f"verified on {target}, and it stays: {title}", known, "info")
        case "run.closed":
            return _of_end(entry, decode_body(entry, run_history.Closed), f"{target}: {title}", known)
    return None


def _of_end(entry: JournalEntry, closed: run_history.Closed, of: str, known: Details) -> Notice | None:
    why = details_of(Reason=closed.reason)
    if closed.outcome is Outcome.ROLLED_BACK:
        return _telling(entry, what.ROLLBACK, f"taken back, all is as before on {of}", (*known, *why), "warning")
    if closed.outcome is Outcome.INCOMPLETE:
        message = f"NOT taken back, a change may still stand on {of}"
        step = details_of(Next=f"latdoctor recover; latdoctor runs show {entry.run}")
        return _telling(entry, what.ROLLBACK, message, (*known, *why, *step), "critical", INCOMPLETE)
    return None


def _telling(
    entry: JournalEntry,
    kind: str,
    message: str,
    details: Sequence[tuple[str, str]] = (),
    severity: str = "",
    state: str = "",
) -> Notice:
    return Notice(kind, entry.digest[:16], entry.at, clean(message, LONGEST).strip(), tuple(details), severity, state)
