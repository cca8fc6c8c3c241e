"""Tables in columns, as kubectl prints them: cells by their gaps, by the places of the headings, or by words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

_SEVERAL_WORDS = re.compile(
    r"\b(LAST|FIRST|NOMINATED|READINESS|NODE|SOURCE|CPU|MEMORY)[ ]"
    r"(SEEN|NODE|GATES|SELECTOR|COMPONENT|LIMITS?|REQUESTS?|RESTARTS)\b"
)
_WORD = re.compile(r"\S+")
_GAP = re.compile(r"\s{2,}")
# A cell that contains blanks: `5 (2m ago)`, `3m (x5 over 20m)`, `41 (avg)/5 (avg)`, `10%/80% + 2 more...`.
_CELL = re.compile(r"\S+(?: \((?:x\d+ over \S+|[^()\s]{1,12} ago|avg)\)(?:/\S+(?: \(avg\))?)?)?(?: \+ \d+ more\.\.\.)?")


class Heading(Struct, frozen=True):
    """The headings of a table in small letters, `_` for a blank, and where each begins."""

    names: tuple[str, ...]
    starts: tuple[int, ...]


def heading(line: str) -> Heading:
    """The headings in `line`."""
    joined = _SEVERAL_WORDS.sub(lambda found: found[0].replace(" ", "_"), line.expandtabs(8))
    found = list(_WORD.finditer(joined))
    return Heading(tuple(one[0].lower() for one in found), tuple(one.start() for one in found))


def row(line: str, head: Heading) -> dict[str, str]:
    """The cells of a row by their headings; an empty dict where the row does not fit. A last cell may contain blanks.

    Redaction and pasting change the widths of cells, so the gaps between them count first.
    """
    names = head.names
    line = line.expandtabs(8).rstrip()
    indent = len(line) - len(line.lstrip())
    cells = _GAP.split(line.strip())
    if len(cells) > len(names) and names[-1] in ("message", "note"):
        cells = [*cells[: len(names) - 1], "  ".join(cells[len(names) - 1 :])]
    if len(cells) == len(names):
        return dict(zip(names, cells, strict=True))
    if indent <= head.starts[0] and _aligned(line, head.starts):
        ends = (*head.starts[1:], None)
        return {name: line[start:end].strip() for name, start, end in zip(names, head.starts, ends, strict=True)}
    return _by_words(line.strip(), names)


def _aligned(line: str, starts: Sequence[int]) -> bool:
    """Whether a cell can begin at every heading: a blank stands before it."""
    return all(start == 0 or start >= len(line) or line[start - 1] == " " for start in starts)


def _by_words(line: str, names: Sequence[str]) -> dict[str, str]:
    """Cells of a row whose gaps are single blanks."""
    cells: list[str] = []
    place = 0
    while place < len(line) and len(cells) < len(names):
        if len(cells) == len(names) - 1:
            cells.append(line[place:].strip())
            break
        found = _CELL.match(line, place)
        if not found:
            return {}
        cells.append(found[0])
        place = found.end()
        while place < len(line) and line[place] == " ":
            place += 1
    return dict(zip(names, cells, strict=False)) if len(cells) == len(names) else {}
