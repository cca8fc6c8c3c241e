"""Entries in words, for whoever is told: a line, and named details. Bounded: a receiver takes only so much."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.incident import events
from latdoctor.remedy.change import Change, Value
from latdoctor.text import clean, fitted

Details = tuple[tuple[str, str], ...]  # name and text

LONGEST = 1000  # characters of a detail
LONGEST_NAME = 80  # columns of an alert's name
MOST = 5  # alerts, causes, fields that are told one by one
_LABELS = ("service", "job", "namespace", "instance", "pod", "severity")  # that tell where it is, in this order


def pairs(**told: str) -> Details:
    """The details that say something, cleaned."""
    named = ((name.replace("_", " "), clean(text, LONGEST).strip()) for name, text in told.items())
    return tuple((name, text) for name, text in named if text)


def of_alerts(alerts: Sequence[events.Alert], truncated: int = 0) -> tuple[str, Details]:
    """How all alerts of an incident stand."""
    firing = [alert for alert in alerts if alert.status == events.FIRING]
    named = (fitted(alert.name or alert.fingerprint, LONGEST_NAME) for alert in (firing or alerts)[:MOST])
    names = ", ".join(dict.fromkeys(named))
    more = f" and {len(firing) - MOST} more" if len(firing) > MOST else ""
    says = f"{names}{more} firing" if firing else f"{names} resolved"
    first = (firing or list(alerts))[:1]
    details: list[tuple[str, str]] = []
    for alert in first:
        about = alert.annotations
        where = ", ".join(f"{name}={alert.labels[name]}" for name in _LABELS if name in alert.labels)
        details += pairs(
            Summary=about.get("summary", ""),
            Description=about.get("description", about.get("message", "")),
            Labels=where,
            Runbook=about.get("runbook_url", ""),
            Rule=alert.generator,
        )
    count = f"{len(firing)} firing, {len(alerts) - len(firing)} resolved"
    left_out = f", and {truncated} that the sender left out" if truncated else ""
    return says, (*details, *pairs(Alerts=f"{count}{left_out}"))


def of_diagnosis(made: events.Diagnosed) -> tuple[str, Details]:
    """The verdict, the causes with what speaks for them, and what was not seen."""
    named = [cause for cause in made.causes if cause.named]
    says = made.says or made.level
    details: list[tuple[str, str]] = []
    for cause in (named or list(made.causes))[:MOST]:
        sure = f"{cause.probability:.0%} {'named' if cause.named else 'candidate'}"
        of = f" ({', '.join(cause.subjects[:MOST])})" if cause.subjects else ""
        because = f": {'; '.join(cause.because[:MOST])}" if cause.because else ""
        details.append(("Cause", clean(f"{cause.title} [{cause.id}] {sure}{of}{because}", LONGEST)))
    books = ", ".join(dict.fromkeys(book for cause in named for book in cause.playbooks))
    return says, (
        *pairs(Target=made.target),
        *details,
        *pairs(Playbooks=books, Not_seen="; ".join(made.unseen[:MOST]), Diagnosis=made.run_id),
    )


def of_plan(plan: events.Planned) -> tuple[str, Details]:
    says = f"planned for {plan.target}, nothing was changed: {plan.title}"
    return says, pairs(Playbook=plan.playbook, Risk=plan.risk, Cause=plan.cause, Plan=plan.digest[:12])


def of_change(change: Change) -> Details:
    """Each field, old and new."""
    fields = "; ".join(f"{one.name}: {_value(one.before)} → {_value(one.after)}" for one in change.fields[:MOST])
    more = f"; and {len(change.fields) - MOST} more" if len(change.fields) > MOST else ""
    return pairs(Step=change.step, Changed=f"{fields}{more}")


def _value(value: Value) -> str:
    return "not set" if value is None else clean(str(value), 100)
