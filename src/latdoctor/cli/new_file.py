"""Documents are written to new files only: what stands there may be what somebody has filled in, or the evidence."""

from __future__ import annotations

from pathlib import Path

from latdoctor.errors import UsageError
from latdoctor.evidence.places import stands


def must_be_new(path: Path) -> None:
    """Raises UsageError where something is at `path`: told before a look, it costs nobody the look."""
    if stands(path):
        raise UsageError(
            "already exists, and is not written over", where=str(path), next_step="name a new file, or move this one"
        )


def write_new(text: str, path: Path) -> None:
    """Raises OSError; FileExistsError where something has come to be there meanwhile."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
