"""Files with credentials: where a configuration may name them, and the warning about those that others can read."""

from __future__ import annotations

import os
from pathlib import Path

from latdoctor.cli.console import notice_once
from latdoctor.regular_file import read_by_others
from latdoctor.sanitize import clean


def misplaced(file: Path, folders: tuple[Path, ...]) -> str:
    """Why a configuration may not name this file of credentials; empty where it lies below one of `folders`.

    Links are resolved: a file that merely appears to be there may be any file that the user can read.
    """
    place = file.resolve()
    if any(place.is_relative_to(folder.resolve()) for folder in folders):
        return ""
    which = clean(str(file), 200) if place == file.absolute() else f"{clean(str(file), 200)} ({clean(str(place), 200)})"
    return f"{which} is not below the folder of the configuration: credentials are read only from there"


def warn_if_readable(file: Path | None, variable: str = "") -> None:
    """Print a warning, once per command, where other users can read `file`, or else the one that `variable` names."""
    if file is None and os.environ.get(variable):
        file = Path(os.environ[variable])
    if file is None:
        return
    try:
        found = file.stat()
    except OSError:
        return  # reported where the file is read
    if read_by_others(found):
        notice_once(f"{clean(str(file), 300)}: other users can read these credentials. Next: chmod 600 {file}")
