"""Files and folders that the user named: which of them can be read, and what their artifacts are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from latdoctor.evidence.model import Gap
from latdoctor.text import clean

MAX_FILES = 64  # of a folder
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST_NAME = 60


@dataclass(slots=True)
class Finder:
    """Looks which of the named files can be read; those that cannot become gaps that hide `signals`.

    `wanted` says which files of a folder are meant, `nothing` what to do where it holds none.
    """

    source: str
    signals: tuple[str, ...]
    wanted: Callable[[Path], bool]
    nothing: str
    gaps: list[Gap] = field(default_factory=list)

    def files(self, given: Iterable[Path]) -> tuple[Path, ...]:
        """The files, each once, in the order given; those of a folder by name."""
        return tuple(dict.fromkeys(path for one in given for path in self._files(one) if self._opens(path)))

    def _files(self, given: Path) -> Iterator[Path]:
        try:
            if given.is_dir():
                yield from self._folder(given)
            elif given.is_file():
                yield given
            else:
                self._gap(given, "is not a regular file" if given.exists() else "does not exist", "check the path")
        except OSError as error:  # its folder may not be entered
            self._gap(given, f"cannot be read: {error.strerror}", "check path and rights")

    def _folder(self, folder: Path) -> Iterator[Path]:
        found = sorted(path for path in folder.iterdir() if self.wanted(path) and path.is_file())
        if not found:
            self._gap(folder, "holds no file of this kind", self.nothing)
        if len(found) > MAX_FILES:
            reason = f"holds {len(found)} files; only the first {MAX_FILES} are read"
            self.gaps.append(Gap(self.source, f"{clean(str(folder))}: {reason}", next_step="give the ones that matter"))
        yield from found[:MAX_FILES]

    def _opens(self, path: Path) -> bool:
        try:
            with path.open("rb"):
                return True
        except OSError as error:
            self._gap(path, f"cannot be read: {error.strerror}", "check path and rights")
            return False

    def _gap(self, path: Path, reason: str, next_step: str) -> None:
        self.gaps.append(Gap(self.source, f"{clean(str(path))}: {reason}", self.signals, next_step=next_step))


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
