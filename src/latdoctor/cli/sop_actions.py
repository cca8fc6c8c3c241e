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
from latdoctor.http.address import mask_credentials
from latdoctor.incident import events, recorder
from latdoctor.incident.alert_intake import IncidentTemplate, Intake
from latdoctor.incident.alertmanager import read_notification
from latdoctor.incident.elapsed import GIVEN_BY_HAND
from latdoctor.incident.lookup import incident_option, other_runs, select_incident
from latdoctor.incident.next_step import target_options, with_incident
from latdoctor.incident.open import Opening, group_keys, open_incident
from latdoctor.incident.recorder import add_note, without_credentials
from latdoctor.incident.sop import loader
from latdoctor.incident.sop.loader import sop_of_incident
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, decode_body
from latdoctor.incident.status import IncidentStatus, incident_status, unsettled
from latdoctor.incident.timeline_entries import truncation_note
from latdoctor.journal import state_dir
from latdoctor.journal.entry import now
from latdoctor.journal.store import Journal
from latdoctor.remediation.run_history import RunState
from latdoctor.resources import folder
from latdoctor.sanitize import TITLE, clean, fitted

MOST = 1 << 20  # bytes of a note from stdin
_NAMES = 4  # alerts that still fire and are named


def standing_of(asked: str, *, only_open: bool) -> IncidentStatus:
    """How an incident stands now; where its SOP cannot be read, what is known without it. Raises UsageError,
    OperationError.
    """
    place = state_dir.folder()
    meant = _meant(place, asked, only_open=only_open)
    try:
        sop = sop_of_incident(place, meant.incident)
    except OperationError as error:
        return standing_now(None, meant, place, unread=clean(str(error), 400))
    return standing_now(sop, meant, place)


@dataclass(frozen=True, slots=True)
class SelectedIncident:
    """An incident, the runs on its target that are not its own, and the option that names it to a command: empty where
    it is the one that is open.
    """

    incident: Incident
    others: tuple[RunState, ...]
    option: str


def opened_as(asked: str, *, only_open: bool) -> tuple[SelectedIncident, Sop, Path]:
    """The incident that is meant, its SOP, and the state folder. Raises UsageError, OperationError."""
    place = state_dir.folder()
    meant = _meant(place, asked, only_open=only_open)
    return meant, sop_of_incident(place, meant.incident), place


def standing_now(sop: Sop | None, meant: SelectedIncident, place: Path, *, unread: str = "") -> IncidentStatus:
    """`unread`: why there is no `sop`. Raises OperationError for an entry that another version wrote otherwise."""
    with recorder.unreadable_as_error(Journal.reading(place / state_dir.JOURNAL)):
        found = incident_status(sop, meant.incident, now(), place, unread, meant.others)
    return structs.replace(found, next=with_incident(found.next, meant.option)) if found.open else found


def _meant(place: Path, asked: str, *, only_open: bool) -> SelectedIncident:
    journal = Journal.reading(place / state_dir.JOURNAL)
    known = recorder.all_incidents(journal)
    incident = select_incident(known, asked, only_open=only_open)
    with recorder.unreadable_as_error(journal):
        return SelectedIncident(incident, other_runs(incident, journal.entries()), incident_option(known, incident.id))


def note(text: str | None, stage: str, by: str, asked: str) -> None:
    said = _said(text, required=not stage)
    journal, meant = _open(asked)
    incident = meant.incident
    step = f"Next: latdoctor sop status{meant.option}"
    if stage:
        recorder.mark_stage(journal, incident, sop_of_incident(state_dir.folder(), incident), stage, said, by)
        typer.echo(f"{incident.id}: {stage} is marked as met, by hand. {step}")
        return
    recorder.add_note(journal, incident, said, by)
    typer.echo(f"noted in {incident.id}. {step}")


def close(outcome: str, text: str, by: str, asked: str) -> None:
    journal, meant = _open(asked)
    incident = meant.incident
    recorder.close_incident(journal, incident, outcome, text, by)
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
        with recorder.unreadable_as_error(journal):
            return unsettled(incident, other_runs(incident, journal.entries()))
    except OperationError as error:
        return (f"whether a change stands that nobody has verified cannot be told: {clean(str(error), 400)}",)


def _open(asked: str) -> tuple[Journal, SelectedIncident]:
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
class StartRequest:
    """What was asked of `sop start`."""

    alert: Path | None = None
    title: str = ""
    targets: tuple[str, ...] = ()
    began: str = ""
    by: str = ""
    sop: str = ""
    sops: tuple[Path, ...] = ()


