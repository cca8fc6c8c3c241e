"""What people write into an incident: remarks, stages that they say are met, and its end.

Credentials that are in it are left out (`harmless`): a note is pasted in a hurry.
"""

from __future__ import annotations

from difflib import get_close_matches

from latdoctor.errors import UsageError
from latdoctor.incident import events
from latdoctor.incident.harmless import harmless
from latdoctor.incident.sop import Sop
from latdoctor.incident.state import Incident
from latdoctor.journal.entry import Entry
from latdoctor.journal.store import Journal
from latdoctor.text import clean

LONGEST = 10_000  # characters of a remark
OUTCOMES = ("resolved", events.FALSE_ALARM)


def noted(journal: Journal, incident: Incident, text: str, by: str) -> Entry:
    """Raises UsageError for an empty remark or one that is too long, and JournalError."""
    if not text.strip():
        raise UsageError("the note is empty", next_step="latdoctor sop note 'what you saw or did'")
    return journal.append(incident.id, events.NOTED, events.Noted(_within(text), clean(by, 80)))


def marked(journal: Journal, incident: Incident, sop: Sop, stage: str, text: str, by: str) -> Entry:
    """Raises UsageError for a stage that the SOP does not have, and JournalError."""
    if sop.stage(stage) is None:
        names = [one.id for one in sop.stages]
        near = get_close_matches(stage, names, n=1)
        raise UsageError(
            f"the SOP {sop.id} has no stage {clean(stage, 80)!r}",
            next_step=f"did you mean {near[0]}?" if near else f"it has: {', '.join(names)}",
        )
    return journal.append(incident.id, events.MARKED, events.Marked(stage, clean(by, 80), _within(text)))


def closed(journal: Journal, incident: Incident, outcome: str, text: str, by: str) -> Entry:
    """Raises UsageError where it is closed already, and JournalError."""
    if incident.closed is not None:
        raise UsageError(f"{incident.id} is closed already: {clean(incident.closed.outcome, 40)}")
    return journal.append(incident.id, events.CLOSED, events.Closed(outcome, _within(text), clean(by, 80)))


def _within(text: str) -> str:
    if len(text) > LONGEST:
        raise UsageError(
            f"a note of {len(text)} characters is longer than {LONGEST}",
            next_step="keep it as a file, and note its name",
        )
    return harmless(text.strip(), LONGEST)
