"""python open_process.py FOLDER KEY [TARGET…]: opens an incident in the state folder FOLDER and prints its id."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from latdoctor.errors import LatdoctorError
from latdoctor.incident import events
from latdoctor.incident.open import open_incident
from latdoctor.incident.sop.loader import shipped
from latdoctor.journal.store import Journal

try:
    place, key, targets = Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])
    sop = shipped()["slow-inference"]
    source = events.OpenedBy.ALERT if key else events.OpenedBy.HAND
    wanted = events.IncidentOpened("P99 is 3 s", targets, source, sop.id, sop.digest, key=key)
    opening = open_incident(Journal.opened(place / "journal.sqlite"), place, wanted, sop)
    os.write(1, f"{opening.id} {opening.new}\n".encode())  # by one call
except LatdoctorError as error:
    print(error, file=sys.stderr, flush=True)
    sys.exit(1)
