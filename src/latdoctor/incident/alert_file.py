"""A notification that somebody saved or pipes in: `--alert FILE`, or `-` for stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from latdoctor.errors import UsageError
from latdoctor.incident.alerts import MAX_BYTES, parsed
from latdoctor.incident.events import Alerted
from latdoctor.text import clean

STDIN = Path("-")


def alerted(path: Path) -> Alerted:
    """The notification in the file, or on stdin. Raises AlertError, and UsageError where it cannot be read."""
    where = "stdin" if path == STDIN else clean(str(path), 200)
    try:
        return parsed(_content(path), where)
    except OSError as error:
        raise UsageError(
            f"the alert cannot be read: {error.strerror}", where=where, next_step="check path and rights"
        ) from error


def _content(path: Path) -> bytes:
    """At most one byte more than is read of a notification: then it is too long, and told so."""
    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)
