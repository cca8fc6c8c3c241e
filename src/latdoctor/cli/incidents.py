"""`latdoctor incidents`: past incidents, and the playbooks that worked."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.console import notice
from latdoctor.cli.options import OutputFormat, OutputOption
from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.journal import state_dir
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.diagnosis.result import Diagnosis
    from latdoctor.incident.similar import Features, PastIncident
    from latdoctor.incident.sop.clock import StageState
    from latdoctor.incident.state import Incident
    from latdoctor.journal.store import Journal


LARGEST = 64 << 20  # bytes of a journal that is read beside a diagnosis: a second or two


def journal() -> Journal:
    """For reading alone; one that is not there reads as empty. Raises UsageError."""
    from latdoctor.journal.store import Journal

    return Journal.reading(state_dir.folder() / state_dir.JOURNAL)


def incidents() -> tuple[Incident, ...]:
    """All of them, the oldest first. Raises JournalError, UsageError, OperationError."""
    from latdoctor.incident import recorder

    return recorder.all_incidents(journal())


def readable() -> AbstractContextManager[None]:
    """An entry that another version wrote otherwise is an OperationError with a next step."""
    from latdoctor.incident import recorder

    return recorder.unreadable_as_error(journal())


def stages(incident: Incident) -> tuple[StageState, ...]:
    """Stages of its SOP at its last entry; none, with a line on stderr, where the SOP is not available."""
    from latdoctor.incident.sop.clock import stage_states
    from latdoctor.incident.sop.loader import sop_of_incident

    if not incident.opened.sop:
        return ()
    try:
        sop = sop_of_incident(state_dir.folder(), incident)
    except LatdoctorError as error:
        notice(f"the stages of its SOP are unknown: {clean(str(error), 400)}")
        return ()
    with readable():
        return stage_states(sop, incident)


def similar_incident_line(diagnosis: Diagnosis) -> str:
    """A line on the most similar closed incident; empty where there is none.

    An unreadable journal is reported on stderr only.
    """
    try:
        path = state_dir.folder() / state_dir.JOURNAL
    except UsageError:  # no state folder, so there is no journal
        return ""
    try:
        if not path.exists():
            return ""
        if path.stat().st_size > LARGEST:
            notice(f"skipped the search for similar incidents: the journal is larger than {LARGEST >> 20} MiB")
            return ""
        from latdoctor.incident.similar import of_diagnosis, past_incidents, similar
        from latdoctor.report.incidents import similar_incident_line as line

        ended = [incident for incident in incidents() if not incident.open]
        return line(similar(of_diagnosis(diagnosis), past_incidents(ended)))
    except (LatdoctorError, OSError) as error:
        notice(f"skipped the search for similar incidents: {clean(str(error), 400)}")
        return ""


def print_similar_incident(diagnosis: Diagnosis, *, as_markdown: bool) -> None:
    """Print that line, where there is one, below the answer."""
    line = similar_incident_line(diagnosis)
    if line and as_markdown:
        from latdoctor.report.markdown import escape

        typer.echo(f"\n{escape(line)}")
    elif line:
        from rich.text import Text

        from latdoctor.cli.console import result_console

        result_console().print(Text(line, style="bold"))


app = typer.Typer(
    help="Past incidents: causes, and playbooks that worked.", no_args_is_help=True, rich_markup_mode=None
)
IncidentOption = Annotated[
    str | None, typer.Option("--incident", metavar="ID", help="Which incident (default: the open one, or the last).")
]


@app.command("list")
def list_(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every incident.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """List the incidents, the newest first.

    With their causes, the playbooks that worked, and the means of the response times.

    Exit codes: 0 listed · 1 the journal cannot be read.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.incident.similar import past_incidents
    from latdoctor.incident.timeline import timeline
    from latdoctor.report import incidents as shown

    found = incidents()
    with readable():
        timelines = [timeline(incident) for incident in found]
        shown.print_list(
            past_incidents(found),
            [measure for one in timelines for measure in one.measures],
            result_console(),
            as_json=output is OutputFormat.JSON,
            verbose=verbose,
            titles={cause.id: cause.title for one in timelines for look in one.looks for cause in look.causes},
        )


@app.command("show")
def show(
    incident: Annotated[str | None, typer.Argument(metavar="[ID]", help="Default: the open one, or the last.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Times with their events, the whole impact.")
    ] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show one incident.

    Its cause, the playbooks that worked, its response times.

    Exit codes: 0 shown · 1 the journal cannot be read · 2 there is no such incident.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.incident.lookup import select_incident
    from latdoctor.incident.similar import past_incident, similar
    from latdoctor.incident.timeline import timeline
    from latdoctor.report import incidents as shown

    found = incidents()
    one = select_incident(found, incident or "", only_open=False)
    with readable():
        line = past_incident(one)
        alike = similar(line.features, _others(found, one.id))
        shown.print_incident(
            line, timeline(one), alike, result_console(), as_json=output is OutputFormat.JSON, verbose=verbose
        )


@app.command("similar")
def similar_(
    diagnosis: Annotated[
        Path | None,
        typer.Argument(metavar="[DIAGNOSIS.json]", readable=False, help="A diagnosis (diagnose -o json) to compare."),
    ] = None,
    incident: IncidentOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """List similar incidents, and what worked.

    Or those similar to a diagnosis that belongs to none.

    Compared are named causes (half of it), specific findings, kinds of subjects, and tiers.

    Exit codes: 0 listed, also if none is similar · 1 the journal cannot be read · 2 there is no such incident, or the
    file is not a diagnosis.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.errors import UsageError
    from latdoctor.incident.lookup import select_incident
    from latdoctor.incident.similar import of_diagnosis, past_incident, similar
    from latdoctor.report import incidents as shown

    if diagnosis is not None and incident:
        raise UsageError("a diagnosis and an incident are exclusive", next_step="give one of them")
    found = incidents()
    features: Features
    own = ""
    if diagnosis is not None:
        features = of_diagnosis(_diagnosis(diagnosis))
    else:
        one = select_incident(found, incident or "", only_open=False)
        with readable():
            features, own = past_incident(one).features, one.id
    with readable():
        shown.print_similar(
            similar(features, _others(found, own)), result_console(), as_json=output is OutputFormat.JSON
        )


def _others(found: tuple[Incident, ...], own: str) -> tuple[PastIncident, ...]:
    from latdoctor.incident.similar import past_incidents

    return past_incidents(incident for incident in found if incident.id != own)


def _diagnosis(path: Path) -> Diagnosis:
    """Raises UsageError, and SourceError for a pipe."""
    from latdoctor.cli.plan_files import read_bounded
    from latdoctor.decode_errors import UNDECODABLE
    from latdoctor.diagnosis.document import parse_diagnosis
    from latdoctor.errors import UsageError

    try:
        return parse_diagnosis(read_bounded(path))
    except UNDECODABLE as error:
        raise UsageError(
            f"it is no diagnosis: {error}", where=str(path), next_step="latdoctor diagnose … -o json > FILE"
        ) from error
