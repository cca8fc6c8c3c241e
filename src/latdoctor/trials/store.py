"""The folder of recordings: what is there, what is missing, and how a run gets there; a run that is there stays.

bundles/RUN.tar.zst   everything that was read
told/RUN.json         what whoever looks knows
truths/RUN.json       what was really wrong; written last, so that a run with it is complete
spoiled/RUN.json      why each spoiled try of it did not count
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from latdoctor import __version__
from latdoctor.errors import BundleError, LatdoctorError
from latdoctor.evidence.bundle_files import save
from latdoctor.evidence.model import to_json
from latdoctor.trials import matrix
from latdoctor.trials.matrix import Cell
from latdoctor.trials.recording import Attempt, Attempting, why_not
from latdoctor.trials.truth import Told, Truth

BUNDLES, TOLD, TRUTHS, SPOILED = "bundles", "told", "truths", "spoiled"
TRIES = 3  # a spoiled run is repeated twice
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of recordings."""

    folder: Path

    def bundle(self, run: str) -> Path:
        return self.folder / BUNDLES / f"{run}.tar.zst"

    def runs(self) -> tuple[str, ...]:
        """The complete runs, in the order of their names."""
        return tuple(sorted(path.stem for path in (self.folder / TRUTHS).glob("*.json")))

    def told(self, run: str) -> Told:
        """Raises BundleError."""
        return _read(self._json(TOLD, run), Told)

    def truth(self, run: str) -> Truth:
        """Raises BundleError."""
        return _read(self._json(TRUTHS, run), Truth)

    def spoiled(self, run: str) -> tuple[tuple[str, ...], ...]:
        """The reasons of each spoiled try. Raises BundleError."""
        path = self._json(SPOILED, run)
        return _read(path, tuple[tuple[str, ...], ...]) if path.exists() else ()

    def losses(self) -> tuple[int, int]:
        """How many tries were spoiled in all, and how many runs were given up for it."""
        tries = {path.stem: len(self.spoiled(path.stem)) for path in (self.folder / SPOILED).glob("*.json")}
        given_up = sum(count >= TRIES and not self._json(TRUTHS, run).exists() for run, count in tries.items())
        return sum(tries.values()), given_up

    def is_due(self, cell: Cell) -> bool:
        """Whether `cell` is neither recorded nor given up."""
        return not self._json(TRUTHS, cell.run).exists() and len(self.spoiled(cell.run)) < TRIES

    def missing(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        return tuple(cell for cell in cells if self.is_due(cell))

    def keep(self, attempt: Attempt) -> None:
        """Raises BundleError where it cannot be written."""
        run = attempt.truth.run
        bundle = self.bundle(run)
        bundle.unlink(missing_ok=True)  # of a try that was interrupted before its truth was written
        save(attempt.bundle, bundle, __version__)
        tries = len(self.spoiled(run)) + 1
        self._write(TOLD, run, attempt.told)
        self._write(TRUTHS, run, msgspec.structs.replace(attempt.truth, tries=tries))

    def keep_spoiled(self, run: str, reasons: Sequence[str]) -> None:
        self._write(SPOILED, run, (*self.spoiled(run), tuple(reasons)))

    def _json(self, what: str, run: str) -> Path:
        return self.folder / what / f"{run}.json"

    def _write(self, what: str, run: str, value: object) -> None:
        path = self._json(what, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".part")
        made.write_bytes(to_json(value))
        made.replace(path)


def _read(path: Path, form: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except msgspec.MsgspecError as error:
        raise BundleError(
            f"damaged: {error}", where=str(path), next_step="delete it, and record that run again"
        ) from error


def record(
    store: Store,
    cells: Sequence[Cell],
    attempt: Attempting,
    say: Callable[[str], None],
    *,
    most: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Records what is missing of `cells`, at most `most` of them; how many are missing then.

    A spoiled try is repeated at once. One that cannot be played counts as spoiled, so that the others go on.
    """
    due = store.missing(cells)
    left = [matrix.seconds(cell) for cell in due]
    spent, planned = 0.0, 0.0
    for number, cell in enumerate(due[:most], 1):
        pace = spent / planned if planned else 1.0
        say(f"{number} of {len(due)}: {cell.run} (about {_minutes(pace * sum(left[number - 1 :]))} left)")
        begun = clock()
        while store.is_due(cell):
            _try(store, cell, attempt, say)
        spent += clock() - begun
        planned += left[number - 1]
    return len(store.missing(cells))


def _try(store: Store, cell: Cell, attempt: Attempting, say: Callable[[str], None]) -> None:
    try:
        made = attempt(cell, say)
    except LatdoctorError as error:
        reasons: tuple[str, ...] = (why_not(error),)
    else:
        reasons = made.spoiled
        if not reasons:
            store.keep(made)
            return
    say(f"spoiled: {'; '.join(reasons)}")
    store.keep_spoiled(cell.run, reasons)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
