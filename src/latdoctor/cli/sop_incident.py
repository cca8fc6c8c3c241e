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

from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.config_file import targets as configured
from latdoctor.cli.config_trust import UntrustedConfigError
from latdoctor.cli.console import notice
from latdoctor.cli.time_args import IncidentStart, began
from latdoctor.errors import DefinitionError, OperationError, UsageError
from latdoctor.http.safe_address import mask_credentials
from latdoctor.incident import events, recorder
from latdoctor.incident.alert_intake import IncidentTemplate, Intake
from latdoctor.incident.alertmanager import read_notification
from latdoctor.incident.elapsed import GIVEN_BY_HAND
from latdoctor.incident.events import IncidentOutcome, OpenedBy
from latdoctor.incident.journal_entry_texts import truncation_note
from latdoctor.incident.lookup import incident_option, other_runs, select_incident
from latdoctor.incident.next_step import target_options, with_incident
from latdoctor.incident.open import Opening, group_keys, open_incident
from latdoctor.incident.recorder import add_note, without_credentials
from latdoctor.incident.sop import loader
from latdoctor.incident.sop.loader import sop_of_incident
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, decode_body
from latdoctor.incident.status import IncidentStatus, incident_status, unsettled
from latdoctor.journal import state_dir
from latdoctor.journal.entry import now
from latdoctor.journal.store import Journal
from latdoctor.remediation.run_history import RunState
from latdoctor.resources import folder
from latdoctor.sanitize import TITLE, clean, fitted

MOST = 1 << 20  # bytes of a note from stdin
_NAMES = 4  # alerts that still fire and are named


def status_of(requested: str, *, only_open: bool) -> IncidentStatus:
    """Current status of an incident; without stages where its SOP cannot be read. Raises UsageError, OperationError."""
    place = state_dir.folder()
    meant = _meant(place, requested, only_open=only_open)
    try:
        sop = sop_of_incident(place, meant.incident)
    except OperationError as error:
        return current_status(None, meant, place, unread=clean(str(error), 400))
    return current_status(sop, meant, place)


@dataclass(frozen=True, slots=True)
class SelectedIncident:
    """An incident, other runs on its target, and the option that names it; empty where it is the only open one."""

    incident: Incident
    others: tuple[RunState, ...]
    option: str


def opened_as(requested: str, *, only_open: bool) -> tuple[SelectedIncident, Sop, Path]:
    """The selected incident, its SOP, and the state folder. Raises UsageError, OperationError."""
    place = state_dir.folder()
    meant = _meant(place, requested, only_open=only_open)
    return meant, sop_of_incident(place, meant.incident), place


def current_status(sop: Sop | None, meant: SelectedIncident, place: Path, *, unread: str = "") -> IncidentStatus:
    """`unread`: why there is no `sop`. Raises OperationError for an entry that another version wrote otherwise."""
    with recorder.unreadable_as_error(Journal.reading(place / state_dir.JOURNAL)):
        found = incident_status(sop, meant.incident, now(), place, unread, meant.others)
    return structs.replace(found, next=with_incident(found.next, meant.option)) if found.open else found


def _meant(place: Path, requested: str, *, only_open: bool) -> SelectedIncident:
    journal = Journal.reading(place / state_dir.JOURNAL)
    known = recorder.all_incidents(journal)
    incident = select_incident(known, requested, only_open=only_open)
    with recorder.unreadable_as_error(journal):
        return SelectedIncident(incident, other_runs(incident, journal.entries()), incident_option(known, incident.id))


def note(text: str | None, stage: str, by: str, requested: str) -> None:
    message = _note_text(text, required=not stage)
    journal, meant = _open(requested)
    incident = meant.incident
    step = f"Next: latdoctor sop status{meant.option}"
    if stage:
        recorder.mark_stage(journal, incident, sop_of_incident(state_dir.folder(), incident), stage, message, by)
        typer.echo(f"{incident.id}: {stage} is marked as met, by hand. {step}")
        return
    recorder.add_note(journal, incident, message, by)
    typer.echo(f"noted in {incident.id}. {step}")


