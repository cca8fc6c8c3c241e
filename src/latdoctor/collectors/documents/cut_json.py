"""JSON that ends in the middle, as a paste does: cut back to the entries of its list that are complete. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

_CLOSES = {"[": "]", "{": "}"}
_OPENING, _CLOSING, _ONE_BIT = ord("{"), ord("}"), 0x20
_MOST = 20_000_000  # brackets
_DEEPEST = 200
_QUOTE = ord('"')


@dataclass(frozen=True, slots=True)
class _Open:
    """A list or object that is open: how many lists and objects in it are complete, and the byte behind the last."""

    bracket: str
    complete: int
    end: int


@dataclass(frozen=True, slots=True)
class CutJson:
    """`text` closed behind its last complete entry. `entries`: how many the list has that was cut."""

    text: str = field(repr=False)
    entries: int


def is_cut(text: str) -> bool:
    """Whether `text` is JSON up to its end, where it is not closed."""
    return bool(_open_at_end(text.encode()))


def complete_entries(text: str, levels: int) -> CutJson | None:
    """The complete entries of the outermost list that has one; None where `text` is not cut, or has none.

    Only lists within fewer than `levels` others are cut, and the document itself where it is one: what is in a deeper
    list belongs to an entry that is not whole.
    """
    content = text.encode()
    opened = _open_at_end(content)
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
            return CutJson(content[: one.end].decode() + closing, one.complete)
    return None


def complete_lines(text: str) -> CutJson | None:
    """The lines of JSON before a last one that is cut; None where the last is not."""
    before, _, last = text.rstrip().rpartition("\n")
    return CutJson(before, before.count("\n") + 1) if before and is_cut(last) else None


def _open_at_end(content: bytes) -> list[_Open]:
    """What is open where the UTF-8 text ends, the outermost first; empty where it is closed, or is no JSON.

    Whether the brackets fit each other is left to the parser, which reads what is left.
    """
    import numpy as np

    # Of the same length, so that places stay: without escaped backslashes, then without escaped quotes.
    plain = np.frombuffer(content.replace(b"\\\\", b"..").replace(b'\\"', b".."), dtype=np.uint8)
    inside = np.bitwise_xor.accumulate((plain == _QUOTE).view(np.uint8))
    # `[` and `{` differ in one bit, as `]` and `}` do.
    folded = plain | _ONE_BIT
    opening = folded == _OPENING
    marks = (opening | (folded == _CLOSING)) & (inside == 0)
    if not 0 < np.count_nonzero(marks) <= _MOST:
        return []
    places = np.flatnonzero(marks)
    opens = opening[places]
    depth = np.cumsum(opens.astype(np.int8) * np.int8(2) - np.int8(1), dtype=np.int32)
    if depth.min() < 1 or depth[-1] > _DEEPEST:  # closed before the end: not one document that was cut
        return []
    found = []
    for level in range(1, int(depth[-1]) + 1):
        first = int(np.flatnonzero(opens & (depth == level))[-1])
        ends = places[first:][~opens[first:] & (depth[first:] == level)]
        found.append(_Open(chr(content[places[first]]), len(ends), int(ends[-1]) + 1 if len(ends) else 0))
    return found
