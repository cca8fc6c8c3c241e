"""Files named without an option: one bundle, or files of any kind, each recognised by its content."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from latdoctor.cli.console import notice
from latdoctor.cli.options import SourceOptions
from latdoctor.collectors.file_kinds import FileKind, Recognition, by_kind, recognise
from latdoctor.collectors.piped_input import display, is_stream, spool
from latdoctor.errors import SourceError, UsageError
from latdoctor.sanitize import clean

_MAX_FILES = 256
_TIMEOUT = 30.0  # seconds without data from a pipe
# The field of SourceOptions for each kind of file.
_FIELDS = {
    FileKind.METRICS: "metrics",
    FileKind.TRACE: "trace",
    FileKind.NSIGHT: "nsys",
    FileKind.NSIGHT_REPORT: "nsys",
    FileKind.TENSORRT: "tensorrt",
    FileKind.TORCH_MEMORY: "torch_memory",
    FileKind.LOG: "log",
    FileKind.DOCUMENT: "document",
}


@dataclass(frozen=True, slots=True)
class Named:
    """What was named: a bundle, or sources. `bundle` is None for anything but one bundle alone."""

    bundle: Path | None
    sources: SourceOptions


@contextmanager
def sorted_files(paths: Sequence[Path], sources: SourceOptions, *, verbose: bool = False) -> Iterator[Named]:
    """The bundle that `paths` name, or `sources` with the files added by kind. Raises UsageError, SourceError.

    `verbose`: what each file is taken for goes to stderr.
    """
    if len(paths) == 1 and not is_stream(paths[0]) and (_is_bundle_folder(paths[0]) or not paths[0].exists()):
        yield Named(paths[0], sources)
        return
    with tempfile.TemporaryDirectory(prefix="latdoctor-") as folder:
        files = [spool(path, Path(folder), _TIMEOUT) if is_stream(path) else path for path in _expanded(paths)]
        recognised = {path: recognise(path) for path in files}  # the one place: it reads and tries every kind
        kinds = by_kind(recognised)
        if FileKind.BUNDLE in kinds and files == [*paths] and len(files) == 1:
            yield Named(files[0], sources)
            return
        if FileKind.BUNDLE in kinds:
            raise UsageError("a bundle was given, and other files beside it", next_step="pass the bundle alone")
        if verbose:
            _print_kinds(recognised)
        yield Named(None, _with_files(sources, kinds))


def _print_kinds(recognised: Mapping[Path, Recognition | None]) -> None:
    for path, known in recognised.items():
        notice(f"{clean(display(path))}: read as {known.what if known else 'text of an unknown kind'}")


def _with_files(sources: SourceOptions, kinds: Mapping[FileKind, tuple[Path, ...]]) -> SourceOptions:
    added: dict[str, Any] = {}
    for kind, found in kinds.items():
        field = _FIELDS[kind]
        added[field] = (*added.get(field, getattr(sources, field)), *found)
    return replace(sources, **added)


def _is_bundle_folder(path: Path) -> bool:
    return path.is_dir() and ((path / "manifest.json").exists() or (path / "artifacts").is_dir())


def _expanded(paths: Sequence[Path]) -> Iterator[Path]:
    """Each file, and for a folder the files in it and below, hidden ones left out. Raises SourceError."""
    count = 0
    for path in paths:
        inside = _inside(path) if path.is_dir() else [path]
        if not inside:
            raise SourceError("the folder contains no file", where=str(path), next_step="check the path")
        for one in inside:
            count += 1
            if count > _MAX_FILES:
                raise SourceError(f"more than {_MAX_FILES} files", where=str(path), next_step="name those that matter")
            yield one


def _inside(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))
