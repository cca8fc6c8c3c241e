"""Where runs keep what has to outlive them: the journal, the locks, the evidence."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from latdoctor.errors import UsageError

JOURNAL, LOCKS, RUNS, INCIDENTS, STOP = "journal.sqlite", "locks", "runs", "incidents", "STOP"
_OWN = 0o700


def folder(environment: Mapping[str, str] | None = None) -> Path:
    """$LATDOCTOR_STATE, else $XDG_STATE_HOME/latdoctor, else ~/.local/state/latdoctor; nothing is made.

    Raises UsageError where none of them says a place.
    """
    said = os.environ if environment is None else environment
    if said.get("LATDOCTOR_STATE"):
        return Path(said["LATDOCTOR_STATE"]).absolute()
    # The XDG base directory specification: a path that is not absolute is not valid, and ignored.
    general = Path(said.get("XDG_STATE_HOME", ""))
    if general.is_absolute():
        return general / "latdoctor"
    try:
        home = Path(said["HOME"]) if said.get("HOME") else Path.home()
    except RuntimeError as error:
        raise UsageError(
            "there is no place to keep the journal: this user has no home", next_step="set LATDOCTOR_STATE=FOLDER"
        ) from error
    return home.absolute() / ".local" / "state" / "latdoctor"


def ensure_private(folder: Path) -> None:
    """Makes `folder` for its owner alone, and what is missing above it; each is on the disk when this returns.

    Raises UsageError where it cannot be made, or others can write to it: they could change what is believed.
    """
    try:
        _make(folder)
    except (OSError, ValueError) as error:
        raise _cannot_be_used(folder, error) from error
    check_private(folder)


def check_private(folder: Path) -> None:
    """Makes nothing: a folder that is not there is nobody else's. Raises UsageError as `ensure_private` does."""
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
            f"belongs to user {found.st_uid}, who could change what is believed",
            where=str(folder),
            next_step="run as that user, or name a folder of your own in LATDOCTOR_STATE",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            "others can write to it, and so could change what is believed",
            where=str(folder),
            next_step=f"if nobody has: chmod 700 {folder}",
        )


def _cannot_be_used(folder: Path, error: OSError | ValueError) -> UsageError:
    """ValueError: a NUL in the name."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return UsageError(
        f"cannot be used to keep what was done: {reason}",
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
