"""Opens an incident: by hand, or from a notification of an Alertmanager."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import msgspec
import typer
from msgspec import structs

from latdoctor.cli.config import TargetSettings
from latdoctor.cli.config import targets as configured
from latdoctor.cli.console import say
from latdoctor.cli.remediation_session import own_folder
from latdoctor.cli.time_args import Began, began
from latdoctor.errors import DefinitionError, OperationError, UsageError
from latdoctor.http.address import masked
from latdoctor.incident import events, recorder
from latdoctor.incident.alert_intake import About, Intake
from latdoctor.incident.alertmanager import alerted
from latdoctor.incident.elapsed import GIVEN
from latdoctor.incident.lookup import chosen, inherited, option
from latdoctor.incident.next_step import about, source
from latdoctor.incident.open import Opening, keys, opened
from latdoctor.incident.recorder import harmless, noted
from latdoctor.incident.sop import loader
from latdoctor.incident.sop.loader import followed
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, body
from latdoctor.incident.status import Standing, standing, unsettled
from latdoctor.incident.timeline_entries import cut_in_words
from latdoctor.journal import state_dir
from latdoctor.journal.entry import now
from latdoctor.journal.store import Journal
from latdoctor.remediation.run_history import RunState
from latdoctor.resources import folder
from latdoctor.sanitize import TITLE, clean, fitted

MOST = 1 << 20  # bytes of a note from stdin
_NAMES = 4  # alerts that still fire and are named


def standing_of(asked: str, *, only_open: bool) -> Standing:
    """How an incident stands now; where its SOP cannot be read, what is known without it. Raises UsageError,
    OperationError.
    """
    place = state_dir.folder()
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
    place = state_dir.folder()
    meant = _meant(place, asked, only_open=only_open)
    return meant, followed(place, meant.incident), place


def standing_now(sop: Sop | None, meant: Meant, place: Path, *, unread: str = "") -> Standing:
    """`unread`: why there is no `sop`. Raises OperationError for an entry that another version wrote otherwise."""
    with recorder.readable(Journal.reading(place / state_dir.JOURNAL)):
        found = standing(sop, meant.incident, now(), place, unread, meant.others)
    return structs.replace(found, next=about(found.next, meant.option)) if found.open else found


def _meant(place: Path, asked: str, *, only_open: bool) -> Meant:
    journal = Journal.reading(place / state_dir.JOURNAL)
    known = recorder.known(journal)
    incident = chosen(known, asked, only_open=only_open)
    with recorder.readable(journal):
        return Meant(incident, inherited(incident, journal.entries()), option(known, incident.id))


def note(text: str | None, stage: str, by: str, asked: str) -> None:
    said = _said(text, required=not stage)
    journal, meant = _open(asked)
    incident = meant.incident
    step = f"Next: latdoctor sop status{meant.option}"
    if stage:
        recorder.marked(journal, incident, followed(state_dir.folder(), incident), stage, said, by)
        typer.echo(f"{incident.id}: {stage} is marked as met, by hand. {step}")
        return
    recorder.noted(journal, incident, said, by)
    typer.echo(f"noted in {incident.id}. {step}")


def close(outcome: str, text: str, by: str, asked: str) -> None:
    journal, meant = _open(asked)
    incident = meant.incident
    recorder.closed(journal, incident, outcome, text, by)
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
        with recorder.readable(journal):
            return unsettled(incident, inherited(incident, journal.entries()))
    except OperationError as error:
        return (f"whether a change stands that nobody has verified cannot be told: {clean(str(error), 400)}",)


def _open(asked: str) -> tuple[Journal, Meant]:
    """The journal, for writing, and the incident that is meant. Raises UsageError where there is none."""
    place = state_dir.folder()
    meant = _meant(place, asked, only_open=True)
    return Journal.opened(place / state_dir.JOURNAL), meant


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


_LONGEST_TITLE = 300  # characters


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked of `sop start`."""

    alert: Path | None = None
    title: str = ""
    targets: tuple[str, ...] = ()
    began: str = ""
    by: str = ""
    sop: str = ""
    sops: tuple[Path, ...] = ()


def begin(wanted: Wanted, *, as_json: bool) -> None:
    """Opens it and says so."""
    procedure = loader.find(procedures(wanted.sops), wanted.sop or loader.USUAL)
    told = began(wanted.began, time.time()) if wanted.began else None
    about = _about(wanted, procedure)
    if wanted.alert is None:
        opening = _by_hand(wanted, about, procedure, told)
    else:
        opening = _by_alert(wanted.alert, wanted, about)
    known = _incidents()
    found = chosen(known, opening.id)
    kept_title = not opening.new and _noted(wanted, found)
    if as_json:
        typer.echo(msgspec.json.encode({"schema_version": "1", "incident": opening.id, "new": opening.new}).decode())
    elif opening.new:
        typer.echo(f"{opening.id} is open, by the SOP {procedure.id} ({procedure.title}).")
        if told:
            typer.echo(told.message)
        which = option(known, opening.id)
        look = f"latdoctor diagnose{source(found)}{which}"
        typer.echo(f"Next: {look}, which marks its stages; latdoctor sop status{which}")
    else:
        kept = "; when it began stays as it was told then" if told else ""
        typer.echo(f"{opening.id} is open already for this: '{fitted(found.opened.title, TITLE)}'{kept}.")
        if wanted.alert is None:
            typer.echo(_another(wanted, opening.id))
        typer.echo(f"Next: latdoctor sop status --incident {opening.id}")
    if kept_title:
        say(f"what you called it is kept as a note of {opening.id}")


