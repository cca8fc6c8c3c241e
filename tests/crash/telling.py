"""python -m tests.crash.telling STATE COUNT: journals an incident, and goes on where an earlier one was killed.

It opens the incident unless one is open, then adds notes until there are COUNT, and closes it. Each entry is
acknowledged by a line with its digest once it is on the disk.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from latdoctor.incident import events
from latdoctor.incident.state import incidents_in
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal

INCIDENT = "inc-20261122-0650-4f2a"


def main(state: Path, count: int) -> None:
    journal = Journal.opened(state / JOURNAL)
    found = incidents_in(journal.entries())
    if not found:
        opened = events.IncidentOpened("slow", ("checkout",), events.OpenedBy.HAND, "", "")
        _say(journal.append(INCIDENT, events.OPENED, opened).digest)
        found = incidents_in(journal.entries())
    (incident,) = found
    for number in range(len(incident.of(events.NOTED)), count):
        _say(journal.append(INCIDENT, events.NOTED, events.NoteAdded(f"note {number}")).digest)
    if incident.open:
        _say(journal.append(INCIDENT, events.CLOSED, events.IncidentClosed("resolved")).digest)


def _say(digest: str) -> None:
    os.write(1, f"{digest}\n".encode())  # by one call


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
