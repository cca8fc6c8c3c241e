"""`latdoctor sop`: the procedure of an incident and its clock."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.options import OutputFormat, OutputOption
from latdoctor.incident.events import IncidentOutcome

if TYPE_CHECKING:
    from latdoctor.incident.status import IncidentStatus

app = typer.Typer(help="The procedure of an incident, and its clock.", no_args_is_help=True, rich_markup_mode=None)


class ExportFormat(StrEnum):
    """The form of a page."""

    MARKDOWN = "markdown"
    TEXT = "text"
    JSON = "json"


Incident = Annotated[
    str | None, typer.Option("--incident", metavar="ID", help="Which incident (default: the open one).")
]
LastIncident = Annotated[
    str | None, typer.Option("--incident", metavar="ID", help="Which incident (default: the open one, or the last).")
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Your name.")]
Sops = Annotated[
    list[Path] | None,
    typer.Option("--sops", metavar="FOLDER", readable=False, help="A folder of your own SOPs beside the shipped ones."),
]


@app.command()
def start(
    alert: Annotated[
        Path | None,
        typer.Option(
            "--alert", metavar="FILE", readable=False, help="A webhook of an Alertmanager, version 4 (- for stdin)."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="What the incident is about.")] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="NAME", help="A configured target, a server's address or a host (repeatable)."
        ),
    ] = None,
    began: Annotated[
        str | None, typer.Option("--began", metavar="TIME", help="When it began: 10min (ago), 02:47 (local time).")
    ] = None,
    by: By = None,
    sop: Annotated[str | None, typer.Option("--sop", metavar="ID", help="The SOP (default slow-inference).")] = None,
    sops: Sops = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Open an incident, and start its clock.

    From then on diagnose, remediate and rollback meet its stages automatically. An open incident of the same alert or
    target is not opened twice: another --title is stored as a note. A firing whose incident was closed opens another.
    The SOP is stored in its current version.

    Exit codes: 0 it is open · 1 the journal cannot be written · 2 usage, or an invalid SOP or alert.
    """
    from latdoctor.cli.sop_incident import StartRequest, begin

    request = StartRequest(
        alert=alert,
        title=title or "",
        targets=tuple(target or ()),
        began=began or "",
        by=by or "",
        sop=sop or "",
        sops=tuple(sops or ()),
    )
    begin(request, as_json=output is OutputFormat.JSON)
    _notify()


@app.command()
def status(
    incident: LastIncident = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All stages, findings, runs and notes.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Print the status of the incident.

    The next deadline, the cause, changes in place, and the next step. The exit code is about what is due
    now: a stage that was met late is met.

    Exit codes: 0 nothing is overdue, or it is closed · 1 the journal, or its SOP, cannot be read (the rest is printed)
    · 2 there is no such incident · 3 a stage is overdue · 4 none is overdue, and one is unknown.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.report import handover as pages
    from latdoctor.report import sop as shown

    found = _status(incident)
    if verbose and output is OutputFormat.TEXT:
        typer.echo(pages.as_text(found, pages.handover(found)), nl=False)
    else:
        shown.print_status(found, result_console(), as_json=output is OutputFormat.JSON)
    raise typer.Exit(found.exit_code)


@app.command()
def watch(incident: Incident = None) -> None:
    """Show the status live.

    The time left until the next stage is due. On a terminal the whole screen, until Ctrl-C or until the incident is
    closed; in a pipe a line for each change.

    Exit codes: 0 nothing is overdue at the end, or it was closed · 1 the journal or its SOP cannot be read · 2 there is
    no such incident · 3 a stage is overdue · 4 none is overdue, and one is unknown.
    """
    from latdoctor.cli.sop_watch import watch as watched

    raise typer.Exit(watched(incident or ""))


@app.command()
def note(
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="The note; - or nothing: from stdin.")] = None,
    stage: Annotated[str | None, typer.Option("--stage", metavar="ID", help="Mark this stage as met.")] = None,
    by: By = None,
    incident: Incident = None,
) -> None:
    """Add a note, or mark a stage as met.

    Exit codes: 0 written · 1 the journal cannot be written · 2 usage.
    """
    from latdoctor.cli import sop_incident

    sop_incident.note(text, stage or "", by or "", incident or "")
    _notify()


@app.command()
def close(
    outcome: Annotated[IncidentOutcome, typer.Option("--outcome", help="How it ended.")] = IncidentOutcome.RESOLVED,
    text: Annotated[str | None, typer.Option("--text", metavar="TEXT", help="A closing remark.")] = None,
    by: By = None,
    incident: Incident = None,
) -> None:
    """Close the incident, and stop its clock.

    Firing alerts, unverified changes and a critical last diagnosis are listed, and do not prevent the closing.

    Exit codes: 0 closed · 1 the journal cannot be written · 2 there is no such incident, or it is closed.
    """
    from latdoctor.cli import sop_incident

    sop_incident.close(outcome, text or "", by or "", incident or "")
    _notify()


@app.command()
def export(
    handover: Annotated[bool, typer.Option("--handover", help="The page for the next shift instead.")] = False,
    incident: LastIncident = None,
    output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="The form of the page.")
    ] = ExportFormat.MARKDOWN,
) -> None:
    """Print the record of the SOP, or a page for the next shift.

    The page (--handover) has the status, the runs, the changes in place and their rollback, the unknowns, and the next
    step.

    Exit codes: 0 printed · 1 the journal, or its SOP, cannot be read (the rest is printed) · 2 there is no such
    incident.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.report import handover as pages
    from latdoctor.report import sop as shown

    found = _status(incident)
    if output is ExportFormat.JSON:
        shown.print_status(found, result_console(), as_json=True)
    else:
        sections = pages.handover(found) if handover else pages.record(found)
        typer.echo(pages.FORMS[output.value](found, sections), nl=False)
    if found.unread:
        raise typer.Exit(found.exit_code)


@app.command()
def lint(sops: Sops = None) -> None:
    """Check that every SOP is sound.

    Exit codes: 0 sound · 2 problems, each with its file and line.
    """
    from latdoctor.cli.sop_incident import procedures

    known = procedures(sops or [])
    for one in known.values():
        typer.echo(f"{one.id}: {one.title} ({len(one.stages)} stages)")
    typer.echo(f"{len(known)} {'SOP is' if len(known) == 1 else 'SOPs are'} sound. Next: latdoctor sop start")


def _notify() -> None:
    from latdoctor.cli.notifier import notify_now

    notify_now()


def _status(incident: str | None) -> IncidentStatus:
    from latdoctor.cli.sop_incident import status_of

    return status_of(incident or "", only_open=False)