def close(outcome: IncidentOutcome, text: str, by: str, requested: str) -> None:
    journal, meant = _open(requested)
    incident = meant.incident
    recorder.close_incident(journal, incident, outcome, text, by)
    firing = incident.still_firing
    if firing:
        more = f" and {len(firing) - _NAMES} more" if len(firing) > _NAMES else ""
        names = ", ".join(clean(name, 80) for name in firing[:_NAMES])
        notice(f"still firing: {names}{more}. A repetition opens no other incident; latdoctor sop start does")
    for line in _unsettled(journal, incident):
        notice(line)
    typer.echo(f"{incident.id} is closed: {outcome}. Next: latdoctor sop export --incident {incident.id}")


def _unsettled(journal: Journal, incident: Incident) -> tuple[str, ...]:
    """Unsettled changes at the closing; an unreadable journal does not prevent it."""
    try:
        with recorder.unreadable_as_error(journal):
            return unsettled(incident, other_runs(incident, journal.entries()))
    except OperationError as error:
        return (f"unverified changes are unknown: {clean(str(error), 400)}",)


def _open(requested: str) -> tuple[Journal, SelectedIncident]:
    """The journal, for writing, and the selected incident. Raises UsageError where there is none."""
    place = state_dir.folder()
    meant = _meant(place, requested, only_open=True)
    return Journal.opened(place / state_dir.JOURNAL), meant


def _note_text(text: str | None, *, required: bool) -> str:
    """Text of the note; from stdin for `-`, or where none is given and stdin is a pipe."""
    if text is not None and text != "-":
        return text
    if text is None and (sys.stdin is None or sys.stdin.isatty() or not required):
        return ""
    raw = sys.stdin.buffer.read(MOST + 1)
    if len(raw) > MOST:
        raise UsageError(f"the note has more than {MOST} bytes", where="stdin", next_step="save it as a file")
    return raw.decode("utf-8", "replace")


_LONGEST_TITLE = 300  # characters


@dataclass(frozen=True, slots=True)
class StartRequest:
    """Options of `sop start`."""

    alert: Path | None = None
    title: str = ""
    targets: tuple[str, ...] = ()
    began: str = ""
    by: str = ""
    sop: str = ""
    sops: tuple[Path, ...] = ()


def begin(request: StartRequest, *, as_json: bool) -> None:
    """Open the incident and print it."""
    procedure = loader.find(procedures(request.sops), request.sop or loader.USUAL)
    started = began(request.began, time.time()) if request.began else None
    with_incident = _about(request, procedure)
    if request.alert is None:
        opening = _by_hand(request, with_incident, procedure, started)
    else:
        opening = _by_alert(request.alert, request, with_incident)
    known = _incidents()
    found = select_incident(known, opening.id)
    noted_title = not opening.new and _noted(request, found)
    if as_json:
        typer.echo(msgspec.json.encode({"schema_version": "1", "incident": opening.id, "new": opening.new}).decode())
    elif opening.new:
        typer.echo(f"{opening.id} is open, by the SOP {procedure.id} ({procedure.title}).")
        if started:
            typer.echo(started.message)
        which = incident_option(known, opening.id)
        diagnose = f"latdoctor diagnose{target_options(found)}{which}"
        typer.echo(f"Next: {diagnose}, which meets its stages; latdoctor sop status{which}")
    else:
        unchanged = "; its start time stays unchanged" if started else ""
        typer.echo(f"{opening.id} is open already for this: '{fitted(found.opened.title, TITLE)}'{unchanged}.")
        if request.alert is None:
            typer.echo(_another(request, opening.id))
        typer.echo(f"Next: latdoctor sop status --incident {opening.id}")
    if noted_title:
        notice(f"your title is stored as a note of {opening.id}")


def _noted(request: StartRequest, found: Incident) -> bool:
    """Store a differing title as a note of the incident that was open; return whether it was."""
    title = without_credentials(request.title.strip(), _LONGEST_TITLE)
    notes = (decode_body(entry, events.NoteAdded).text for entry in found.of(events.NOTED))
    if not title or title in (found.opened.title, *notes):
        return False
    add_note(Journal.opened(state_dir.folder() / state_dir.JOURNAL), found, title, request.by)
    return True


