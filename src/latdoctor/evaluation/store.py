"""The folder of recordings: what is there, what is missing, and how a run gets there; a run that is there stays.

bundles/RUN.tar.zst   everything that was read
told/RUN.json         what whoever looks knows
truths/RUN.json       what was really wrong; written last, so that a run with it is complete
spoiled/RUN.json      why each spoiled try of it did not count
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import msgspec

from latdoctor import __version__
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.errors import UNDECODABLE, BundleError, LatdoctorError
from latdoctor.evaluation.ground_truth import MADE, PLAYED, GroundTruth, IncidentContext, TimeRange
from latdoctor.evaluation.recording import RecordingAttempt, why_not
from latdoctor.evaluation.variants import slice_bundle
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.diff import values
from latdoctor.evidence.model import to_json
from latdoctor.pipeline import seen
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    pass
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

BUNDLES, TOLD, TRUTHS, SPOILED = "bundles", "told", "truths", "spoiled"
TRIES = 3  # a spoiled run is repeated twice
T = TypeVar("T")


class PlannedRun(Protocol):
    """A run that shall be there: its name, and about how many seconds it takes."""

    @property
    def run(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class RunAttempt(Protocol):
    """One go at it; `spoiled` says why it does not count."""

    @property
    def spoiled(self) -> tuple[str, ...]: ...


Due = TypeVar("Due", bound=PlannedRun)
Go = TypeVar("Go", bound=RunAttempt)
Kept_contra = TypeVar("Kept_contra", bound=RunAttempt, contravariant=True)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The names of the runs of a folder: which are complete, which were spoiled and how often."""

    folder: Path
    complete: ClassVar[str] = TRUTHS  # the folder whose file makes a run complete

    def runs(self) -> tuple[str, ...]:
        """The complete runs, in the order of their names."""
        return tuple(sorted(path.stem for path in (self.folder / self.complete).glob("*.json")))

    def tried(self) -> tuple[str, ...]:
        """Every run of which anything is there, also where it is not complete, in the order of their names."""
        parts = (self.complete, TOLD, SPOILED)
        return tuple(sorted({path.stem for part in parts for path in (self.folder / part).glob("*.json")}))

    def spoiled(self, run: str) -> tuple[tuple[str, ...], ...]:
        """The reasons of each spoiled try. Raises BundleError."""
        path = self.json(SPOILED, run)
        return read_json(path, tuple[tuple[str, ...], ...]) if path.exists() else ()

    def losses(self, runs: Iterable[str]) -> tuple[int, int]:
        """How many tries of `runs` were spoiled in all, and how many of these were given up for it."""
        tries = {run: len(self.spoiled(run)) for run in runs}
        given_up = sum(count >= TRIES and not self.json(self.complete, run).exists() for run, count in tries.items())
        return sum(tries.values()), given_up

    def is_due(self, cell: PlannedRun) -> bool:
        """Whether `cell` is neither recorded nor given up."""
        return not self.json(self.complete, cell.run).exists() and len(self.spoiled(cell.run)) < TRIES

    def missing(self, cells: Sequence[Due]) -> tuple[Due, ...]:
        return tuple(cell for cell in cells if self.is_due(cell))

    def keep_spoiled(self, run: str, reasons: Sequence[str]) -> None:
        self.write(SPOILED, run, (*self.spoiled(run), tuple(reasons)))

    def json(self, what: str, run: str) -> Path:
        return self.folder / what / f"{run}.json"

    def write(self, what: str, run: str, value: object) -> None:
        path = self.json(what, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".part")
        made.write_bytes(to_json(value))
        made.replace(path)


@dataclass(frozen=True, slots=True)
class RecordingStore(RunFolder):
    """A folder of recordings."""

    def bundle(self, run: str) -> Path:
        return self.folder / BUNDLES / f"{run}.tar.zst"

    def told(self, run: str) -> IncidentContext:
        """Raises BundleError."""
        return read_json(self.json(TOLD, run), IncidentContext)

    def truth(self, run: str) -> GroundTruth:
        """Raises BundleError."""
        return read_json(self.json(TRUTHS, run), GroundTruth)

    def keep(self, attempt: RecordingAttempt) -> None:
        """Raises BundleError where it cannot be written."""
        run = attempt.truth.run
        bundle = self.bundle(run)
        bundle.unlink(missing_ok=True)  # of a try that was interrupted before its truth was written
        save(attempt.bundle, bundle, __version__)
        tries = len(self.spoiled(run)) + 1
        self.write(TOLD, run, attempt.told)
        self.write(TRUTHS, run, msgspec.structs.replace(attempt.truth, tries=tries))


