"""Input files named by the user: find readable ones, name their artifacts, recognise the kind of a misplaced file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from latdoctor.collectors import piped_input
from latdoctor.collectors.base import Clock, CollectRequest, CollectResult, SourceAvailability, SourceReader
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.gap_code import GapCode, code_of_os_error
from latdoctor.sanitize import clean

MAX_FILES = 64  # of a folder
_HEAD = 16  # bytes that identify the kind of a file
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class InputFile:
    """A readable file, its first bytes, and the folder through which the user named it, if any."""

    path: Path
    head: bytes
    folder: Path | None = None


@dataclass(slots=True)
class FileFinder:
    """Find the readable files among the named paths; each unreadable one becomes a gap that hides `signals`.

    `endings` select the files of a folder; `nothing` is the next step when a folder contains no such file.
    """

    source: str
    signals: tuple[str, ...]
    endings: tuple[str, ...]
    nothing: str
    gaps: list[Gap] = field(default_factory=list)

    def files(self, paths: Iterable[Path]) -> tuple[InputFile, ...]:
        """Return each file once, in the order of `paths`; files of a folder are sorted by name."""
        found: dict[Path, InputFile] = {}
        for named in paths:
            for path, folder in self._files(named):
                if path not in found and (head := self._read_head(path)) is not None:
                    found[path] = InputFile(path, head, folder)
        return tuple(found.values())

    def _files(self, path: Path) -> Iterator[tuple[Path, Path | None]]:
        try:
            if path.is_dir():
                yield from ((file, path) for file in self._inside(path))
            elif path.is_file():
                yield path, None
            else:
                exists = path.exists()
                reason = "is not a regular file" if exists else "does not exist"
                self._gap(path, reason, "check the path", GapCode.UNSUPPORTED if exists else GapCode.ABSENT)
        except OSError as error:  # no permission to enter its folder
            self._gap(path, f"cannot be read: {error.strerror}", "check path and permissions", code_of_os_error(error))

    def _inside(self, folder: Path) -> Sequence[Path]:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(self.endings) and path.is_file())
        if not found:
            self._gap(folder, "contains no file of this kind", self.nothing, GapCode.EMPTY)
        if len(found) > MAX_FILES:
            reason = f"{clean(str(folder))}: contains {len(found)} files; only the first {MAX_FILES} are read"
            next_step = "name the files that matter one by one"
            self.gaps.append(Gap(self.source, reason, next_step=next_step, code=GapCode.TOO_LARGE))
        return found[:MAX_FILES]

    def _read_head(self, path: Path) -> bytes | None:
        try:
            with path.open("rb") as file:
                return file.read(_HEAD)
        except OSError as error:
            self._gap(path, f"cannot be read: {error.strerror}", "check path and permissions", code_of_os_error(error))
            return None

    def _gap(self, path: Path, reason: str, next_step: str, code: GapCode) -> None:
        shown = f"{clean(str(path))}: {reason}"
        self.gaps.append(Gap(self.source, shown, self.signals, next_step=next_step, code=code))


_NO_CLOCK = 946684800.0  # 2000: archives without times give 1970 or 1980


def modified_at(path: Path) -> float | None:
    """When the file was last changed, unix seconds UTC; None if that is unknown."""
    try:
        found = path.stat().st_mtime
    except OSError:
        return None
    return found if found > _NO_CLOCK else None


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file as the artifact `name` of its collector, read together with the others of `group`."""

    path: Path
    group: str
    name: str


def file_reader(
    finder: Callable[[], FileFinder],
    *,
    paths: Callable[[CollectRequest], tuple[Path, ...]],
    named: Callable[[FileFinder, tuple[Path, ...]], Iterable[NamedFile]],
    parse: Callable[[Sequence[Artifact]], Evidence],
    availability: SourceAvailability,
) -> SourceReader:
    """The reader of files that the user names: `paths` are those of a request, `named` finds and names them.

    `finder` makes a FileFinder for each collection; its source is the name of the collector.
    """

    def collect(request: CollectRequest, clock: Clock) -> CollectResult:
        own = finder()
        name = own.source
        artifacts = tuple(
            Artifact(
                f"{name}/{one.name}",
                name,
                one.group,
                clean(piped_input.display(one.path)),
                clock.now(),
                one.path,
                modified_at(one.path),
            )
            for one in named(own, paths(request))
        )
        return CollectResult(artifacts, tuple(own.gaps))

    return SourceReader(collect, parse, lambda: (availability,))


def safe_name(name: str, otherwise: str) -> str:
    """Return `name` reduced to the characters allowed in an artifact name; `otherwise` if none remain."""
    safe = _UNSAFE.sub("-", name.replace("..", "."))[:_LONGEST_NAME].strip("._+-")
    return re.sub(r"\.{2,}", ".", safe) or otherwise


def unique_name(name: str, taken: Iterable[str]) -> str:
    """Return `name`, or `name-2`, `name-3`, … if it is taken."""
    known = set(taken)
    found, number = name, 2
    while found in known:
        found, number = f"{name}-{number}", number + 1
    return found
