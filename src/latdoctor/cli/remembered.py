"""What the journal remembers of incidents and runs. It is read here, and never written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from latdoctor.cli.saying import say
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.incident.state import Incident, incidents
from latdoctor.journal import state
from latdoctor.journal.entry import Entry
from latdoctor.journal.store import Journal
from latdoctor.text import clean

if TYPE_CHECKING:
    from latdoctor.diagnosis.result import Diagnosis
    from latdoctor.incident.clock import StageState

LARGEST = 64 << 20  # bytes of a journal that is read beside a diagnosis: a second or two


def entries() -> tuple[Entry, ...]:
    """All of the journal; none where there is none. Raises JournalError, UsageError."""
    return Journal.reading(state.folder() / state.JOURNAL).entries()


def known(found: Sequence[Entry]) -> tuple[Incident, ...]:
    """Its incidents. Raises OperationError."""
    with readable():
        return incidents(found)


def stages(incident: Incident) -> tuple[StageState, ...]:
    """How its SOP stands, as of its last entry; none where the SOP is not here, or is another by now: that is told."""
    from latdoctor.incident.clock import clock
    from latdoctor.incident.sop_files import shipped

    wanted = incident.opened.sop
    if not wanted:
        return ()
    sop = shipped().get(wanted)
    if sop is None or sop.digest != incident.opened.sop_digest:
        what = "is not here" if sop is None else "has been changed since"
        say(f"its SOP {clean(wanted, 80)} {what}: how its stages stood is not told")
        return ()
    return clock(sop, incident)


@contextmanager
def readable() -> Iterator[None]:
    """An entry that another version wrote otherwise is an OperationError with a next step."""
    try:
        yield
    except (msgspec.MsgspecError, KeyError, IndexError, ValueError) as error:
        raise OperationError(
            f"an entry is not as this version writes it: {clean(str(error), 200)}",
            where=str(state.folder() / state.JOURNAL),
            next_step="use the latdoctor that wrote it, or a later one",
        ) from error


def seen_before(diagnosis: Diagnosis) -> str:
    """A line on the likest incident that has ended; empty where there is none.

    A journal that cannot be read is told on stderr, and disturbs nothing.
    """
    from latdoctor.incident.similar import library, of_diagnosis, similar
    from latdoctor.report.incidents import seen_before as told

    try:
        path = state.folder() / state.JOURNAL
        if not path.exists():
            return ""
        if path.stat().st_size > LARGEST:
            say(f"earlier incidents were not looked for, as the journal is larger than {LARGEST >> 20} MiB")
            return ""
        ended = [incident for incident in known(entries()) if not incident.open]
        with readable():
            return told(similar(of_diagnosis(diagnosis), library(ended)))
    except (LatdoctorError, OSError) as error:
        say(f"earlier incidents were not looked for: {clean(str(error), 400)}")
        return ""