def _noted(wanted: Wanted, found: Incident) -> bool:
    """Whether the title is kept as a note of the incident that was open, as it says something else than that does."""
    title = harmless(wanted.title.strip(), _LONGEST_TITLE)
    notes = (body(entry, events.Noted).text for entry in found.of(events.NOTED))
    if not title or title in (found.opened.title, *notes):
        return False
    noted(Journal.opened(state_dir.folder() / state_dir.JOURNAL), found, title, wanted.by)
    return True


def _another(wanted: Wanted, incident: str) -> str:
    """How an incident of its own is opened."""
    if wanted.targets:
        return f"Another one of this target needs this one closed: latdoctor sop close --incident {incident}"
    return "If yours is another one, say what it is about: latdoctor sop start --title TEXT --target NAME"


def procedures(extra: Sequence[Path]) -> Mapping[str, Sop]:
    """The shipped SOPs, with the user's own folders beside them. Raises DefinitionError."""
    return loader.read_sops([folder("sops"), *extra]) if extra else loader.shipped()


def _by_hand(wanted: Wanted, about: About, procedure: Sop, told: Began | None) -> Opening:
    asked = events.Opened(
        title=harmless(wanted.title or procedure.title, _LONGEST_TITLE),
        targets=about.targets,
        source=events.BY_HAND,
        sop=procedure.id,
        sop_digest=procedure.digest,
        began=told.at if told else None,
        clock=GIVEN if told else "",
        by=about.by,
        hosts=about.hosts,
    )
    place = own_folder()
    return opened(Journal.opened(place / state_dir.JOURNAL), place, asked, procedure)


def _by_alert(path: Path, wanted: Wanted, about: About) -> Opening:
    """The incident of a notification, which is journaled as far as it is new. Raises UsageError where nothing of it
    fires.
    """
    if wanted.title or wanted.began:
        raise UsageError(
            "the alert itself tells its title and when it began", next_step="leave --title and --began out"
        )
    told = alerted(path)
    place = own_folder()
    taken = Intake(Journal.opened(place / state_dir.JOURNAL), place, about).take(told)
    if not taken.incident or not (taken.opened or chosen(_incidents(), taken.incident).open):
        raise UsageError("no alert of it fires, so there is nothing to open", where="--alert")
    if taken.new and (cut := cut_in_words(told.alerts)):
        say(f"{taken.incident}: {cut}")
    if taken.opened:
        _tell_what_was_before(taken.incident, told.key)
    return Opening(taken.incident, new=taken.opened)


def _tell_what_was_before(incident: str, key: str) -> None:
    """That its alerts had an incident, and that it was closed."""
    before = [one for one in _incidents() if one.id != incident and one.closed and key in keys(one)]
    if before:
        outcome = clean(before[-1].closed.outcome, 40) if before[-1].closed else ""
        say(f"the incident of these alerts, {before[-1].id}, was closed ({outcome}), so another one is opened")


def _incidents() -> tuple[Incident, ...]:
    return recorder.known(Journal.reading(state_dir.folder() / state_dir.JOURNAL))


def _about(wanted: Wanted, procedure: Sop) -> About:
    """What the incident is to be about; a target that is taken for a host is told on stderr."""
    known = _configured()
    targets = _targets(wanted.targets, known)
    hosts = tuple(one for one in targets if one not in known and ":" not in one)
    for host in hosts:
        near = get_close_matches(host, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        say(
            f"{host!r} is neither a configured target nor an address: looks at a host of that name, at any port, belong"
            f" to the incident{hint}"
        )
    return About(targets, procedure, clean(wanted.by, 80), hosts=hosts, anew=True)


def _configured() -> Mapping[str, TargetSettings]:
    """The configured targets; where they cannot be read that is told on stderr, and keeps no incident from opening."""
    try:
        return configured()
    except DefinitionError as error:
        say(masked(clean(f"no configured target is known: {error}".replace("\n", "; "), 500)))
        return {}


def _targets(names: Sequence[str], known: Mapping[str, TargetSettings]) -> tuple[str, ...]:
    """Each as it was given; a configured one with the addresses at which it is looked at and changed."""
    found: dict[str, None] = {}
    for name in names:
        if not name.strip():
            raise UsageError("--target was given without a value", next_step="write --target NAME, or leave it out")
        settings = known.get(name)
        addresses = (*settings.server, *settings.admin) if settings else ()
        found.update(dict.fromkeys(masked(clean(one, 200)) for one in (name, *addresses)))
    return tuple(found)
