"""`latdoctor report`: an incident as one HTML file, to be looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    to: Annotated[Path, typer.Option("--to", metavar="FILE", readable=False, help="The HTML file to write.")],
    incident: Annotated[
        str,
        typer.Argument(
            metavar="[INCIDENT]", help="Its id or the beginning of it (default: the open one, else the last)."
        ),
    ] = "",
) -> None:
    """Write an incident as one HTML file: charts, causes, timeline.

    The file asks for nothing over the network. Of a single diagnosis: latdoctor diagnose … --html FILE.

    Exit codes: 0 written · 1 the journal cannot be read, or the file not be written · 2 there is no such incident.
    """
    from latdoctor.cli import pages
    from latdoctor.incident.joining import chosen
    from latdoctor.incident.state import incidents
    from latdoctor.incident.timeline import timeline
    from latdoctor.journal import state
    from latdoctor.journal.store import Journal

    folder = state.folder()
    found = incidents(Journal.reading(folder / state.JOURNAL).entries())
    told = timeline(chosen(found, incident, only_open=False))
    pages.written(pages.of_incident(told, folder), to)
    typer.echo(f"The report of {told.id} stands in {to}: open it in a browser.")