def _another(request: StartRequest, incident: str) -> str:
    """How an incident of its own is opened."""
    if request.targets:
        return f"Another one of this target needs this one closed: latdoctor sop close --incident {incident}"
    return "For another incident, describe it: latdoctor sop start --title TEXT --target NAME"


def procedures(extra: Sequence[Path]) -> Mapping[str, Sop]:
    """The shipped SOPs, with the user's own folders beside them. Raises DefinitionError."""
    return loader.read_sops([folder("sops"), *extra]) if extra else loader.shipped()


def _by_hand(
    request: StartRequest, with_incident: IncidentTemplate, procedure: Sop, started: IncidentStart | None
) -> Opening:
    requested = events.IncidentOpened(
        title=without_credentials(request.title or procedure.title, _LONGEST_TITLE),
        targets=with_incident.targets,
        source=OpenedBy.HAND,
        sop=procedure.id,
        sop_digest=procedure.digest,
        began=started.at if started else None,
        clock=GIVEN_BY_HAND if started else "",
        by=with_incident.by,
        hosts=with_incident.hosts,
    )
    place = state_dir.private_folder()
    return open_incident(Journal.opened(place / state_dir.JOURNAL), place, requested, procedure)


def _by_alert(path: Path, request: StartRequest, with_incident: IncidentTemplate) -> Opening:
    """Incident of a notification, whose changes are journaled. Raises UsageError where no alert is firing."""
    if request.title or request.began:
        raise UsageError("the alert has its own title and start time", next_step="leave --title and --began out")
    started = read_notification(path)
    place = state_dir.private_folder()
    taken = Intake(Journal.opened(place / state_dir.JOURNAL), place, with_incident).take(started)
    if not taken.incident or not (taken.opened or select_incident(_incidents(), taken.incident).open):
        raise UsageError("no alert of it fires, so there is nothing to open", where="--alert")
    if taken.new and (cut := truncation_note(started.alerts)):
        notice(f"{taken.incident}: {cut}")
    if taken.opened:
        _log_previous_incident(taken.incident, started.key)
    return Opening(taken.incident, new=taken.opened)


def _log_previous_incident(incident: str, key: str) -> None:
    """That its alerts had an incident, and that it was closed."""
    before = [one for one in _incidents() if one.id != incident and one.closed and key in group_keys(one)]
    if before:
        outcome = clean(before[-1].closed.outcome, 40) if before[-1].closed else ""
        notice(f"the incident of these alerts, {before[-1].id}, was closed ({outcome}), so another one is opened")


def _incidents() -> tuple[Incident, ...]:
    return recorder.all_incidents(Journal.reading(state_dir.folder() / state_dir.JOURNAL))


def _about(request: StartRequest, procedure: Sop) -> IncidentTemplate:
    """Properties of the incident; a target that is used as a bare host is reported on stderr."""
    known = _configured()
    targets = _targets(request.targets, known)
    hosts = tuple(one for one in targets if one not in known and ":" not in one)
    for host in hosts:
        similar = get_close_matches(host, known, n=1)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        notice(
            f"{host!r} is neither a configured target nor an address: diagnoses of a host of that name, at any port,"
            f" join the incident{hint}"
        )
    return IncidentTemplate(targets, procedure, clean(request.by, 80), hosts=hosts, anew=True)


def _configured() -> Mapping[str, TargetSettings]:
    """Configured targets; none, with a line on stderr, where they cannot be read."""
    try:
        return configured()
    except (DefinitionError, UntrustedConfigError) as error:
        notice(mask_credentials(clean(f"no configured target is known: {error}".replace("\n", "; "), 500)))
        return {}


def _targets(names: Sequence[str], known: Mapping[str, TargetSettings]) -> tuple[str, ...]:
    """The given names; a configured one with its server and admin addresses."""
    found: dict[str, None] = {}
    for name in names:
        if not name.strip():
            raise UsageError("--target needs a value", next_step="write --target NAME, or leave it out")
        settings = known.get(name)
        addresses = (*settings.server, *settings.admin) if settings else ()
        found.update(dict.fromkeys(mask_credentials(clean(one, 200)) for one in (name, *addresses)))
    return tuple(found)