def begin(wanted: StartRequest, *, as_json: bool) -> None:
    """Opens it and says so."""
    procedure = loader.find(procedures(wanted.sops), wanted.sop or loader.USUAL)
    told = began(wanted.began, time.time()) if wanted.began else None
    with_incident = _about(wanted, procedure)
    if wanted.alert is None:
        opening = _by_hand(wanted, with_incident, procedure, told)
    else:
        opening = _by_alert(wanted.alert, wanted, with_incident)
    known = _incidents()
    found = select_incident(known, opening.id)
    kept_title = not opening.new and _noted(wanted, found)
    if as_json:
        typer.echo(msgspec.json.encode({"schema_version": "1", "incident": opening.id, "new": opening.new}).decode())
    elif opening.new:
        typer.echo(f"{opening.id} is open, by the SOP {procedure.id} ({procedure.title}).")
        if told:
            typer.echo(told.message)
        which = incident_option(known, opening.id)
        look = f"latdoctor diagnose{target_options(found)}{which}"
        typer.echo(f"Next: {look}, which marks its stages; latdoctor sop status{which}")
    else:
        kept = "; when it began stays as it was told then" if told else ""
        typer.echo(f"{opening.id} is open already for this: '{fitted(found.opened.title, TITLE)}'{kept}.")
        if wanted.alert is None:
            typer.echo(_another(wanted, opening.id))
        typer.echo(f"Next: latdoctor sop status --incident {opening.id}")
    if kept_title:
        say(f"what you called it is kept as a note of {opening.id}")


def _noted(wanted: StartRequest, found: Incident) -> bool:
    """Whether the title is kept as a note of the incident that was open, as it says something else than that does."""
    title = without_credentials(wanted.title.strip(), _LONGEST_TITLE)
    notes = (decode_body(entry, events.NoteAdded).text for entry in found.of(events.NOTED))
    if not title or title in (found.opened.title, *notes):
        return False
    add_note(Journal.opened(state_dir.folder() / state_dir.JOURNAL), found, title, wanted.by)
    return True


def _another(wanted: StartRequest, incident: str) -> str:
    """How an incident of its own is opened."""
    if wanted.targets:
        return f"Another one of this target needs this one closed: latdoctor sop close --incident {incident}"
    return "If yours is another one, say what it is about: latdoctor sop start --title TEXT --target NAME"


def procedures(extra: Sequence[Path]) -> Mapping[str, Sop]:
    """The shipped SOPs, with the user's own folders beside them. Raises DefinitionError."""
    return loader.read_sops([folder("sops"), *extra]) if extra else loader.shipped()


def _by_hand(wanted: StartRequest, with_incident: IncidentTemplate, procedure: Sop, told: Began | None) -> Opening:
    asked = events.IncidentOpened(
        title=without_credentials(wanted.title or procedure.title, _LONGEST_TITLE),
        targets=with_incident.targets,
        source=events.BY_HAND,
        sop=procedure.id,
        sop_digest=procedure.digest,
        began=told.at if told else None,
        clock=GIVEN_BY_HAND if told else "",
        by=with_incident.by,
        hosts=with_incident.hosts,
    )
    place = own_folder()
    return open_incident(Journal.opened(place / state_dir.JOURNAL), place, asked, procedure)


def _by_alert(path: Path, wanted: StartRequest, with_incident: IncidentTemplate) -> Opening:
    """The incident of a notification, which is journaled as far as it is new. Raises UsageError where nothing of it
    fires.
    """
    if wanted.title or wanted.began:
        raise UsageError(
            "the alert itself tells its title and when it began", next_step="leave --title and --began out"
        )
    told = read_notification(path)
    place = own_folder()
    taken = Intake(Journal.opened(place / state_dir.JOURNAL), place, with_incident).take(told)
    if not taken.incident or not (taken.opened or select_incident(_incidents(), taken.incident).open):
        raise UsageError("no alert of it fires, so there is nothing to open", where="--alert")
    if taken.new and (cut := truncation_note(told.alerts)):
        say(f"{taken.incident}: {cut}")
    if taken.opened:
        _tell_what_was_before(taken.incident, told.key)
    return Opening(taken.incident, new=taken.opened)


def _tell_what_was_before(incident: str, key: str) -> None:
    """That its alerts had an incident, and that it was closed."""
    before = [one for one in _incidents() if one.id != incident and one.closed and key in group_keys(one)]
    if before:
        outcome = clean(before[-1].closed.outcome, 40) if before[-1].closed else ""
        say(f"the incident of these alerts, {before[-1].id}, was closed ({outcome}), so another one is opened")


def _incidents() -> tuple[Incident, ...]:
    return recorder.all_incidents(Journal.reading(state_dir.folder() / state_dir.JOURNAL))


def _about(wanted: StartRequest, procedure: Sop) -> IncidentTemplate:
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
    return IncidentTemplate(targets, procedure, clean(wanted.by, 80), hosts=hosts, anew=True)


def _configured() -> Mapping[str, TargetSettings]:
    """The configured targets; where they cannot be read that is told on stderr, and keeps no incident from opening."""
    try:
        return configured()
    except DefinitionError as error:
        say(mask_credentials(clean(f"no configured target is known: {error}".replace("\n", "; "), 500)))
        return {}


def _targets(names: Sequence[str], known: Mapping[str, TargetSettings]) -> tuple[str, ...]:
    """Each as it was given; a configured one with the addresses at which it is looked at and changed."""
    found: dict[str, None] = {}
    for name in names:
        if not name.strip():
            raise UsageError("--target was given without a value", next_step="write --target NAME, or leave it out")
        settings = known.get(name)
        addresses = (*settings.server, *settings.admin) if settings else ()
        found.update(dict.fromkeys(mask_credentials(clean(one, 200)) for one in (name, *addresses)))
    return tuple(found)
