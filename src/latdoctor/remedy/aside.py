"""Tells somebody what happens and never waits for them: a terminal can stand still (Ctrl-S) for as long as it likes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from latdoctor.journal.entry import Entry

MOST = 1000  # entries that wait to be told; what comes then is not told, and stands in the journal
LAST = 1.0  # seconds in the end for what still waits

Tell = Callable[[Entry], None]


@contextmanager
def aside(tell: Tell) -> Iterator[Tell]:
    """`tell` on a thread of its own. What it raises ends the telling and nothing else."""
    waiting: queue.Queue[Entry | None] = queue.Queue(MOST)
    ended = threading.Event()

    def work() -> None:
        try:
            while (entry := waiting.get()) is not None:
                tell(entry)
        except (OSError, ValueError):  # the screen has gone, or its file was closed
            return
        finally:
            ended.set()

    def put(entry: Entry | None) -> None:
        try:
            waiting.put_nowait(entry)
        except queue.Full:  # it stands in the journal all the same
            return

    threading.Thread(target=work, name="latdoctor-telling", daemon=True).start()
    try:
        yield put
    finally:
        put(None)
        ended.wait(LAST)