def read_json(path: Path, form: type[T]) -> T:
    """Raises BundleError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UNDECODABLE as error:
        raise damaged(str(error), path) from error


def damaged(what: str, path: Path) -> BundleError:
    """That a file of a recording cannot be what it should be."""
    return BundleError(f"damaged: {what}", where=str(path), next_step="delete it, and record that run again")


class RunStore(Protocol[Kept_contra]):
    """Where complete runs are kept."""

    def is_due(self, cell: PlannedRun) -> bool: ...
    def missing(self, cells: Sequence[Due]) -> tuple[Due, ...]: ...
    def keep(self, attempt: Kept_contra) -> None: ...
    def keep_spoiled(self, run: str, reasons: Sequence[str]) -> None: ...


def record(
    store: RunStore[Go],
    cells: Sequence[Due],
    attempt: Callable[[Due, Callable[[str], None]], Go],
    say: Callable[[str], None],
    *,
    most: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Records what is missing of `cells`, at most `most` of them; how many are missing then.

    A spoiled try is repeated at once. One that cannot be played counts as spoiled, so that the others go on.
    """
    due = store.missing(cells)
    left = [cell.seconds for cell in due]
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


def _try(
    store: RunStore[Go], cell: Due, attempt: Callable[[Due, Callable[[str], None]], Go], say: Callable[[str], None]
) -> None:
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


STEP = 1.0  # seconds: how often pages are read

Numbers = Callable[[Bundle], Mapping[str, float]]  # what a look shows, by name


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run on disk."""

    bundle: Path
    told: IncidentContext
    truth: GroundTruth


def recordings(folder: Path, runs: Sequence[str] | None = None) -> Iterator[RecordedRun]:
    """The complete runs of `folder`, or these of them, in the order of their names.

    Raises BundleError, also for a truth that is another run's or names what the catalogue does not have.
    """
    known = frozenset(cause.id for cause in shipped().causes)
    store = RecordingStore(folder)
    for run in store.runs() if runs is None else runs:
        truth, told = store.truth(run), store.told(run)
        if wrong := _wrong(run, truth, known):
            raise damaged(f"the truth of {run} {wrong}", store.json(TRUTHS, run))
        if truth.kind == PLAYED and told.incident is None:
            raise damaged(f"{run} was played, and it is not told when it was slow", store.json(TOLD, run))
        yield RecordedRun(store.bundle(run), told, truth)


def _wrong(run: str, truth: GroundTruth, known: Set[str]) -> str:
    """Why `truth` cannot be that of `run`; empty where it can."""
    if unknown := sorted({*truth.causes} - known):
        return f"names {clean(unknown[0], 80)!r}, which is no cause"
    if truth.kind not in (PLAYED, MADE):
        return f"is of the kind {clean(truth.kind, 80)!r}: {PLAYED} or {MADE}"
    return "" if truth.run == run else f"is of {clean(truth.run, 80)!r}"


def signals(recorded: RecordedRun) -> Mapping[str, tuple[Values, Values]]:
    """Every numeric signal of every subject as `SIGNAL SUBJECT`, second by second."""
    return by_second(recorded, _numbers)


def by_second(recorded: RecordedRun, numbers: Numbers) -> Mapping[str, tuple[Values, Values]]:
    """What `numbers` reads off a look at each second: before the incident, and in it.

    All arrays of one side have the same length and belong to the same seconds; NaN where that second does not show the
    name. Before the incident there is nothing where nobody looked then (what is made, and not played).
    """
    import numpy as np

    told = recorded.told
    with opened(recorded.bundle) as bundle:
        before, incident = (
            [numbers(slice_bundle(bundle, told, second)) for second in _seconds(span)]
            for span in (told.before, told.incident or _whole(bundle))
        )
    keys = sorted({key for step in (*before, *incident) for key in step})

    def column(steps: Sequence[Mapping[str, float]], key: str) -> Values:
        return np.array([step.get(key, np.nan) for step in steps], dtype=np.float64)

    return {key: (column(before, key), column(incident, key)) for key in keys}


def _whole(bundle: Bundle) -> TimeRange:
    times = [artifact.taken_at for artifact in bundle.artifacts]
    return TimeRange(min(times), max(times))


def _seconds(span: TimeRange | None) -> Iterator[TimeRange]:
    """The seconds of `span`, each with half of its neighbours, so that two pages lie in it: counters need two."""
    if span is None:
        return
    for number in range(int(span.seconds / STEP)):
        edge = span.start + STEP * number
        yield TimeRange(edge - STEP / 2, edge + STEP * 1.5)


def _numbers(bundle: Bundle) -> dict[str, float]:
    found = values(seen(bundle)[0])
    return {f"{signal} {subject}": value for (signal, subject), value in found.items() if not isinstance(value, str)}
