"""The journal of one run, and whoever listens to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from latdoctor.journal.entry import Entry
from latdoctor.journal.store import Journal, JournalError


class Recorder:
    """Journals what happens in `run`, then tells it."""

    def __init__(self, journal: Journal, run: str, tell: Callable[[Entry], None]) -> None:
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
