"""Reads and writes the journal of an incident, as `latdoctor sop` asks for it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import typer
from msgspec import structs

from latdoctor.cli.saying import say
from latdoctor.errors import OperationError, UsageError
from latdoctor.incident import marking, noting
from latdoctor.incident.inherited import inherited
from latdoctor.incident.joining import chosen, option
from latdoctor.incident.next_step import about
from latdoctor.incident.sop import Sop
from latdoctor.incident.sop_files import followed
from latdoctor.incident.standing import Standing, standing
from latdoctor.incident.state import Incident
from latdoctor.incident.unsettled import unsettled
from latdoctor.journal import state
from latdoctor.journal.entry import now
from latdoctor.journal.store import Journal
from latdoctor.remedy.history import RunState
from latdoctor.text import clean

MOST = 1 << 20  # bytes of a note from stdin
_NAMES = 4  # alerts that still fire and are named


def standing_of(asked: str, *, only_open: bool) -> Standing:
    """How an incident stands now; where its SOP cannot be read, what is known without it. Raises UsageError,
    OperationError.
    """
    place = state.folder()
    meant = _meant(place, asked, only_open=only_open)
    try:
        sop = followed(place, meant.incident)
    except OperationError as error:
        return standing_now(None, meant, place, unread=clean(str(error), 400))
    return standing_now(sop, meant, place)


@dataclass(frozen=True, slots=True)
class Meant:
    """An incident, the runs on its target that are not its own, and the option that names it to a command: empty where
    it is the one that is open.
    """

    incident: Incident
    others: tuple[RunState, ...]
    option: str


def opened_as(asked: str, *, only_open: bool) -> tuple[Meant, Sop, Path]:
    """The incident that is meant, its SOP, and the state folder. Raises UsageError, OperationError."""
    place = state.folder()
    meant = _meant(place, asked, only_open=only_open)
    return meant, followed(place, meant.incident), place


def standing_now(sop: Sop | None, meant: Meant, place: Path, *, unread: str = "") -> Standing:
    """`unread`: why there is no `sop`. Raises OperationError for an entry that another version wrote otherwise."""
    with marking.readable(Journal.reading(place / state.JOURNAL)):
        found = standing(sop, meant.incident, now(), place, unread, meant.others)
    return structs.replace(found, next=about(found.next, meant.option)) if found.open else found


def _meant(place: Path, asked: str, *, only_open: bool) -> Meant:
    journal = Journal.reading(place / state.JOURNAL)
    known = marking.known(journal)
    incident = chosen(known, asked, only_open=only_open)
    with marking.readable(journal):
        return Meant(incident, inherited(incident, journal.entries()), option(known, incident.id))


def note(text: str | None, stage: str, by: str, asked: str) -> None:
    said = _said(text, required=not stage)
    journal, meant = _open(asked)
    incident = meant.incident
    step = f"Next: latdoctor sop status{meant.option}"
    if stage:
        noting.marked(journal, incident, followed(state.folder(), incident), stage, said, by)
        typer.echo(f"{incident.id}: {stage} is marked as met, by hand. {step}")
        return
    noting.noted(journal, incident, said, by)
    typer.echo(f"noted in {incident.id}. {step}")


def close(outcome: str, text: str, by: str, asked: str) -> None:
    journal, meant = _open(asked)
    incident = meant.incident
    noting.closed(journal, incident, outcome, text, by)
    firing = incident.still_firing
    if firing:
        more = f" and {len(firing) - _NAMES} more" if len(firing) > _NAMES else ""
        names = ", ".join(clean(name, 80) for name in firing[:_NAMES])
        say(
            f"as far as was heard there still fires: {names}{more}. What fires on opens no other incident by itself;"
            " latdoctor sop start does"
        )
    for line in _unsettled(journal, incident):
        say(line)
    typer.echo(f"{incident.id} is closed: {outcome}. Next: latdoctor sop export --incident {incident.id}")


def _unsettled(journal: Journal, incident: Incident) -> tuple[str, ...]:
    """What it was closed over; what cannot be told keeps nobody from closing it either."""
    try:
        with marking.readable(journal):
            return unsettled(incident, inherited(incident, journal.entries()))
    except OperationError as error:
        return (f"whether a change stands that nobody has verified cannot be told: {clean(str(error), 400)}",)


def _open(asked: str) -> tuple[Journal, Meant]:
    """The journal, for writing, and the incident that is meant. Raises UsageError where there is none."""
    place = state.folder()
    meant = _meant(place, asked, only_open=True)
    return Journal.opened(place / state.JOURNAL), meant


def _said(text: str | None, *, required: bool) -> str:
    """The note; from stdin where `-` was given, or nothing and somebody pipes one in."""
    if text is not None and text != "-":
        return text
    if text is None and (sys.stdin is None or sys.stdin.isatty() or not required):
        return ""
    raw = sys.stdin.buffer.read(MOST + 1)
    if len(raw) > MOST:
        raise UsageError(f"the note has more than {MOST} bytes", where="stdin", next_step="keep it as a file")
    return raw.decode("utf-8", "replace")
