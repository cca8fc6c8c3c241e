"""What the entries of an incident say, in words: each as pieces, facts apart from what is inferred."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from latdoctor.conditions.evaluator import show
from latdoctor.errors import UNDECODABLE
from latdoctor.incident import events, slo_samples
from latdoctor.incident.elapsed import UNNAMED_CLOCK, WALL, ElapsedTimes, is_time, rfc3339
from latdoctor.incident.state import decode_body
from latdoctor.incident.timeline_model import FACT, INFERENCE, OWN, SAID, SloSample, TimelineEvent
from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation.change import Value
from latdoctor.remediation.run_history import Closed, RunState, Touched, line_of
from latdoctor.remediation.run_result import Outcome
from latdoctor.sanitize import clean
from latdoctor.units import percent

CRITICAL, WARNING = "critical", "warning"
EVIDENCE = "the evidence"  # whose clock the beginning is by that a diagnosis found
CAUSE, SINCE, BEGAN, BECAUSE, SLO = "cause", "since", "began", "because", "slo"  # parts of what an entry tells
_MOST = 4  # names in one line
_NAME = 80  # characters of an alert's name
_CONFIRMED = {
    events.REAL: "the alert is real",
    events.FALSE_ALARM: "a false alarm",
    events.UNKNOWN: "whether the alert is real is not known",
}


@dataclass(frozen=True, slots=True)
class EventText:
    """What an entry tells; `time` (unix seconds) where it was by another clock, which `clock` names."""

    message: str
    part: str = ""
    basis: str = FACT
    by: str = ""
    evidence: tuple[str, ...] = ()
    level: str = ""
    time: float | None = None
    clock: str = OWN


def event_texts(entry: JournalEntry) -> tuple[EventText, ...] | None:
    """What an entry of the incident itself says; None for a kind that is not known here.

    Raises msgspec.ValidationError.
    """
    told = _WORDS.get(entry.kind)
    return tuple(told(entry)) if told else None


def _opened(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.IncidentOpened)
    if said.began is not None and is_time(said.began):
        by_hand = said.source == events.BY_HAND
        message = "the trouble began" if by_hand else "the alert began to fire"
        basis = SAID if by_hand else FACT
        yield EventText(
            message, BEGAN, basis, said.by if by_hand else "", time=said.began, clock=said.clock or UNNAMED_CLOCK
        )
    how = "an alert" if said.source == events.BY_ALERT else "hand"
    of = f" (of {_some(said.targets)})" if said.targets else ""
    yield EventText(f"incident opened by {how}: {said.title}{of}", by=said.by)


def _alerted(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.AlertsReceived)
    parts = []
    for status in (events.FIRING, events.RESOLVED):
        names = [alert.name for alert in said.alerts if alert.status == status]
        parts += [f"{len(names)} {status}: {_some(names)}"] if names else []
    parts += [f"{said.truncated} more were left out by the sender"] if said.truncated else []
    cut = truncation_note(said.alerts)
    parts += [cut] if cut else []
    firing = any(alert.status == events.FIRING for alert in said.alerts)
    severities = {alert.labels.get("severity", "") for alert in said.alerts if alert.status == events.FIRING}
    level = next((one for one in (CRITICAL, WARNING) if one in severities), "")
    what = "alert" if firing else "alert over"
    yield EventText(f"{what}: {'; '.join(parts) or 'nothing in it'}", by=said.receiver, level=level)


def truncation_note(alerts: Iterable[events.Alert]) -> str:
    """What of the alerts was too much to be kept: `cut to fit: LatencyHigh (8 labels left out)`; empty: nothing."""
    told = [f"{clean(one.name or one.fingerprint, _NAME)} ({clean(one.cut, 100)})" for one in alerts if one.cut]
    return f"cut to fit: {_some(told)}" if told else ""


def _confirmed(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.AlertConfirmed)
    yield EventText(f"{_CONFIRMED.get(said.status, said.status)}: {said.message}")


def _diagnosed(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.DiagnosisRecord)
    kept = tuple(place for place in (said.bundle, said.document) if place)
    if said.since is not None:
        yield EventText("latency rose, and has stayed high", SINCE, INFERENCE, time=said.since, clock=EVIDENCE)
    verdict = said.message if said.message.startswith(said.level) else f"{said.level}: {said.message}"
    yield EventText(f"looked at {said.target}: {verdict}", evidence=kept, level=said.level)
    named = [cause for cause in said.causes if cause.named]
    for number, cause in enumerate(named, 1):
        part = CAUSE if number == 1 else f"{CAUSE}-{number}"
        yield EventText(cause_sentence(cause), part, INFERENCE, evidence=kept)
    if not named:
        yield EventText(_unnamed(said), CAUSE, INFERENCE, evidence=kept)


def _unnamed(said: events.DiagnosisRecord) -> str:
    """What a diagnosis answers that names nothing."""
    if said.answer == "one-of" and said.causes:
        return "one of: " + ", ".join(f"{cause.id} ({percent(cause.probability)})" for cause in said.causes[:_MOST])
    return "no cause found" if said.answer == "none" else "no cause of the catalogue explains what was seen"


def cause_sentence(cause: events.CauseRecord) -> str:
    """`cause: Long requests run alone (app.batching.long-alone, 94 %) on replica/0, because …; against it: …`."""
    on = f" on {_some(cause.subjects)}" if cause.subjects else ""
    because = f", because {'; '.join(cause.because[:_MOST])}" if cause.because else ""
    against = f"; against it: {'; '.join(cause.against[:_MOST])}" if cause.against else ""
    return f"cause: {cause.title} ({cause.id}, {percent(cause.probability)}){on}{because}{against}"


def _planned(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.PlanRecord)
    yield EventText(f"plan made, nothing changed: {said.title} ({said.playbook}) on {said.target}, risk {said.risk}")


def _joined(entry: JournalEntry) -> Iterator[EventText]:
    yield EventText(f"run {decode_body(entry, events.RunJoined).joined} is for this incident")


def _noted(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.NoteAdded)
    yield EventText(said.text, basis=SAID, by=said.by)


def _marked(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.StageMarked)
    yield EventText(f"stage {said.stage} is met" + (f": {said.text}" if said.text else ""), basis=SAID, by=said.by)


def _notifying(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.NotificationStarted)
    yield EventText(f"telling {said.to}: {said.what}")


def _notified(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.NotificationSent)
    why = f" ({said.why})" if said.why else ""
    if said.sent:
        yield EventText(f"told {said.to}: {said.what}{why}")
    else:
        yield EventText(f"could NOT tell {said.to}: {said.what}{why}", level=WARNING)


def _closed(entry: JournalEntry) -> Iterator[EventText]:
    said = decode_body(entry, events.IncidentClosed)
    yield EventText(f"incident closed: {said.outcome}" + (f": {said.message}" if said.message else ""), by=said.by)


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


LONGEST = 1000  # characters of what a moment says
_SAME = 1.0  # seconds between two diagnoses' beginnings that are one
_WITH_VALUES = ("change.made", "undo.made")
_LEVELS = {"undo.failed": CRITICAL, "verify.failed": WARNING, "rollback.begun": WARNING, "run.refused": WARNING}
_STANDS = {
    slo_samples.OVER: "over the SLO",
    slo_samples.WITHIN: "within the SLO",
    slo_samples.UNJUDGED: "not to be judged",
}


def timeline_events(
    entries: Iterable[JournalEntry], count: ElapsedTimes, runs: Mapping[str, RunState]
) -> tuple[TimelineEvent, ...]:
    """Every moment, in the order of the journal; what another clock told stands where its time falls.

    The journal's own order holds even where somebody has set the clock.
    """
    listed: list[tuple[float, int, int, TimelineEvent]] = []
    reached = -math.inf
    for place, told in enumerate(_told(entries, count, runs)):
        own = told.clock == OWN or told.seconds is None
        if told.seconds is not None and own:
            reached = max(reached, told.seconds)
        listed.append((reached if own or told.seconds is None else told.seconds, own, place, told))
    return tuple(told for *_, told in sorted(listed, key=lambda one: one[:3]))


def _told(
    entries: Iterable[JournalEntry], count: ElapsedTimes, runs: Mapping[str, RunState]
) -> Iterator[TimelineEvent]:
    stood = ""
    begun: list[float] = []
    for entry in entries:
        if entry.kind == events.SAMPLED:
            seen = slo_samples.read_sample(entry, count)
            if seen is None:
                yield _moment(entry, _unreadable(entry), count)
                continue
            now = slo_samples.slo_state(seen)
            if now != stood:
                yield _moment(entry, _stands(seen, now), count)
            stood = now
            continue
        for piece in _pieces(entry, runs):
            if piece.part == SINCE and piece.time is not None:
                if any(abs(piece.time - other) < _SAME for other in begun):
                    continue  # every later look tells it again
                begun.append(piece.time)
            yield _moment(entry, piece, count)


def _stands(seen: SloSample, now: str) -> EventText:
    """A change of how the service stands to its SLO; all else that was sampled is in the series."""
    p99 = slo_samples.p99_of(seen)
    shown = f": P99 {show(slo_samples.P99, p99)}" if p99 is not None else ""
    slo = f", the SLO is {show(slo_samples.P99, seen.slo_p99)}" if seen.slo_p99 is not None else ", no SLO is known"
    level = CRITICAL if now == slo_samples.OVER else ""
    return EventText(f"the service is {_STANDS[now]}{shown}{slo}", SLO, level=level)


def _pieces(entry: JournalEntry, runs: Mapping[str, RunState]) -> tuple[EventText, ...]:
    """What an entry says; one that another version wrote otherwise says so, and hides no other."""
    try:
        found = event_texts(entry)
        return _of_run(entry, runs.get(entry.run)) if found is None else found
    except (*UNDECODABLE, KeyError, IndexError, TypeError, ValueError):
        return (_unreadable(entry),)


def _unreadable(entry: JournalEntry) -> EventText:
    return EventText(f"{entry.kind}: this version cannot read what it says", level=WARNING)


def _of_run(entry: JournalEntry, run: RunState | None) -> tuple[EventText, ...]:
    """What an entry of a run says, with its playbook before it."""
    plan = run.plan if run else None
    name = f"{plan.playbook}: " if plan else ""
    message, level = line_of(entry, plan), _LEVELS.get(entry.kind, "")
    evidence: tuple[str, ...] = ()
    if entry.kind == "evidence.kept":
        path = msgspec.json.decode(entry.body)["path"]
        evidence = ("/".join(PurePosixPath(path).parts[-3:]),)  # in the state folder
        message = "what was seen before the change is kept"
    if entry.kind in _WITH_VALUES and run is not None:
        message += _values(run, msgspec.json.decode(entry.body, type=Touched), back=entry.kind == "undo.made")
    if entry.kind == "run.closed":
        closed = msgspec.json.decode(entry.body, type=Closed)
        message += f" ({closed.reason})" if closed.reason and closed.reason != closed.outcome else ""
        level = CRITICAL if closed.outcome is Outcome.INCOMPLETE else ""
    own = EventText(f"{name}{message}", evidence=evidence, level=level)
    if entry.kind != "run.opened" or plan is None or plan.because is None:
        return (own,)
    why = f"{plan.because.cause}, {percent(plan.because.probability)} by diagnosis {plan.because.run_id}"
    return own, EventText(f"{name}it is to mend {why}", BECAUSE, INFERENCE)


def _values(run: RunState, touched: Touched, *, back: bool) -> str:
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
        at, seconds, measured = rfc3339(piece.time), count.at(piece.time), WALL
    elif piece.time is not None:
        clock = OWN  # what it said was no time: it was heard of now
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
