"""python append_process.py FILE COUNT [RUN]: appends entries and prints the number of each once it is on disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from latdoctor.errors import LatdoctorError
from latdoctor.journal.store import Journal

try:
    journal = Journal.opened(Path(sys.argv[1]))
    for index in range(int(sys.argv[2])):
        entry = journal.append("".join(sys.argv[3:]), "change.intended", {"stage": 0, "index": index})
        os.write(1, b"%d\n" % entry.seq)  # by one call
except LatdoctorError as error:
    print(error, file=sys.stderr, flush=True)
    sys.exit(1)
