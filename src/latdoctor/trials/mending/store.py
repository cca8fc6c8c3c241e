"""The folder of mended incidents; a run that is there stays.

mended/RUN.json     what it was like: with it the run is complete
looks/RUN.tar.zst   what was diagnosed, where somebody looked: `latdoctor diagnose` says again what was found
spoiled/RUN.json    why each spoiled try of it did not count
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec

from latdoctor import __version__
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import save
from latdoctor.trials.mending.report import MendingReport
from latdoctor.trials.store import Runs, read_json

MENDED, LOOKS = "mended", "looks"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One go at a run, and the look by which it was diagnosed (None: nobody looked)."""

    report: MendingReport
    look: Bundle | None

    @property
    def spoiled(self) -> tuple[str, ...]:
        return self.report.spoiled


@dataclass(frozen=True, slots=True)
class MendingStore(Runs):
    """A folder of reports."""

    complete: ClassVar[str] = MENDED

    def keep(self, attempt: Attempt) -> None:
        """Raises BundleError where it cannot be written."""
        run = attempt.report.run
        look = self.look(run)
        look.unlink(missing_ok=True)  # of a try that was interrupted before its report was written
        if attempt.look is not None:
            look.parent.mkdir(parents=True, exist_ok=True)
            save(attempt.look, look, __version__)
        tries = len(self.spoiled(run)) + 1
        self.write(MENDED, run, msgspec.structs.replace(attempt.report, tries=tries))

    def look(self, run: str) -> Path:
        """Where its look is kept."""
        return self.folder / LOOKS / f"{run}.tar.zst"

    def report(self, run: str) -> MendingReport:
        """Raises BundleError."""
        return read_json(self.json(MENDED, run), MendingReport)
