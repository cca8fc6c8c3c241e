"""Recordings on disk. A complete run is never repeated; a spoiled one is repeated up to TRIES times.

bundles/RUN.tar.zst   the recorded evidence
told/RUN.json         the operator's context
truths/RUN.json       the ground truth; written last, so a run with this file is complete
spoiled/RUN.json      the reasons of each spoiled attempt
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import msgspec

from latdoctor import __version__
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.errors import BundleError, LatdoctorError, OperationError
from latdoctor.evaluation.ground_truth import GroundTruth, IncidentContext, RunKind
from latdoctor.evaluation.recording import RecordingAttempt, run_failed
from latdoctor.evaluation.variants import HOST, PLAIN, variants
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import to_json
from latdoctor.evidence.redaction.bundle import redacted
from latdoctor.evidence.redaction.redactor import Redactor
from latdoctor.sanitize import clean

BUNDLES, CONTEXTS, GROUND_TRUTHS, SPOILED = "bundles", "told", "truths", "spoiled"  # folder names on disk
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
    complete: ClassVar[str] = GROUND_TRUTHS  # the subfolder whose file marks a run as complete

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

    def ground_truth(self, run: str) -> GroundTruth:
        """Raises BundleError."""
        return read_json(self.json(GROUND_TRUTHS, run), GroundTruth)

    def keep(self, attempt: RecordingAttempt) -> None:
        """Raises BundleError where a file cannot be written."""
        run = attempt.ground_truth.run
        bundle = self.bundle(run)
        bundle.unlink(missing_ok=True)  # of an attempt that was interrupted before its ground truth was written
        save(attempt.bundle, bundle, __version__)
        tries = len(self.spoiled(run)) + 1
        self.write(CONTEXTS, run, attempt.context)
        self.write(GROUND_TRUTHS, run, msgspec.structs.replace(attempt.ground_truth, tries=tries))


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
    """Record the missing runs of `planned`, at most `most` of them, and returns how many are still missing.

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


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run on disk."""

    bundle: Path
    context: IncidentContext
    ground_truth: GroundTruth

    @property
    def run(self) -> str:
        return self.ground_truth.run

    @property
    def causes(self) -> tuple[str, ...]:
        """The injected causes."""
        return self.ground_truth.causes


def recordings(folder: Path, runs: Sequence[str] | None = None) -> Iterator[RecordedRun]:
    """The complete runs of `folder`, or those named `runs`, sorted by name.

    Raises BundleError, also for a ground truth of another run or with a cause that the catalogue does not have.
    """
    known = frozenset(cause.id for cause in shipped().causes)
    store = RecordingStore(folder)
    for run in store.runs() if runs is None else runs:
        ground_truth, context = store.ground_truth(run), store.context(run)
        if problem := _problem(run, ground_truth, known):
            raise damaged(f"the ground truth of {run} {problem}", store.json(GROUND_TRUTHS, run))
        if ground_truth.kind is RunKind.LIVE and context.incident is None:
            raise damaged(f"the live run {run} has no incident window", store.json(CONTEXTS, run))
        yield RecordedRun(store.bundle(run), context, ground_truth)


def _problem(run: str, ground_truth: GroundTruth, known: Set[str]) -> str:
    """Why `ground_truth` cannot be that of `run`; empty if it can."""
    if unknown := sorted({*ground_truth.causes} - known):
        return f"names the unknown cause {clean(unknown[0], 80)!r}"
    return "" if ground_truth.run == run else f"belongs to {clean(ground_truth.run, 80)!r}"


_OF_PROCESS = re.compile(r"(?<=:/)[^\s\\\"]+")  # in /proc/PID/cgroup: `0::/NAME`, `4:cpu,cpuacct:/NAME`
_FILE_OF = re.compile(r"\"(/proc/[^\"]+/cgroup)\":\"((?:[^\"\\]|\\.)*)\"")


def promote(recorded: RecordedRun, path: Path) -> None:
    """Write the plain variant of `recorded` to `path` as a small bundle for the repository.

    It is redacted like any other, and the cgroups of the recording machine are renamed. Raises BundleError,
    OperationError where a name remains.
    """
    with opened(recorded.bundle) as whole:
        plain = next(view.bundle for view in variants(whole, recorded.context) if view.name == PLAIN)
        redactor = Redactor()
        save(redacted(anonymized(plain), redactor), path, __version__, redactor)


def anonymized(bundle: Bundle) -> Bundle:
    """`bundle` with renamed cgroups in its host samples. Raises OperationError where a name remains."""
    samples = [one.read().decode("utf-8", "surrogateescape") for one in bundle.artifacts if one.collector == HOST]
    names = {name for text in samples for name in _cgroups(text)}
    # The longest first: a group's name contains those of its parents.
    other = {name: f"group-{number}" for number, name in enumerate(sorted(names, key=lambda one: (-len(one), one)), 1)}
    return replace(bundle, artifacts=tuple(_renamed(one, other) for one in bundle.artifacts))


def _cgroups(text: str) -> set[str]:
    """The parts of all cgroup names in a sample."""
    found = set()
    for _, content in _FILE_OF.findall(text):
        for name in _OF_PROCESS.findall(content.replace("\\n", " ")):
            found |= {part for part in name.split("/") if part}
    return found


def _renamed(artifact: Artifact, other: dict[str, str]) -> Artifact:
    if artifact.collector != HOST or not other:
        return artifact
    text = artifact.read().decode("utf-8", "surrogateescape")
    for name, new in other.items():
        text = re.sub(rf"(?<=/){re.escape(name)}(?=[/\\\"\s]|$)", new, text)
    if left := [name for name in other if f"/{name}/" in text or f"/{name}\\n" in text]:
        raise OperationError(f"a cgroup name could not be replaced: {left[0]}", where=artifact.name)
    return replace(artifact, content=text.encode("utf-8", "surrogateescape"))
