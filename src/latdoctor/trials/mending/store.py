"""The folder of mended incidents; a run that is there stays.

mended/RUN.json   what it was like; nothing else belongs to it
spoiled/RUN.json  why each spoiled try of it did not count
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from latdoctor.trials.mending.report import MendingReport
from latdoctor.trials.store import Runs, read_json

MENDED = "mended"


@dataclass(frozen=True, slots=True)
class MendingStore(Runs):
    """A folder of reports."""

    complete: ClassVar[str] = MENDED

    def keep(self, attempt: MendingReport) -> None:
        tries = len(self.spoiled(attempt.run)) + 1
        self.write(MENDED, attempt.run, msgspec.structs.replace(attempt, tries=tries))

    def report(self, run: str) -> MendingReport:
        """Raises BundleError."""
        return read_json(self.json(MENDED, run), MendingReport)
