"""The lines of `kubectl describe` as keys and values, and the parts that every kind of object has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

_PAIR = re.compile(r"\s*([A-Za-z][^:]{0,60}?):(?:\s+(.*?))?\s*$")
_CONDITION = re.compile(r"\s*([A-Z][\w./-]{0,80})\s+(True|False|Unknown)\b[ \t]*(.*)$")
_GAP = re.compile(r"\s{2,}")


class DescribedLine(Struct, frozen=True):
    """A line with its key and value, both empty where it is no pair."""

    number: int
    text: str
    key: str = ""
    value: str = ""


def lines_of(text: Sequence[str], first: int = 0) -> list[DescribedLine]:
    """The lines as pairs."""
    found: list[DescribedLine] = []
    for number, line in enumerate(text, first):
        pair = _PAIR.match(line[:2000])
        found.append(
            DescribedLine(number, line, pair[1].strip(), (pair[2] or "").strip())
            if pair
            else DescribedLine(number, line)
        )
    return found


def objects(lines: Sequence[DescribedLine]) -> Iterator[Sequence[DescribedLine]]:
    """The lines of each object: it begins with its name, which other keys follow."""
    starts = [
        index
        for index, line in enumerate(lines)
        if line.key == "Name" and line.value and next_key(lines, index) in ("Namespace", "Priority", "Roles", "Labels")
    ]
    for start, end in zip([0, *starts], [*starts, len(lines)], strict=True):
        if any(line.text.strip() for line in lines[start:end]):
            yield lines[start:end]


def next_key(lines: Sequence[DescribedLine], index: int) -> str:
    """The key of the line behind that at `index`, of two lines at most."""
    return next((line.key for line in lines[index + 1 : index + 3] if line.text.strip()), "")


def first_line(lines: Sequence[DescribedLine], key: str) -> int:
    """The number of the first line with `key`, else of the object."""
    return next((line.number for line in lines if line.key == key), lines[0].number)


def listed(lines: Sequence[DescribedLine], key: str) -> list[str]:
    """A value with its continuation lines, which have no key."""
    found: list[str] = []
    for line in lines:
        if line.key == key:
            found = [line.value] if line.value and line.value != "<none>" else []
        elif found and line.text[:1].isspace() and not line.key and line.text.strip():
            found.append(line.text.strip())
        elif found:
            break
    return found


def conditions_in(lines: Sequence[DescribedLine]) -> Iterator[tuple[str, str, Sequence[str], int]]:
    """Name, status, the cells behind it, and the number of the line, for each condition in the text."""
    inside = False
    for line in lines:
        if line.key == "Conditions":
            inside = True
            continue
        found = _CONDITION.match(line.text) if inside else None
        if found:
            yield found[1], found[2], _GAP.split(found[3].strip()) if found[3].strip() else (), line.number
        elif inside and line.key and not line.text[:1].isspace():
            inside = False
