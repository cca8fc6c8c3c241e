"""Texts of the timeline: each journal entry as one or more event texts, with facts separate from inferences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from latdoctor.conditions.evaluator import show
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.incident import events, slo_samples
from latdoctor.incident.elapsed import UNNAMED_CLOCK, ClockType, ElapsedTimes, is_time, rfc3339
from latdoctor.incident.events import AlertStatus, Confirmation, OpenedBy
from latdoctor.incident.state import decode_body
from latdoctor.incident.timeline_model import OWN, Basis, SloSample, TimelineEvent
from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation.change import Value
from latdoctor.remediation.run_history import ChangeRef, RunClosed, RunState, entry_text
from latdoctor.remediation.run_result import Outcome
from latdoctor.sanitize import clean
from latdoctor.units import percent

CRITICAL, WARNING = "critical", "warning"
EVIDENCE = "the evidence"  # clock of a start that a diagnosis inferred
CAUSE, SINCE, BEGAN, BECAUSE, SLO = "cause", "since", "began", "because", "slo"  # parts of an entry
CHANGE = "change"  # the first part of a changed service; change-2 of another
_MOST = 4  # names in one line
_NAME = 80  # characters of an alert's name
_CONFIRMED = {
    Confirmation.CONFIRMED: "the alert is real",
    Confirmation.FALSE_ALARM: "a false alarm",
    Confirmation.UNKNOWN: "whether the alert is real is not known",
}


@dataclass(frozen=True, slots=True)
class EventText:
    """Text of an event; `time` (unix seconds) where another clock measured it, which `clock` names."""

    message: str
    part: str = ""
    basis: Basis = Basis.FACT
    by: str = ""
    evidence: tuple[str, ...] = ()
    level: str = ""
    time: float | None = None
    clock: str = OWN


def event_texts(entry: JournalEntry) -> tuple[EventText, ...] | None:
    """Texts of an incident's own entry; None for an unknown kind. Raises msgspec.ValidationError."""
    text = _WORDS.get(entry.kind)
    return tuple(text(entry)) if text else None


def _opened(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.IncidentOpened)
    if record.began is not None and is_time(record.began):
        by_hand = record.source == OpenedBy.HAND
        message = "the trouble began" if by_hand else "the alert began to fire"
        basis = Basis.REPORTED if by_hand else Basis.FACT
        yield EventText(
            message, BEGAN, basis, record.by if by_hand else "", time=record.began, clock=record.clock or UNNAMED_CLOCK
        )
    how = "an alert" if record.source == OpenedBy.ALERT else "hand"
    of = f" (of {_some(record.targets)})" if record.targets else ""
    yield EventText(f"incident opened by {how}: {record.title}{of}", by=record.by)


def _alerted(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.AlertsReceived)
    parts = []
    for status in (AlertStatus.FIRING, AlertStatus.RESOLVED):
        names = [alert.name for alert in record.alerts if alert.status == status]
        parts += [f"{len(names)} {status}: {_some(names)}"] if names else []
    parts += [f"{record.truncated} more were left out by the sender"] if record.truncated else []
    cut = truncation_note(record.alerts)
    parts += [cut] if cut else []
    firing = any(alert.status == AlertStatus.FIRING for alert in record.alerts)
    severities = {alert.labels.get("severity", "") for alert in record.alerts if alert.status == AlertStatus.FIRING}
    level = next((one for one in (CRITICAL, WARNING) if one in severities), "")
    what = "alert" if firing else "alert over"
    yield EventText(f"{what}: {'; '.join(parts) or 'nothing in it'}", by=record.receiver, level=level)


def truncation_note(alerts: Iterable[events.Alert]) -> str:
    """What was dropped from alerts: `cut to fit: LatencyHigh (8 labels left out)`; empty: nothing."""
    text = [f"{clean(one.name or one.fingerprint, _NAME)} ({clean(one.cut, 100)})" for one in alerts if one.cut]
    return f"cut to fit: {_some(text)}" if text else ""


def _confirmed(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.AlertConfirmed)
    yield EventText(f"{_CONFIRMED.get(record.status, record.status)}: {record.message}")


def _diagnosed(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.DiagnosisRecord)
    files = tuple(place for place in (record.bundle, record.document) if place)
    if record.since is not None:
        yield EventText("latency rose, and has stayed high", SINCE, Basis.INFERENCE, time=record.since, clock=EVIDENCE)
    for number, change in enumerate(record.changes, 1):
        part = CHANGE if number == 1 else f"{CHANGE}-{number}"
        yield EventText(f"changed: {change.message}", part, time=change.at, clock=EVIDENCE)
    yield EventText(f"diagnosed {record.target}: {record.level}: {record.message}", evidence=files, level=record.level)
    named = [cause for cause in record.causes if cause.named]
    for number, cause in enumerate(named, 1):
        yield EventText(cause_sentence(cause), cause_part(number), Basis.INFERENCE, evidence=files)
    if not named:
        yield EventText(_unnamed(record), CAUSE, Basis.INFERENCE, evidence=files)


