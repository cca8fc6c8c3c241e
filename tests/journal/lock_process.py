"""python lock_process.py FOLDER KEY RUN: takes the lock, prints that, and holds it until its input ends."""

from __future__ import annotations

import sys
from pathlib import Path

from latdoctor.journal.locks import lock

with lock(Path(sys.argv[1]), sys.argv[2], sys.argv[3]):
    print("held", flush=True)
    sys.stdin.read()
