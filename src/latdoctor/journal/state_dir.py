"""State folder of runs and incidents: the journal, the locks, the evidence."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from latdoctor.errors import UsageError

JOURNAL, LOCKS, RUNS, INCIDENTS, STOP = "journal.sqlite", "locks", "runs", "incidents", "STOP"
_OWN = 0o700


def folder(environment: Mapping[str, str] | None = None) -> Path:
    """$LATDOCTOR_STATE, else $XDG_STATE_HOME/latdoctor, else ~/.local/state/latdoctor; creates nothing.

    Raises UsageError where none of them is set.
    """
    variables = os.environ if environment is None else environment
    if variables.get("LATDOCTOR_STATE"):
        return Path(variables["LATDOCTOR_STATE"]).absolute()
    # The XDG base directory specification: a path that is not absolute is not valid, and ignored.
    general = Path(variables.get("XDG_STATE_HOME", ""))
    if general.is_absolute():
        return general / "latdoctor"
    try:
        home = Path(variables["HOME"]) if variables.get("HOME") else Path.home()
    except RuntimeError as error:
        raise UsageError(
            "no folder for the journal: this user has no home", next_step="set LATDOCTOR_STATE=FOLDER"
        ) from error
    return home.absolute() / ".local" / "state" / "latdoctor"


def ensure_private(folder: Path) -> None:
    """Create `folder` for its owner alone, with missing parents, all synced to disk.

    Raises UsageError where it cannot be created, or other users can write to it.
    """
    try:
        _make(folder)
    except (OSError, ValueError) as error:
        raise _cannot_be_used(folder, error) from error
    check_private(folder)


def private_folder() -> Path:
    """The state folder, created where it is missing. Raises UsageError."""
    place = folder()
    ensure_private(place)
    return place


def check_private(folder: Path) -> None:
    """Check an existing folder. Raises UsageError as `ensure_private` does."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise _cannot_be_used(folder, error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError("is no folder", where=str(folder), next_step="name another one in LATDOCTOR_STATE")
    if found.st_uid not in (os.geteuid(), 0):
        raise UsageError(
            f"belongs to user {found.st_uid}, so its content is not trusted",
            where=str(folder),
            next_step="run as that user, or name a folder of your own in LATDOCTOR_STATE",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            "other users can write to it, so its content is not trusted",
            where=str(folder),
            next_step=f"if you trust its content: chmod 700 {folder}",
        )


def _cannot_be_used(folder: Path, error: OSError | ValueError) -> UsageError:
    """ValueError: a NUL in the name."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return UsageError(
        f"cannot be used as state folder: {reason}",
        where=str(folder),
        next_step="name another folder in LATDOCTOR_STATE",
    )


def _make(folder: Path) -> None:
    missing = []
    for place in (folder, *folder.parents):
        if place.exists():
            break
        missing.append(place)
    for place in reversed(missing):
        place.mkdir(mode=_OWN, exist_ok=True)  # another process may be making it too
        fsync_directory(place.parent)


def fsync_directory(folder: Path) -> None:
    """Brings the names in `folder` to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