def cause_part(number: int) -> str:
    """Part of the event of a diagnosis' named cause, counted from 1."""
    return CAUSE if number == 1 else f"{CAUSE}-{number}"


def _unnamed(record: events.DiagnosisRecord) -> str:
    """Answer of a diagnosis without a named cause."""
    if record.answer == "one-of" and record.causes:
        return "one of: " + ", ".join(f"{cause.id} ({percent(cause.probability)})" for cause in record.causes[:_MOST])
    return "no cause found" if record.answer == "none" else "no known cause explains the evidence"


def cause_sentence(cause: events.CauseRecord) -> str:
    """`cause: Long requests run alone (app.batching.long-alone, 94 %) on replica/0, because …; against it: …`."""
    because = f", because {'; '.join(cause.because[:_MOST])}" if cause.because else ""
    against = f"; against it: {'; '.join(cause.against[:_MOST])}" if cause.against else ""
    return f"{cause_name(cause)}{because}{against}"


def cause_name(cause: events.CauseRecord) -> str:
    """The same without findings."""
    on = f" on {_some(cause.subjects)}" if cause.subjects else ""
    return f"cause: {cause.title} ({cause.id}, {percent(cause.probability)}){on}"


def _planned(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.PlanRecord)
    yield EventText(
        f"planned, nothing changed: {record.title} ({record.playbook}) on {record.target}, risk {record.risk}"
    )


def _joined(entry: JournalEntry) -> Iterator[EventText]:
    yield EventText(f"run {decode_body(entry, events.RunJoined).joined} is for this incident")


def _noted(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.NoteAdded)
    yield EventText(record.text, basis=Basis.REPORTED, by=record.by)


def _marked(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.StageMarked)
    yield EventText(
        f"stage {record.stage} is met" + (f": {record.text}" if record.text else ""), basis=Basis.REPORTED, by=record.by
    )


def _notifying(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.NotificationStarted)
    yield EventText(f"notifying {record.to}: {record.what}")


def _notified(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.NotificationSent)
    why = f" ({record.why})" if record.why else ""
    if record.sent:
        yield EventText(f"notified {record.to}: {record.what}{why}")
    else:
        yield EventText(f"could NOT notify {record.to}: {record.what}{why}", level=WARNING)


def _closed(entry: JournalEntry) -> Iterator[EventText]:
    record = decode_body(entry, events.IncidentClosed)
    yield EventText(
        f"incident closed: {record.outcome}" + (f": {record.message}" if record.message else ""), by=record.by
    )


