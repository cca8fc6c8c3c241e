"""Where something is to be written: refused before a look where it could not be written after it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from latdoctor.errors import BundleError, UsageError


def must_be_writable(path: Path, what: str) -> None:
    """Raises BundleError where `what` cannot be made at `path`: its nearest folder refuses."""
    parent = path.absolute().parent
    try:
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        is_folder = parent.is_dir()
    except OSError as error:
        raise cannot_write(path, what, error) from error
    if not is_folder:
        raise cannot_write(path, what, OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise cannot_write(path, what, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def must_take_a_file(path: Path, what: str) -> None:
    """Raises BundleError where the file `what` cannot be written to `path`: its folder is missing, or it is one."""
    if path.is_dir():
        raise cannot_write(path, what, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
    if not path.absolute().parent.exists():
        raise cannot_write(path, what, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
    must_be_writable(path, what)


def must_be_a_folder(path: Path, what: str) -> None:
    """Raises BundleError where something stands at `path` that is no folder."""
    if stands(path) and not path.is_dir():
        raise BundleError(f"{what} is needed, and this is none", where=str(path), next_step="choose another place")


def write_text(path: Path, text: str, what: str) -> None:
    """Writes the file `what`. Raises BundleError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, what, error) from error


def stands(path: Path) -> bool:
    """Whether something is at `path`; a folder that may not be entered counts as empty: writing there will fail."""
    return os.path.lexists(path)


def cannot_write(path: Path, what: str, error: OSError) -> BundleError:
    return BundleError(f"{what} cannot be written: {error.strerror}", where=str(path), next_step="choose another place")


def must_be_new(path: Path) -> None:
    """Raises UsageError where something is at `path`; called before the collection starts."""
    if stands(path):
        raise UsageError(
            "already exists, and is not written over", where=str(path), next_step="name a new file, or move this one"
        )


def write_new(text: str, path: Path) -> None:
    """Raises OSError; FileExistsError where something has come to be there meanwhile."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
