"""Opens an incident: by hand, or from a notification of an Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import typer

from latdoctor.cli.addresses import masked
from latdoctor.cli.configuration import targets as configured
from latdoctor.cli.mending import own_folder
from latdoctor.cli.past import moment
from latdoctor.errors import UsageError
from latdoctor.incident import events, sop_files
from latdoctor.incident.alert_file import alerted
from latdoctor.incident.harmless import harmless
from latdoctor.incident.intake import About, Intake
from latdoctor.incident.opening import Opening, opened
from latdoctor.incident.sop import Sop
from latdoctor.incident.stopwatch import GIVEN
from latdoctor.journal import state
from latdoctor.journal.store import Journal
from latdoctor.packaged import folder
from latdoctor.text import clean


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
    procedure = sop_files.find(procedures(wanted.sops), wanted.sop or sop_files.USUAL)
    opening = _by_hand(wanted, procedure) if wanted.alert is None else _by_alert(wanted.alert, wanted, procedure)
    if opening is None:
        raise UsageError("no alert of it fires, so there is nothing to open", where="--alert")
    if as_json:
        typer.echo(msgspec.json.encode({"schema_version": "1", "incident": opening.id, "new": opening.new}).decode())
    elif opening.new:
        typer.echo(f"{opening.id} is open, by the SOP {procedure.id} ({procedure.title}).")
        typer.echo("Next: latdoctor sop status; latdoctor diagnose marks its stages by itself")
    else:
        typer.echo(f"{opening.id} is open already for this. Next: latdoctor sop status --incident {opening.id}")


def procedures(extra: Sequence[Path]) -> Mapping[str, Sop]:
    """The shipped SOPs, with the user's own folders beside them. Raises DefinitionError."""
    return sop_files.read([folder("sops"), *extra]) if extra else sop_files.shipped()


def _by_hand(wanted: Wanted, procedure: Sop) -> Opening:
    asked = events.Opened(
        title=harmless(wanted.title or procedure.title, 300),
        targets=_targets(wanted.targets),
        source=events.BY_HAND,
        sop=procedure.id,
        sop_digest=procedure.digest,
        began=_began(wanted.began),
        clock=GIVEN if wanted.began else "",
        by=clean(wanted.by, 80),
    )
    place = own_folder()
    return opened(Journal.opened(place / state.JOURNAL), place, asked, procedure)


def _by_alert(path: Path, wanted: Wanted, procedure: Sop) -> Opening | None:
    """The incident of a notification, which is journaled as far as it is new; None where nothing of it fires."""
    if wanted.title or wanted.began:
        raise UsageError(
            "the alert itself tells its title and when it began", next_step="leave --title and --began out"
        )
    told = alerted(path)
    place = own_folder()
    about = About(_targets(wanted.targets), procedure, clean(wanted.by, 80))
    taken = Intake(Journal.opened(place / state.JOURNAL), place, about).take(told)
    return Opening(taken.incident, new=taken.opened) if taken.incident else None


def _targets(names: Sequence[str]) -> tuple[str, ...]:
    """Each as it was given; a configured one with the addresses at which it is looked at and changed."""
    known = configured()
    found: dict[str, None] = {}
    for name in names:
        if not name.strip():
            raise UsageError("--target was given without a value", next_step="write --target NAME, or leave it out")
        settings = known.get(name)
        addresses = (*settings.server, *settings.admin) if settings else ()
        found.update(dict.fromkeys(masked(clean(one, 200)) for one in (name, *addresses)))
    return tuple(found)


def _began(text: str) -> float | None:
    if not text:
        return None
    now = time.time()
    told = moment(text, now, "--began")
    if told > now:
        raise UsageError("what has not begun yet is no incident", where="--began", next_step="give a time that is past")
    return told
