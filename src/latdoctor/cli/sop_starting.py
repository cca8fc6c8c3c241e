"""Opens an incident: by hand, or from a notification of an Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import msgspec
import typer

from latdoctor.cli.addresses import masked
from latdoctor.cli.beginning import Began, began
from latdoctor.cli.configuration import TargetSettings
from latdoctor.cli.configuration import targets as configured
from latdoctor.cli.mending import own_folder
from latdoctor.cli.saying import say
from latdoctor.errors import DefinitionError, UsageError
from latdoctor.incident import events, marking, sop_files
from latdoctor.incident.alert_file import alerted
from latdoctor.incident.harmless import harmless
from latdoctor.incident.intake import About, Intake
from latdoctor.incident.joining import chosen, option
from latdoctor.incident.next_step import source
from latdoctor.incident.noting import noted
from latdoctor.incident.opening import Opening, keys, opened
from latdoctor.incident.sop import Sop
from latdoctor.incident.state import Incident, body
from latdoctor.incident.stopwatch import GIVEN
from latdoctor.incident.wording import cut_in_words
from latdoctor.journal import state
from latdoctor.journal.store import Journal
from latdoctor.packaged import folder
from latdoctor.text import TITLE, clean, fitted

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
    procedure = sop_files.find(procedures(wanted.sops), wanted.sop or sop_files.USUAL)
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
            typer.echo(told.says)
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
    noted(Journal.opened(state.folder() / state.JOURNAL), found, title, wanted.by)
    return True


def _another(wanted: Wanted, incident: str) -> str:
    """How an incident of its own is opened."""
    if wanted.targets:
        return f"Another one of this target needs this one closed: latdoctor sop close --incident {incident}"
    return "If yours is another one, say what it is about: latdoctor sop start --title TEXT --target NAME"


def procedures(extra: Sequence[Path]) -> Mapping[str, Sop]:
    """The shipped SOPs, with the user's own folders beside them. Raises DefinitionError."""
    return sop_files.read([folder("sops"), *extra]) if extra else sop_files.shipped()


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
    return opened(Journal.opened(place / state.JOURNAL), place, asked, procedure)


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
    taken = Intake(Journal.opened(place / state.JOURNAL), place, about).take(told)
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
    return marking.known(Journal.reading(state.folder() / state.JOURNAL))


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
