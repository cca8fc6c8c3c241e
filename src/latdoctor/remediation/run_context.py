"""What a run is given: the journal, a way to look, a way in, clocks. The command line puts it together."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from latdoctor.background import Beside
from latdoctor.errors import OperationError
from latdoctor.evidence.bundle import Bundle
from latdoctor.journal.entry import JournalEntry, JournalError
from latdoctor.journal.store import Journal
from latdoctor.remediation.guards import Refusal
from latdoctor.remediation.observation import Observe
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.target import Access


class Recorder:
    """Journals what happens in `run`, then tells it."""

    def __init__(self, journal: Journal, run: str, tell: Callable[[JournalEntry], None]) -> None:
        self._journal = journal
        self.run = run
        self._tell = tell

    def note(self, kind: str, body: Struct | Mapping[str, object]) -> None:
        """It is on the disk when this returns. Raises JournalError."""
        self._tell(self._journal.append(self.run, kind, body))

    def note_if_possible(self, kind: str, body: Struct | Mapping[str, object]) -> str:
        """The same for what must go on without: taking back is safe, for what it undoes was journaled. Why not, else
        empty.
        """
        try:
            self.note(kind, body)
        except JournalError as error:
            return f"the journal could not be written: {error}"
        return ""


T = TypeVar("T")
BEAT = 0.1  # seconds between two looks at whether to stop


@dataclass(frozen=True, slots=True)
class World:
    """`tell` hears every entry as it is journaled, and the run waits for it: what may stand still (a terminal) is told
    through `aside.aside`. `stop` says why the run shall end now, else nothing.

    `begun` is told the run's name before anything of it is journaled; `procedure` says what an SOP does not permit yet.
    """

    journal: Journal
    state: Path
    access: Access
    observe: Observe
    keep: Callable[[Bundle, Path], None]
    tell: Callable[[JournalEntry], None] = lambda _: None
    stop: Callable[[], str] = lambda: ""
    approved: bool = False
    begun: Callable[[str], None] = lambda _: None
    procedure: Callable[[Plan], Refusal | None] = lambda _: None
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = field(default=time.sleep)


class Stopped(Exception):  # noqa: N818 - what happened; it never leaves this package
    """Somebody wants the run to end."""


def beside(call: Callable[[], T], seconds: float, stop: Callable[[], str]) -> T:
    """What `call` gives, within `seconds`; it is left behind where it takes longer or the run shall stop.

    Raises what `call` raises, OperationError after `seconds`, and Stopped.
    """
    work = Beside(call, "latdoctor-look")
    until = time.monotonic() + seconds
    while not work.wait(BEAT):
        if why := stop():
            raise Stopped(why)
        if time.monotonic() > until:
            raise OperationError(f"the look did not end within {seconds:.0f} s")
    return work.outcome()


MOST = 1000  # entries that wait to be told; what comes then is not told, and stands in the journal
LAST = 1.0  # seconds in the end for what still waits

Tell = Callable[[JournalEntry], None]


@contextmanager
def aside(tell: Tell) -> Iterator[Tell]:
    """`tell` on a thread of its own. What it raises ends the telling and nothing else."""
    waiting: queue.Queue[JournalEntry | None] = queue.Queue(MOST)
    ended = threading.Event()

    def work() -> None:
        try:
            while (entry := waiting.get()) is not None:
                tell(entry)
        except (OSError, ValueError):  # the screen has gone, or its file was closed
            return
        finally:
            ended.set()

    def put(entry: JournalEntry | None) -> None:
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
