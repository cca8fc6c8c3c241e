"""Rows of a CSV text, of any line ending. A text that is no CSV is a ValueError, as in every reader here."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

MAX_ROWS = 500_000


def rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """The first MAX_ROWS rows. Raises ValueError."""
    return list(_bounded(text, delimiter))


def records(text: str) -> list[dict[str, str]]:
    """The rows below the heading by its names, which are stripped; what has no name is left out. Raises ValueError."""
    every = rows(text.removeprefix("\ufeff"))
    heading = [name.strip() for name in every[0]] if every else []
    return [{name: cell for name, cell in zip(heading, row, strict=False) if name} for row in every[1:] if any(row)]


def _bounded(text: str, delimiter: str) -> Iterator[list[str]]:
    lines = io.StringIO(text.replace("\r\n", "\n").replace("\r", "\n"))
    try:
        for number, row in enumerate(csv.reader(lines, delimiter=delimiter)):
            if number >= MAX_ROWS:
                return
            yield row
    except csv.Error as error:
        raise ValueError(f"it is no table of comma-separated values: {error}") from error
