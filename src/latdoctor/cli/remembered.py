"""What the journal remembers of incidents and runs. It is read here, and never written."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import typer

from latdoctor.cli.saying import say
from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.incident import marking
from latdoctor.incident.state import Incident
from latdoctor.journal import state
from latdoctor.journal.store import Journal
from latdoctor.text import clean

if TYPE_CHECKING:
    from latdoctor.diagnosis.result import Diagnosis
    from latdoctor.incident.clock import StageState

LARGEST = 64 << 20  # bytes of a journal that is read beside a diagnosis: a second or two


def journal() -> Journal:
    """For reading alone; one that is not there reads as empty. Raises UsageError."""
    return Journal.reading(state.folder() / state.JOURNAL)


def incidents() -> tuple[Incident, ...]:
    """All of them, the oldest first. Raises JournalError, UsageError, OperationError."""
    return marking.known(journal())


def readable() -> AbstractContextManager[None]:
    """An entry that another version wrote otherwise is an OperationError with a next step."""
    return marking.readable(journal())


def stages(incident: Incident) -> tuple[StageState, ...]:
    """How its SOP stands, as of its last entry; none where that SOP is not here: that is told on stderr."""
    from latdoctor.incident.clock import clock
    from latdoctor.incident.sop_files import followed

    if not incident.opened.sop:
        return ()
    try:
        sop = followed(state.folder(), incident)
    except LatdoctorError as error:
        say(f"how the stages of its SOP stood is not told: {clean(str(error), 400)}")
        return ()
    with readable():
        return clock(sop, incident)


def seen_before(diagnosis: Diagnosis) -> str:
    """A line on the likest incident that has ended; empty where there is none.

    A journal that cannot be read is told on stderr, and disturbs nothing.
    """
    from latdoctor.incident.similar import library, of_diagnosis, similar
    from latdoctor.report.incidents import seen_before as told

    try:
        path = state.folder() / state.JOURNAL
    except UsageError:  # no place to keep a journal, so that there is none
        return ""
    try:
        if not path.exists():
            return ""
        if path.stat().st_size > LARGEST:
            say(f"earlier incidents were not looked for, as the journal is larger than {LARGEST >> 20} MiB")
            return ""
        ended = [incident for incident in incidents() if not incident.open]
        return told(similar(of_diagnosis(diagnosis), library(ended)))
    except (LatdoctorError, OSError) as error:
        say(f"earlier incidents were not looked for: {clean(str(error), 400)}")
        return ""


def print_seen_before(diagnosis: Diagnosis, *, as_markdown: bool) -> None:
    """That line, where there is one, under the answer."""
    line = seen_before(diagnosis)
    if line and as_markdown:
        from latdoctor.report.markdown import escape

        typer.echo(f"\n{escape(line)}")
    elif line:
        from rich.text import Text

        from latdoctor.cli.screen import result_console

        result_console().print(Text(line, style="bold"))
