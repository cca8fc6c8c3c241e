"""python holding.py FOLDER KEY RUN: holds the lock, says so, and keeps it till its input ends."""

from __future__ import annotations

import sys
from pathlib import Path

from latdoctor.journal.locks import lock

with lock(Path(sys.argv[1]), sys.argv[2], sys.argv[3]):
    print("held", flush=True)
    sys.stdin.read()
