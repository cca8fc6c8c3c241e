"""Results that were saved as JSON and are read again: bounded, typed, and of a known schema version."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from latdoctor.errors import UsageError
from latdoctor.regular_file import read_regular

_MOST_BYTES = 16 << 20


class Stored(Protocol):
    """What is saved."""

    @property
    def schema_version(self) -> str: ...


Result = TypeVar("Result", bound=Stored)


def read_stored(path: Path, kind: type[Result], version: str, *, what: str, made_by: str) -> Result:
    """The result in `path`. `what` it is, `made_by`: the command that writes it. Raises UsageError for other files."""
    try:
        content = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})", where=str(path), next_step=made_by) from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"more than {_MOST_BYTES >> 20} MiB", where=str(path))
    try:
        found = msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise UsageError(f"not {what} ({error})", where=str(path), next_step=made_by) from error
    if found.schema_version != version:
        raise UsageError(f"schema version {found.schema_version} is not supported", where=str(path))
    return found
