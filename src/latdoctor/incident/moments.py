"""The moments of a timeline: what each entry of the journal says, when, and by whose clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

import msgspec

from latdoctor.decoding import UNDECODABLE
from latdoctor.evidence.judging import show
from latdoctor.incident import events, samples, wording
from latdoctor.incident.document import INFERENCE, OWN, Sample, Told
from latdoctor.incident.elapsed import Count, rfc3339
from latdoctor.incident.stopwatch import WALL, is_time
from latdoctor.incident.wording import BECAUSE, CRITICAL, SINCE, SLO, WARNING, Piece
from latdoctor.journal.entry import Entry
from latdoctor.remedy.change import Value
from latdoctor.remedy.history import Closed, RunState, Touched
from latdoctor.remedy.result import Outcome
from latdoctor.remedy.telling import line_of
from latdoctor.text import clean
from latdoctor.units import percent

LONGEST = 1000  # characters of what a moment says
_SAME = 1.0  # seconds between two diagnoses' beginnings that are one
_WITH_VALUES = ("change.made", "undo.made")
_LEVELS = {"undo.failed": CRITICAL, "verify.failed": WARNING, "rollback.begun": WARNING, "run.refused": WARNING}
_STANDS = {samples.OVER: "over the SLO", samples.WITHIN: "within the SLO", samples.UNJUDGED: "not to be judged"}


def moments(entries: Iterable[Entry], count: Count, runs: Mapping[str, RunState]) -> tuple[Told, ...]:
    """Every moment, in the order of the journal; what another clock told stands where its time falls.

    The journal's own order holds even where somebody has set the clock.
    """
    listed: list[tuple[float, int, int, Told]] = []
    reached = -math.inf
    for place, told in enumerate(_told(entries, count, runs)):
        own = told.clock == OWN or told.seconds is None
        if told.seconds is not None and own:
            reached = max(reached, told.seconds)
        listed.append((reached if own or told.seconds is None else told.seconds, own, place, told))
    return tuple(told for *_, told in sorted(listed, key=lambda one: one[:3]))


def _told(entries: Iterable[Entry], count: Count, runs: Mapping[str, RunState]) -> Iterator[Told]:
    stood = ""
    begun: list[float] = []
    for entry in entries:
        if entry.kind == events.SAMPLED:
            seen = samples.sample(entry, count)
            if seen is None:
                yield _moment(entry, _unreadable(entry), count)
                continue
            now = samples.standing(seen)
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


def _stands(seen: Sample, now: str) -> Piece:
    """A change of how the service stands to its SLO; all else that was sampled is in the series."""
    p99 = samples.p99_of(seen)
    shown = f": P99 {show(samples.P99, p99)}" if p99 is not None else ""
    slo = f", the SLO is {show(samples.P99, seen.slo_p99)}" if seen.slo_p99 is not None else ", no SLO is known"
    level = CRITICAL if now == samples.OVER else ""
    return Piece(f"the service is {_STANDS[now]}{shown}{slo}", SLO, level=level)


def _pieces(entry: Entry, runs: Mapping[str, RunState]) -> tuple[Piece, ...]:
    """What an entry says; one that another version wrote otherwise says so, and hides no other."""
    try:
        found = wording.pieces(entry)
        return _of_run(entry, runs.get(entry.run)) if found is None else found
    except (*UNDECODABLE, KeyError, IndexError, TypeError, ValueError):
        return (_unreadable(entry),)


def _unreadable(entry: Entry) -> Piece:
    return Piece(f"{entry.kind}: this version cannot read what it says", level=WARNING)


def _of_run(entry: Entry, run: RunState | None) -> tuple[Piece, ...]:
    """What an entry of a run says, with its playbook before it."""
    plan = run.plan if run else None
    name = f"{plan.playbook}: " if plan else ""
    says, level = line_of(entry, plan), _LEVELS.get(entry.kind, "")
    evidence: tuple[str, ...] = ()
    if entry.kind == "evidence.kept":
        path = msgspec.json.decode(entry.body)["path"]
        evidence = ("/".join(PurePosixPath(path).parts[-3:]),)  # in the state folder
        says = "what was seen before the change is kept"
    if entry.kind in _WITH_VALUES and run is not None:
        says += _values(run, msgspec.json.decode(entry.body, type=Touched), back=entry.kind == "undo.made")
    if entry.kind == "run.closed":
        closed = msgspec.json.decode(entry.body, type=Closed)
        says += f" ({closed.reason})" if closed.reason and closed.reason != closed.outcome else ""
        level = CRITICAL if closed.outcome is Outcome.INCOMPLETE else ""
    own = Piece(f"{name}{says}", evidence=evidence, level=level)
    if entry.kind != "run.opened" or plan is None or plan.because is None:
        return (own,)
    why = f"{plan.because.cause}, {percent(plan.because.probability)} by diagnosis {plan.because.run_id}"
    return own, Piece(f"{name}it is to mend {why}", BECAUSE, INFERENCE)


def _values(run: RunState, touched: Touched, *, back: bool) -> str:
    fields = run.change(touched).fields
    shown = [
        f"{field.name} {value(field.after if back else field.before)} → {value(field.before if back else field.after)}"
        for field in fields[:4]
    ]
    more = f" and {len(fields) - 4} more" if len(fields) > 4 else ""
    return f": {', '.join(shown)}{more}" if shown else ""


def value(one: Value) -> str:
    """A configured value for people."""
    if one is None:
        return "not set"
    return clean(one if isinstance(one, str) else msgspec.json.encode(one).decode(), 60)


def _moment(entry: Entry, piece: Piece, count: Count) -> Told:
    when = count.of(entry)
    at, clock, seconds, measured = entry.at, piece.clock, when.seconds, when.by
    if piece.time is not None and is_time(piece.time):
        at, seconds, measured = rfc3339(piece.time), count.at(piece.time), WALL
    elif piece.time is not None:
        clock = OWN  # what it said was no time: it was heard of now
    return Told(
        at=at,
        clock=clean(clock, 100),
        seconds=seconds,
        measured=measured,
        kind=entry.kind,
        part=piece.part,
        says=clean(piece.says, LONGEST),
        basis=piece.basis,
        by=clean(piece.by, 100),
        run=entry.run,
        seq=entry.seq,
        digest=entry.digest,
        evidence=tuple(clean(place, 300) for place in piece.evidence),
        level=clean(piece.level, 20),
    )
