"""`latdoctor timeline`: the timeline and post-mortem of an incident or a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latdoctor.incident.timeline_model import Timeline


_BEGUN = ("run.opened", "run.refused")  # the first entry of a run


class TimelineFormat(StrEnum):
    """The form of the document."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    CLOUDEVENTS = "cloudevents"
    HTML = "html"


def timeline(
    incident: Annotated[
        str | None,
        typer.Option("--incident", metavar="ID", help="Which incident (default: the open one, or the last)."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="A single run instead.")] = None,
    format_: Annotated[
        TimelineFormat, typer.Option("--format", help="The form of the document.")
    ] = TimelineFormat.TEXT,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", readable=False, help="Write a new file instead of stdout.")
    ] = None,
) -> None:
    """Write the timeline of an incident, and its post-mortem.

    It is built from the journal, which is only read. Parts for a human to fill in are marked TODO(human).
    An existing file is not overwritten: it may have been filled in.

    Exit codes: 0 written · 1 the journal cannot be read · 2 there is no such incident or run.
    """
    if to is not None:
        from latdoctor.output_file import must_be_new

        must_be_new(to)
    text = _rendered(_chosen(incident or "", run or ""), format_)
    if to is None:
        typer.echo(text, nl=False)
        return
    _write(text, to)
    typer.echo(f"wrote {to}", err=True)


def _chosen(incident: str, run: str) -> Timeline:
    """Raises UsageError, OperationError."""
    from latdoctor.cli import incidents as remembered
    from latdoctor.errors import UsageError
    from latdoctor.incident.lookup import select_incident
    from latdoctor.incident.timeline import of_run
    from latdoctor.incident.timeline import timeline as document

    if incident and run:
        raise UsageError("an incident and a run are exclusive", next_step="give one of them")
    if run:
        own = remembered.journal().entries(run)
        if not any(entry.kind in _BEGUN for entry in own):
            raise UsageError(f"there is no run {run!r}", next_step="latdoctor runs list")
        with remembered.readable():
            return of_run(run, own)
    one = select_incident(remembered.incidents(), incident, only_open=False)
    with remembered.readable():
        return document(one, remembered.stages(one))


def _rendered(document: Timeline, form: TimelineFormat) -> str:
    from latdoctor.report import machine_formats, timeline_cloudevents
    from latdoctor.report import timeline as reports

    match form:
        case TimelineFormat.TEXT:
            return reports.render_text(document)
        case TimelineFormat.MARKDOWN:
            return reports.render_markdown(document)
        case TimelineFormat.JSON:
            return machine_formats.render_timeline(document)
        case TimelineFormat.CLOUDEVENTS:
            return timeline_cloudevents.render(document)
        case TimelineFormat.HTML:
            return _page(document)


def _page(document: Timeline) -> str:
    from latdoctor.cli import html_report
    from latdoctor.journal import state_dir
    from latdoctor.report.html import render

    return render.render(html_report.of_incident(document, state_dir.folder()))


def _write(text: str, to: Path) -> None:
    """Raises UsageError where it cannot be written."""
    from latdoctor.errors import UsageError
    from latdoctor.output_file import write_new

    try:
        write_new(text, to)
    except OSError as error:
        raise UsageError(
            f"it cannot be written: {error.strerror}", where=str(to), next_step="name a new file"
        ) from error
