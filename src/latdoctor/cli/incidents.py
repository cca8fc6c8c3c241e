"""`latdoctor incidents`: what happened before, and what helped then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.remediate import Form, OutputOption

if TYPE_CHECKING:
    from latdoctor.diagnosis.result import Diagnosis
    from latdoctor.incident.similar import Features, Past
    from latdoctor.incident.state import Incident

app = typer.Typer(
    help="Past incidents: what they were, and what worked.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
IncidentOption = Annotated[
    str | None, typer.Option("--incident", metavar="ID", help="Which incident (default: the open one, or the last).")
]


@app.command("list")
def list_(output: OutputOption = Form.TEXT) -> None:
    """Every incident, the newest first.

    With the means of how fast they were dealt with.

    Exit codes: 0 listed · 1 the journal cannot be read.
    """
    from latdoctor.cli import remembered
    from latdoctor.cli.screen import result_console
    from latdoctor.incident.similar import library
    from latdoctor.incident.timeline import timeline
    from latdoctor.report import incidents as shown

    found = remembered.incidents()
    with remembered.readable():
        measures = [one for incident in found for one in timeline(incident).measures]
        shown.listing(library(found), measures, result_console(), as_json=output is Form.JSON)


@app.command("show")
def show(
    incident: Annotated[str | None, typer.Argument(metavar="[ID]", help="Default: the open one, or the last.")] = None,
    output: OutputOption = Form.TEXT,
) -> None:
    """One incident: its causes, what worked, how fast it went.

    Exit codes: 0 shown · 1 the journal cannot be read · 2 there is no such incident.
    """
    from latdoctor.cli import remembered
    from latdoctor.cli.screen import result_console
    from latdoctor.incident.joining import chosen
    from latdoctor.incident.similar import past, similar
    from latdoctor.incident.timeline import timeline
    from latdoctor.report import incidents as shown

    found = remembered.incidents()
    one = chosen(found, incident or "", only_open=False)
    with remembered.readable():
        told = past(one)
        alike = similar(told.features, _others(found, one.id))
        shown.showing(told, timeline(one), alike, result_console(), as_json=output is Form.JSON)


@app.command("similar")
def similar_(
    diagnosis: Annotated[
        Path | None,
        typer.Argument(metavar="[DIAGNOSIS.json]", readable=False, help="A diagnosis (diagnose -o json) to compare."),
    ] = None,
    incident: IncidentOption = None,
    output: OutputOption = Form.TEXT,
) -> None:
    """What was like this incident, and what helped then.

    Or what was like a diagnosis that belongs to none.

    Compared are named causes (half of it), specific findings, kinds of subjects, and tiers.

    Exit codes: 0 told, also that nothing was like it · 1 the journal cannot be read · 2 there is no such incident, or
    the file is no diagnosis.
    """
    from latdoctor.cli import remembered
    from latdoctor.cli.screen import result_console
    from latdoctor.errors import UsageError
    from latdoctor.incident.joining import chosen
    from latdoctor.incident.similar import of_diagnosis, past, similar
    from latdoctor.report import incidents as shown

    if diagnosis is not None and incident:
        raise UsageError("a diagnosis and an incident were both given", next_step="give one of them")
    found = remembered.incidents()
    wanted: Features
    own = ""
    if diagnosis is not None:
        wanted = of_diagnosis(_diagnosis(diagnosis))
    else:
        one = chosen(found, incident or "", only_open=False)
        with remembered.readable():
            wanted, own = past(one).features, one.id
    with remembered.readable():
        shown.likes(similar(wanted, _others(found, own)), result_console(), as_json=output is Form.JSON)


def _others(found: tuple[Incident, ...], own: str) -> tuple[Past, ...]:
    from latdoctor.incident.similar import library

    return library(incident for incident in found if incident.id != own)


def _diagnosis(path: Path) -> Diagnosis:
    """Raises UsageError."""
    from latdoctor.cli.plan_files import bounded
    from latdoctor.decoding import UNDECODABLE
    from latdoctor.errors import UsageError
    from latdoctor.report.document import parse

    try:
        return parse(bounded(path))
    except UNDECODABLE as error:
        raise UsageError(
            f"it is no diagnosis: {error}", where=str(path), next_step="latdoctor diagnose … -o json > FILE"
        ) from error
