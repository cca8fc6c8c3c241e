"""What the entries of an incident say, in words: each as pieces, facts apart from what is inferred."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from latdoctor.incident import events
from latdoctor.incident.document import FACT, INFERENCE, OWN, SAID
from latdoctor.incident.state import body
from latdoctor.incident.stopwatch import NOT_TOLD, is_time
from latdoctor.journal.entry import Entry
from latdoctor.text import clean
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
class Piece:
    """What an entry tells; `time` (unix seconds) where it was by another clock, which `clock` names."""

    says: str
    part: str = ""
    basis: str = FACT
    by: str = ""
    evidence: tuple[str, ...] = ()
    level: str = ""
    time: float | None = None
    clock: str = OWN


def pieces(entry: Entry) -> tuple[Piece, ...] | None:
    """What an entry of the incident itself says; None for a kind that is not known here.

    Raises msgspec.ValidationError.
    """
    told = _WORDS.get(entry.kind)
    return tuple(told(entry)) if told else None


def _opened(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Opened)
    if said.began is not None and is_time(said.began):
        by_hand = said.source == events.BY_HAND
        says = "the trouble began" if by_hand else "the alert began to fire"
        basis = SAID if by_hand else FACT
        yield Piece(says, BEGAN, basis, said.by if by_hand else "", time=said.began, clock=said.clock or NOT_TOLD)
    how = "an alert" if said.source == events.BY_ALERT else "hand"
    of = f" (of {_some(said.targets)})" if said.targets else ""
    yield Piece(f"incident opened by {how}: {said.title}{of}", by=said.by)


def _alerted(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Alerted)
    parts = []
    for status in (events.FIRING, events.RESOLVED):
        names = [alert.name for alert in said.alerts if alert.status == status]
        parts += [f"{len(names)} {status}: {_some(names)}"] if names else []
    parts += [f"{said.truncated} more were left out by the sender"] if said.truncated else []
    cut = cut_in_words(said.alerts)
    parts += [cut] if cut else []
    firing = any(alert.status == events.FIRING for alert in said.alerts)
    severities = {alert.labels.get("severity", "") for alert in said.alerts if alert.status == events.FIRING}
    level = next((one for one in (CRITICAL, WARNING) if one in severities), "")
    what = "alert" if firing else "alert over"
    yield Piece(f"{what}: {'; '.join(parts) or 'nothing in it'}", by=said.receiver, level=level)


def cut_in_words(alerts: Iterable[events.Alert]) -> str:
    """What of the alerts was too much to be kept: `cut to fit: LatencyHigh (8 labels left out)`; empty: nothing."""
    told = [f"{clean(one.name or one.fingerprint, _NAME)} ({clean(one.cut, 100)})" for one in alerts if one.cut]
    return f"cut to fit: {_some(told)}" if told else ""


def _confirmed(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Confirmed)
    yield Piece(f"{_CONFIRMED.get(said.status, said.status)}: {said.says}")


def _diagnosed(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Diagnosed)
    kept = tuple(place for place in (said.bundle, said.document) if place)
    if said.since is not None:
        yield Piece("latency rose, and has stayed high", SINCE, INFERENCE, time=said.since, clock=EVIDENCE)
    verdict = said.says if said.says.startswith(said.level) else f"{said.level}: {said.says}"
    yield Piece(f"looked at {said.target}: {verdict}", evidence=kept, level=said.level)
    named = [cause for cause in said.causes if cause.named]
    for number, cause in enumerate(named, 1):
        part = CAUSE if number == 1 else f"{CAUSE}-{number}"
        yield Piece(named_in_words(cause), part, INFERENCE, evidence=kept)
    if not named:
        yield Piece(_unnamed(said), CAUSE, INFERENCE, evidence=kept)


def _unnamed(said: events.Diagnosed) -> str:
    """What a diagnosis answers that names nothing."""
    if said.answer == "one-of" and said.causes:
        return "one of: " + ", ".join(f"{cause.id} ({percent(cause.probability)})" for cause in said.causes[:_MOST])
    return "no cause found" if said.answer == "none" else "no cause of the catalogue explains what was seen"


def named_in_words(cause: events.Named) -> str:
    """`cause: Long requests run alone (app.batching.long-alone, 94 %) on replica/0, because …; against it: …`."""
    on = f" on {_some(cause.subjects)}" if cause.subjects else ""
    because = f", because {'; '.join(cause.because[:_MOST])}" if cause.because else ""
    against = f"; against it: {'; '.join(cause.against[:_MOST])}" if cause.against else ""
    return f"cause: {cause.title} ({cause.id}, {percent(cause.probability)}){on}{because}{against}"


def _planned(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Planned)
    yield Piece(f"plan made, nothing changed: {said.title} ({said.playbook}) on {said.target}, risk {said.risk}")


def _joined(entry: Entry) -> Iterator[Piece]:
    yield Piece(f"run {body(entry, events.RunJoined).joined} is for this incident")


def _noted(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Noted)
    yield Piece(said.text, basis=SAID, by=said.by)


def _marked(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Marked)
    yield Piece(f"stage {said.stage} is met" + (f": {said.text}" if said.text else ""), basis=SAID, by=said.by)


def _notifying(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Notifying)
    yield Piece(f"telling {said.to}: {said.what}")


def _notified(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Notified)
    why = f" ({said.why})" if said.why else ""
    if said.sent:
        yield Piece(f"told {said.to}: {said.what}{why}")
    else:
        yield Piece(f"could NOT tell {said.to}: {said.what}{why}", level=WARNING)


def _closed(entry: Entry) -> Iterator[Piece]:
    said = body(entry, events.Closed)
    yield Piece(f"incident closed: {said.outcome}" + (f": {said.says}" if said.says else ""), by=said.by)


def _some(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


_WORDS: Mapping[str, Callable[[Entry], Iterator[Piece]]] = {
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
