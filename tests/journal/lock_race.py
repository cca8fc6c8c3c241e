"""python racing.py FOLDER KEY COUNT: so many processes want one lock at once; says what became of each, a line each.

Who holds the lock keeps it till all have tried.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from latdoctor.journal.locks import LockHeldError, lock


def tried(folder: Path, key: str, told: int, ended: int) -> None:
    try:
        with lock(folder, key, f"run-{os.getpid()}"):
            os.write(told, f"held {os.getpid()}\n".encode())
            os.read(ended, 1)
    except LockHeldError as error:
        os.write(told, f"busy {error.pid} {error.run}\n".encode())


folder, key, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
begun, begin = os.pipe()
ended, end = os.pipe()
heard, told = os.pipe()
for _ in range(count):
    if os.fork() == 0:
        try:
            os.close(begin)
            os.close(end)
            os.read(begun, 1)  # till the parent closes its side
            tried(folder, key, told, ended)
        finally:
            os._exit(0)
os.close(begin)
os.close(told)
with os.fdopen(heard, "rb") as lines:
    for _ in range(count):
        print(lines.readline().decode().strip(), flush=True)
    os.close(end)
for _ in range(count):
    os.wait()
