"""JSON that ends in the middle, as a paste does: cut back to the entries of its list that are complete. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# A string, a bracket, or the beginning of a string that does not end.
_TOKEN = re.compile(r'"(?>[^"\\]+|\\[\s\S])*+"|[\[\]{}"]')
_CLOSES = {"[": "]", "{": "}"}
_DEEPEST = 200


@dataclass(slots=True)
class _Open:
    """A list or object that is open: how many lists and objects in it are complete, and where the last one ends."""

    bracket: str
    complete: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class CutJson:
    """`text` closed behind its last complete entry. `entries`: how many the list has that was cut."""

    text: str = field(repr=False)
    entries: int


def is_cut(text: str) -> bool:
    """Whether `text` is JSON up to its end, where it is not closed."""
    return bool(_open_at_end(text))


def complete_entries(text: str, levels: int) -> CutJson | None:
    """The complete entries of the outermost list that has one; None where `text` is not cut, or has none.

    Only lists within fewer than `levels` others are cut, and the document itself where it is one: what is in a deeper
    list belongs to an entry that is not whole.
    """
    opened = _open_at_end(text)
    levels = max(levels, int(text.lstrip()[:1] == "["))
    depth = 0
    for place, one in enumerate(opened):
        if one.bracket != "[":
            continue
        depth += 1
        if depth > levels:
            break
        if one.complete:
            closing = "".join(_CLOSES[outer.bracket] for outer in reversed(opened[: place + 1]))
            return CutJson(text[: one.end] + closing, one.complete)
    return None


def complete_lines(text: str) -> CutJson | None:
    """The lines of JSON before a last one that is cut; None where the last is not."""
    before, _, last = text.rstrip().rpartition("\n")
    return CutJson(before, before.count("\n") + 1) if before and is_cut(last) else None


def _open_at_end(text: str) -> list[_Open]:
    """What is open where `text` ends, the outermost first; empty where it is closed, or is no JSON."""
    opened: list[_Open] = []
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == '"':
            break
        if mark in _CLOSES:
            if len(opened) == _DEEPEST:
                return []
            opened.append(_Open(mark))
        elif mark in "]}":
            if not opened or _CLOSES[opened.pop().bracket] != mark:
                return []
            if not opened:
                return []
            opened[-1].complete += 1
            opened[-1].end = token.end()
    return opened
