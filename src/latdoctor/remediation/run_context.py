"""What a run depends on: the journal, access to the target, observations and clocks. The command line provides it."""

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

from latdoctor.background import BackgroundCall
from latdoctor.errors import OperationError
from latdoctor.evidence.bundle import Bundle
from latdoctor.journal.entry import JournalEntry, JournalError
from latdoctor.journal.store import Journal
from latdoctor.remediation.history import ReadHistory, no_history
from latdoctor.remediation.observation import Observe
from latdoctor.remediation.pending_proof import Sources
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.target import Access

EntryListener = Callable[[JournalEntry], None]


class RunJournal:
    """Appends entries of one run to the journal, then passes them to a listener."""

    def __init__(self, journal: Journal, run: str, on_entry: EntryListener) -> None:
        self._journal = journal
        self.run = run
        self._on_entry = on_entry

    def append(self, kind: str, body: Struct | Mapping[str, object]) -> None:
        """The entry is on disk when this returns. Raises JournalError."""
        self._on_entry(self._journal.append(self.run, kind, body))

    def try_append(self, kind: str, body: Struct | Mapping[str, object]) -> str:
        """Append and return the error, else an empty string.

        For a rollback, which continues without the journal: what it undoes was journaled before.
        """
        try:
            self.append(kind, body)
        except JournalError as error:
            return f"the journal could not be written: {error}"
        return ""


# Starts a process that goes on with the pending proof of a run and takes over its lock, an open file descriptor.
# Returns its PID, or 0 where that is not known. Raises LatdoctorError where it cannot be started.
HandOver = Callable[[str, int], int]


@dataclass(frozen=True, slots=True)
class RunContext:
    """The environment of a run.

    `on_entry` receives every entry once it is journaled, and the run waits for it: a listener that may block, such as
    a terminal, must be wrapped in `nonblocking`. `stop_reason` returns why the run must end now, else an empty string.
    `on_start` receives the run's id before its first entry. `sop_refusal` returns what the SOP does not permit yet.
    `history` reads what a source remembers of the time before. `hand_over` starts the process that goes on with a
    pending proof of `sources`; without one this process does.
    """

    journal: Journal
    state: Path
    access: Access
    observe: Observe
    save_bundle: Callable[[Bundle, Path], None]
    on_entry: EntryListener = lambda _: None
    stop_reason: Callable[[], str] = lambda: ""
    approved: bool = False
    on_start: Callable[[str], None] = lambda _: None
    sop_refusal: Callable[[Plan], Refusal | None] = lambda _: None
    history: ReadHistory = no_history
    hand_over: HandOver | None = None
    sources: Sources = field(default_factory=Sources)
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = field(default=time.sleep)


class Stopped(Exception):  # noqa: N818 - an event, not a mistake; it never leaves this package
    """The operator has requested the end of the run."""


T = TypeVar("T")
_STOP_POLL_INTERVAL = 0.1  # seconds between two checks of the stop reason


def call_with_timeout(call: Callable[[], T], seconds: float, stop_reason: Callable[[], str]) -> T:
    """Return the result of `call`; abandon it after `seconds` or if the run must stop.

    Raises what `call` raises, OperationError after `seconds`, and Stopped.
    """
    work = BackgroundCall(call, "latdoctor-observe")
    until = time.monotonic() + seconds
    while not work.wait(_STOP_POLL_INTERVAL):
        if why := stop_reason():
            raise Stopped(why)
        if time.monotonic() > until:
            raise OperationError(f"the observation did not end within {seconds:.0f} s")
    return work.outcome()


MAX_QUEUED = 1000  # entries; later ones are not printed and are in the journal only
_FLUSH_SECONDS = 1.0  # for the entries that are still queued at the end


@contextmanager
def nonblocking(listener: EntryListener) -> Iterator[EntryListener]:
    """Run `listener` on a thread of its own, which ends on an OSError or ValueError of the listener."""
    waiting: queue.Queue[JournalEntry | None] = queue.Queue(MAX_QUEUED)
    ended = threading.Event()

    def work() -> None:
        try:
            while (entry := waiting.get()) is not None:
                listener(entry)
        except (OSError, ValueError):  # the terminal has gone, or its file was closed
            return
        finally:
            ended.set()

    def put(entry: JournalEntry | None) -> None:
        try:
            waiting.put_nowait(entry)
        except queue.Full:  # the journal has the entry
            return

    threading.Thread(target=work, name="latdoctor-progress", daemon=True).start()
    try:
        yield put
    finally:
        put(None)
        ended.wait(_FLUSH_SECONDS)