def _some(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


_WORDS: Mapping[str, Callable[[JournalEntry], Iterator[EventText]]] = {
    events.OPENED: _opened,
    events.ALERTED: _alerted,
    events.CONFIRMED: _confirmed,
    events.DIAGNOSED: _diagnosed,
    events.PLANNED: _planned,
    events.RUN_JOINED: _joined,
    events.NOTED: _noted,
    events.MARKED: _marked,
    events.NOTIFYING: _notifying,
    events.NOTIFIED: _notified,
    events.CLOSED: _closed,
}


LONGEST = 1000  # characters of an event's message
_SAME = 1.0  # seconds between two diagnoses' beginnings that are one
_WITH_VALUES = ("change.made", "undo.made")
_LEVELS = {"undo.failed": CRITICAL, "verify.failed": WARNING, "rollback.begun": WARNING, "run.refused": WARNING}
_STANDS = {
    slo_samples.SloState.OVER: "over the SLO",
    slo_samples.SloState.WITHIN: "within the SLO",
    slo_samples.SloState.UNJUDGED: "not to be judged",
}


def timeline_events(
    entries: Iterable[JournalEntry], count: ElapsedTimes, runs: Mapping[str, RunState]
) -> tuple[TimelineEvent, ...]:
    """All events in journal order; an event timed by another clock is placed by its time.

    The journal order holds also where this machine's clock was set.
    """
    listed: list[tuple[float, int, int, TimelineEvent]] = []
    reached = -math.inf
    for place, text in enumerate(_in_journal_order(entries, count, runs)):
        own = text.clock == OWN or text.seconds is None
        if text.seconds is not None and own:
            reached = max(reached, text.seconds)
        listed.append((reached if own or text.seconds is None else text.seconds, own, place, text))
    return tuple(text for *_, text in sorted(listed, key=lambda one: one[:3]))


def _in_journal_order(
    entries: Iterable[JournalEntry], count: ElapsedTimes, runs: Mapping[str, RunState]
) -> Iterator[TimelineEvent]:
    previous = ""
    onsets: list[float] = []
    changes: set[tuple[float | None, str]] = set()
    for entry in entries:
        if entry.kind == events.SAMPLED:
            sample = slo_samples.read_sample(entry, count)
            if sample is None:
                yield _moment(entry, _unreadable(entry), count)
                continue
            now = slo_samples.slo_state(sample)
            if now != previous:
                yield _moment(entry, _slo_change(sample, now), count)
            previous = now
            continue
        for piece in _pieces(entry, runs):
            if piece.part == SINCE and piece.time is not None:
                if any(abs(piece.time - other) < _SAME for other in onsets):
                    continue  # later diagnoses repeat it
                onsets.append(piece.time)
            if piece.part.partition("-")[0] == CHANGE:
                if (piece.time, piece.message) in changes:
                    continue
                changes.add((piece.time, piece.message))
            yield _moment(entry, piece, count)


def _slo_change(sample: SloSample, now: slo_samples.SloState) -> EventText:
    """A change of the SLO state; all other samples are in the series."""
    p99 = slo_samples.p99_of(sample)
    shown = f": P99 {show(slo_samples.P99, p99)}" if p99 is not None else ""
    slo = f", the SLO is {show(slo_samples.P99, sample.slo_p99)}" if sample.slo_p99 is not None else ", no SLO is known"
    level = CRITICAL if now == slo_samples.SloState.OVER else ""
    return EventText(f"the service is {_STANDS[now]}{shown}{slo}", SLO, level=level)


def _pieces(entry: JournalEntry, runs: Mapping[str, RunState]) -> tuple[EventText, ...]:
    """Texts of an entry; an entry of another version is reported as unreadable."""
    try:
        found = event_texts(entry)
        return _of_run(entry, runs.get(entry.run)) if found is None else found
    except (*UNDECODABLE, KeyError, IndexError, TypeError, ValueError):
        return (_unreadable(entry),)


def _unreadable(entry: JournalEntry) -> EventText:
    return EventText(f"{entry.kind}: an entry of another version, not readable here", level=WARNING)


def _of_run(entry: JournalEntry, run: RunState | None) -> tuple[EventText, ...]:
    """Texts of a run's entry, prefixed with its playbook."""
    plan = run.plan if run else None
    name = f"{plan.playbook}: " if plan else ""
    message, level = entry_text(entry, plan), _LEVELS.get(entry.kind, "")
    evidence: tuple[str, ...] = ()
    if entry.kind == "evidence.kept":
        path = msgspec.json.decode(entry.body)["path"]
        evidence = ("/".join(PurePosixPath(path).parts[-3:]),)  # in the state folder
        message = "evidence from before the change is stored"
    if entry.kind in _WITH_VALUES and run is not None:
        message += _values(run, msgspec.json.decode(entry.body, type=ChangeRef), back=entry.kind == "undo.made")
    if entry.kind == "run.closed":
        closed = msgspec.json.decode(entry.body, type=RunClosed)
        message += f" ({closed.reason})" if closed.reason and closed.reason != closed.outcome else ""
        level = CRITICAL if closed.outcome is Outcome.INCOMPLETE else ""
    own = EventText(f"{name}{message}", evidence=evidence, level=level)
    if entry.kind != "run.opened" or plan is None or plan.diagnosis is None:
        return (own,)
    why = f"{plan.diagnosis.cause}, {percent(plan.diagnosis.probability)} by diagnosis {plan.diagnosis.run_id}"
    return own, EventText(f"{name}addresses {why}", BECAUSE, Basis.INFERENCE)


def _values(run: RunState, touched: ChangeRef, *, back: bool) -> str:
    fields = run.change(touched).fields
    values = ((field.after, field.before) if back else (field.before, field.after) for field in fields[:4])
    shown = [
        f"{field.name} {value_text(old)} → {value_text(new)}"
        for field, (old, new) in zip(fields[:4], values, strict=True)
    ]
    more = f" and {len(fields) - 4} more" if len(fields) > 4 else ""
    return f": {', '.join(shown)}{more}" if shown else ""


def value_text(one: Value) -> str:
    """A configured value for people."""
    if one is None:
        return "not set"
    return clean(one if isinstance(one, str) else msgspec.json.encode(one).decode(), 60)


def _moment(entry: JournalEntry, piece: EventText, count: ElapsedTimes) -> TimelineEvent:
    when = count.of(entry)
    at, clock, seconds, measured = entry.at, piece.clock, when.seconds, when.by
    if piece.time is not None and is_time(piece.time):
        at, seconds, measured = rfc3339(piece.time), count.at(piece.time), ClockType.WALL
    elif piece.time is not None:
        clock = OWN  # not a valid time: use the time of the entry
    return TimelineEvent(
        at=at,
        clock=clean(clock, 100),
        seconds=seconds,
        measured=measured,
        kind=entry.kind,
        part=piece.part,
        message=clean(piece.message, LONGEST),
        basis=piece.basis,
        by=clean(piece.by, 100),
        run=entry.run,
        seq=entry.seq,
        digest=entry.digest,
        evidence=tuple(clean(place, 300) for place in piece.evidence),
        level=clean(piece.level, 20),
    )
