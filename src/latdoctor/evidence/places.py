"""Where something is to be written: refused before a look where it could not be written after it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from latdoctor.errors import BundleError


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


def stands(path: Path) -> bool:
    """Whether something is at `path`; a folder that may not be entered counts as empty: writing there will tell."""
    return os.path.lexists(path)


def cannot_write(path: Path, what: str, error: OSError) -> BundleError:
    return BundleError(f"{what} cannot be written: {error.strerror}", where=str(path), next_step="choose another place")
