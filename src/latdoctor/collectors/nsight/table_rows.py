"""Lines of printed tables as cells: CSV, and the aligned columns above which `nsys stats` rules a line of dashes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from latdoctor.errors import SourceError

_RULE = re.compile(r"\s*-{2,}(?:\s+-{2,}){2,}\s*$")
_GAP = re.compile(r"\s{2,}")
_DASHES = re.compile(r"-{2,}")


def rows(text: str, where: str) -> Iterator[list[str]]:
    """Cells of every line, empty for a blank one.

    A quote that is never closed must not swallow the rest of the file, so that every line is read by itself.
    """
    lines = text.splitlines()
    spans: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if line.startswith("=="):  # what nvprof says of itself: ==PID== …
            continue
        if spans and _RULE.fullmatch(line):
            continue
        if number + 1 < len(lines) and line.strip() and _RULE.fullmatch(lines[number + 1]):
            spans = [found.span() for found in _DASHES.finditer(lines[number + 1])]
            yield _aligned(line, spans)
        elif spans and line.strip():
            yield _aligned(line, spans)
        else:
            spans = []
            yield _separated(line, where)


def _aligned(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The cells of a line under or above a rule with columns at `spans`; the last one holds the rest."""
    cells = _GAP.split(line.strip(), maxsplit=len(spans) - 1)
    if len(cells) == len(spans):
        return cells
    ends = [end for _, end in spans[:-1]] + [len(line)]
    starts = [0] + [end for _, end in spans[:-1]]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _separated(line: str, where: str) -> list[str]:
    try:
        cells = next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error as error:
        raise SourceError(f"is no table: {error}", where=where) from error
    return [cell.strip() for cell in cells]
