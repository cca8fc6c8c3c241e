"""Files and folders that the user named: which of them can be read, what their artifacts are called, and the
collectors that do nothing but find such files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from latdoctor.collect.source import Clock, Collected, Collector, Request, Sight
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.text import clean

MAX_FILES = 64  # of a folder
_HEAD = 16  # bytes by which a kind of file is told
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Found:
    """A file that can be read, its first bytes, and the folder that the user named in its place, if one was."""

    path: Path
    head: bytes
    folder: Path | None = None


@dataclass(slots=True)
class Finder:
    """Looks which of the named files can be read; those that cannot become gaps that hide `signals`.

    `endings` are those of the files of a folder that are meant, `nothing` what to do where it holds none.
    """

    source: str
    signals: tuple[str, ...]
    endings: tuple[str, ...]
    nothing: str
    gaps: list[Gap] = field(default_factory=list)

    def files(self, given: Iterable[Path]) -> tuple[Found, ...]:
        """The files, each once, in the order given; those of a folder by name."""
        found: dict[Path, Found] = {}
        for one in given:
            for path, folder in self._files(one):
                if path not in found and (head := self._opened(path)) is not None:
                    found[path] = Found(path, head, folder)
        return tuple(found.values())

    def _files(self, given: Path) -> Iterator[tuple[Path, Path | None]]:
        try:
            if given.is_dir():
                for path in self._inside(given):
                    yield path, given
            elif given.is_file():
                yield given, None
            else:
                self._gap(given, "is not a regular file" if given.exists() else "does not exist", "check the path")
        except OSError as error:  # its folder may not be entered
            self._gap(given, f"cannot be read: {error.strerror}", "check path and rights")

    def _inside(self, folder: Path) -> Sequence[Path]:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(self.endings) and path.is_file())
        if not found:
            self._gap(folder, "holds no file of this kind", self.nothing)
        if len(found) > MAX_FILES:
            reason = f"holds {len(found)} files; only the first {MAX_FILES} are read"
            self.gaps.append(Gap(self.source, f"{clean(str(folder))}: {reason}", next_step="give the ones that matter"))
        return found[:MAX_FILES]

    def _opened(self, path: Path) -> bytes | None:
        try:
            with path.open("rb") as file:
                return file.read(_HEAD)
        except OSError as error:
            self._gap(path, f"cannot be read: {error.strerror}", "check path and rights")
            return None

    def _gap(self, path: Path, reason: str, next_step: str) -> None:
        self.gaps.append(Gap(self.source, f"{clean(str(path))}: {reason}", self.signals, next_step=next_step))


@dataclass(frozen=True, slots=True)
class Named:
    """A file as the artifact `name` of its collector, read together with the others of `group`."""

    path: Path
    group: str
    name: str


def file_collector(
    finder: Callable[[], Finder],
    *,
    title: str,
    given: Callable[[Request], tuple[Path, ...]],
    named: Callable[[Finder, tuple[Path, ...]], Iterable[Named]],
    parse: Callable[[Sequence[Artifact]], Evidence],
    sight: Sight,
    ask: str,
) -> Collector:
    """A collector of files that the user names: `given` are those of a request, `named` finds and names them.

    `finder` makes a Finder of its own for each look; its source and signals are those of the collector.
    """
    name, signals = finder().source, finder().signals

    def collect(request: Request, clock: Clock) -> Collected:
        own = finder()
        artifacts = tuple(
            Artifact(f"{name}/{one.name}", name, one.group, clean(str(one.path)), clock.now(), one.path)
            for one in named(own, given(request))
        )
        return Collected(artifacts, tuple(own.gaps))

    return Collector(
        name=name,
        title=title,
        provides=frozenset(signals),
        asked=lambda request: bool(given(request)),
        collect=collect,
        parse=parse,
        preflight=lambda: (sight,),
        ask=ask,
        cost="reads a file",
    )


def safe_name(name: str, otherwise: str) -> str:
    """`name` as a part of an artifact's name; `otherwise` where nothing of it is left."""
    kept = _UNSAFE.sub("-", name.replace("..", "."))[:_LONGEST_NAME].strip("._+-")
    return re.sub(r"\.{2,}", ".", kept) or otherwise


def unique(name: str, taken: Iterable[str]) -> str:
    """`name`, or `name-2` and so on where it is taken."""
    known = set(taken)
    found, number = name, 2
    while found in known:
        found, number = f"{name}-{number}", number + 1
    return found
