"""Recordings on disk. A complete run is never repeated; a spoiled one is repeated up to TRIES times.

bundles/RUN.tar.zst   the recorded evidence
told/RUN.json         the operator's context
truths/RUN.json       the ground truth; written last, so a run with this file is complete
spoiled/RUN.json      the reasons of each spoiled attempt
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import msgspec

from latdoctor import __version__
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.errors import BundleError, LatdoctorError
from latdoctor.evaluation.ground_truth import GroundTruth, IncidentContext, RunKind, TimeRange
from latdoctor.evaluation.recording import RecordingAttempt, run_failed
from latdoctor.evaluation.variants import slice_bundle
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.diff import values
from latdoctor.evidence.model import to_json
from latdoctor.pipeline import seen
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

BUNDLES, CONTEXTS, TRUTHS, SPOILED = "bundles", "told", "truths", "spoiled"  # folder names on disk
TRIES = 3
T = TypeVar("T")


class PlannedRun(Protocol):
    """A run to record: its name and its approximate duration in seconds."""

    @property
    def run(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class RunAttempt(Protocol):
    """One attempt at a run; `spoiled`: why it does not count."""

    @property
    def spoiled(self) -> tuple[str, ...]: ...


Due = TypeVar("Due", bound=PlannedRun)
Attempt = TypeVar("Attempt", bound=RunAttempt)
Attempt_contra = TypeVar("Attempt_contra", bound=RunAttempt, contravariant=True)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The runs of a folder: complete ones, and the spoiled attempts of each."""

    folder: Path
    complete: ClassVar[str] = TRUTHS  # the subfolder whose file marks a run as complete

    def runs(self) -> tuple[str, ...]:
        """The complete runs, sorted by name."""
        return tuple(sorted(path.stem for path in (self.folder / self.complete).glob("*.json")))

    def attempted(self) -> tuple[str, ...]:
        """Every run with at least one file, complete or not, sorted by name."""
        parts = (self.complete, CONTEXTS, SPOILED)
        return tuple(sorted({path.stem for part in parts for path in (self.folder / part).glob("*.json")}))

    def spoiled(self, run: str) -> tuple[tuple[str, ...], ...]:
        """The reasons of each spoiled attempt. Raises BundleError."""
        path = self.json(SPOILED, run)
        return read_json(path, tuple[tuple[str, ...], ...]) if path.exists() else ()

    def losses(self, runs: Iterable[str]) -> tuple[int, int]:
        """The number of spoiled attempts of `runs`, and how many of `runs` were given up after TRIES of them."""
        tries = {run: len(self.spoiled(run)) for run in runs}
        given_up = sum(count >= TRIES and not self.json(self.complete, run).exists() for run, count in tries.items())
        return sum(tries.values()), given_up

    def is_due(self, planned: PlannedRun) -> bool:
        """Whether the run is neither recorded nor given up."""
        return not self.json(self.complete, planned.run).exists() and len(self.spoiled(planned.run)) < TRIES

    def missing(self, planned: Sequence[Due]) -> tuple[Due, ...]:
        return tuple(run for run in planned if self.is_due(run))

    def keep_spoiled(self, run: str, reasons: Sequence[str]) -> None:
        self.write(SPOILED, run, (*self.spoiled(run), tuple(reasons)))

    def json(self, what: str, run: str) -> Path:
        return self.folder / what / f"{run}.json"

    def write(self, what: str, run: str, value: object) -> None:
        path = self.json(what, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(to_json(value))
        part.replace(path)


@dataclass(frozen=True, slots=True)
class RecordingStore(RunFolder):
    """A folder of recordings."""

    def bundle(self, run: str) -> Path:
        return self.folder / BUNDLES / f"{run}.tar.zst"

    def context(self, run: str) -> IncidentContext:
        """Raises BundleError."""
        return read_json(self.json(CONTEXTS, run), IncidentContext)

    def truth(self, run: str) -> GroundTruth:
        """Raises BundleError."""
        return read_json(self.json(TRUTHS, run), GroundTruth)

    def keep(self, attempt: RecordingAttempt) -> None:
        """Raises BundleError where a file cannot be written."""
        run = attempt.truth.run
        bundle = self.bundle(run)
        bundle.unlink(missing_ok=True)  # of an attempt that was interrupted before its truth was written
        save(attempt.bundle, bundle, __version__)
        tries = len(self.spoiled(run)) + 1
        self.write(CONTEXTS, run, attempt.context)
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
    """The error for an invalid file of a recording."""
    return BundleError(f"damaged: {what}", where=str(path), next_step="delete it, and record that run again")


class RunStore(Protocol[Attempt_contra]):
    """A store of complete runs."""

    def is_due(self, planned: PlannedRun) -> bool: ...
    def missing(self, planned: Sequence[Due]) -> tuple[Due, ...]: ...
    def keep(self, attempt: Attempt_contra) -> None: ...
    def keep_spoiled(self, run: str, reasons: Sequence[str]) -> None: ...


def record(
    store: RunStore[Attempt],
    planned: Sequence[Due],
    attempt: Callable[[Due, Callable[[str], None]], Attempt],
    log: Callable[[str], None],
    *,
    most: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Records the missing runs of `planned`, at most `most` of them, and returns how many are still missing.

    A spoiled run is repeated at once. A run whose scenario fails counts as spoiled, so that the others continue.
    """
    due = store.missing(planned)
    remaining = [run.seconds for run in due]
    spent, expected = 0.0, 0.0
    for number, run in enumerate(due[:most], 1):
        pace = spent / expected if expected else 1.0
        log(f"{number} of {len(due)}: {run.run} (about {_minutes(pace * sum(remaining[number - 1 :]))} left)")
        started = clock()
        while store.is_due(run):
            _try(store, run, attempt, log)
        spent += clock() - started
        expected += remaining[number - 1]
    return len(store.missing(planned))


def _try(
    store: RunStore[Attempt],
    planned: Due,
    attempt: Callable[[Due, Callable[[str], None]], Attempt],
    log: Callable[[str], None],
) -> None:
    try:
        result = attempt(planned, log)
    except LatdoctorError as error:
        reasons: tuple[str, ...] = (run_failed(error),)
    else:
        reasons = result.spoiled
        if not reasons:
            store.keep(result)
            return
    log(f"spoiled: {'; '.join(reasons)}")
    store.keep_spoiled(planned.run, reasons)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


STEP = 1.0  # seconds between two columns of a time series

Numbers = Callable[[Bundle], Mapping[str, float]]  # the numeric values of a slice, by name


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run on disk."""

    bundle: Path
    context: IncidentContext
    truth: GroundTruth


def recordings(folder: Path, runs: Sequence[str] | None = None) -> Iterator[RecordedRun]:
    """The complete runs of `folder`, or those named `runs`, sorted by name.

    Raises BundleError, also for a ground truth of another run or with a cause that the catalogue does not have.
    """
    known = frozenset(cause.id for cause in shipped().causes)
    store = RecordingStore(folder)
    for run in store.runs() if runs is None else runs:
        truth, context = store.truth(run), store.context(run)
        if problem := _problem(run, truth, known):
            raise damaged(f"the ground truth of {run} {problem}", store.json(TRUTHS, run))
        if truth.kind is RunKind.LIVE and context.incident is None:
            raise damaged(f"the live run {run} has no incident window", store.json(CONTEXTS, run))
        yield RecordedRun(store.bundle(run), context, truth)


def _problem(run: str, truth: GroundTruth, known: Set[str]) -> str:
    """Why `truth` cannot be that of `run`; empty where it can."""
    if unknown := sorted({*truth.causes} - known):
        return f"names the unknown cause {clean(unknown[0], 80)!r}"
    return "" if truth.run == run else f"belongs to {clean(truth.run, 80)!r}"


def signals(recorded: RecordedRun) -> Mapping[str, tuple[Values, Values]]:
    """Every numeric signal of every subject as `SIGNAL SUBJECT`, second by second."""
    return by_second(recorded, _numbers)


def by_second(recorded: RecordedRun, numbers: Numbers) -> Mapping[str, tuple[Values, Values]]:
    """The time series of `numbers`, one value per second: before the incident, and during it.

    All arrays of one side have the same length and cover the same seconds; NaN where a second lacks the name. Synthetic
    runs have no values before the incident.
    """
    import numpy as np

    context = recorded.context
    with opened(recorded.bundle) as bundle:
        before, incident = (
            [numbers(slice_bundle(bundle, context, second)) for second in _seconds(span)]
            for span in (context.before, context.incident or _whole(bundle))
        )
    keys = sorted({key for step in (*before, *incident) for key in step})

    def column(steps: Sequence[Mapping[str, float]], key: str) -> Values:
        return np.array([step.get(key, np.nan) for step in steps], dtype=np.float64)

    return {key: (column(before, key), column(incident, key)) for key in keys}


def _whole(bundle: Bundle) -> TimeRange:
    times = [artifact.taken_at for artifact in bundle.artifacts]
    return TimeRange(min(times), max(times))


def _seconds(span: TimeRange | None) -> Iterator[TimeRange]:
    """The seconds of `span`, each extended by half a second on both sides: counters need two pages."""
    if span is None:
        return
    for number in range(int(span.seconds / STEP)):
        start = span.start + STEP * number
        yield TimeRange(start - STEP / 2, start + STEP * 1.5)


def _numbers(bundle: Bundle) -> dict[str, float]:
    found = values(seen(bundle)[0])
    return {f"{signal} {subject}": value for (signal, subject), value in found.items() if not isinstance(value, str)}
