"""Lines that fit one screen of 24 lines by 80 columns: the least important are dropped first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from rich.console import Console
from rich.text import Text

from latdoctor.report.text_utils import WIDTH, wrapped

HEIGHT = 24  # lines
TIE = "\N{NO-BREAK SPACE}"  # between words that stay on one line; printed as a blank
_UNIT = re.compile(r"(?<=\d) (?=(?:[µmn]?s|min|h|x|[KMG]iB)\b|%)")


class Rank(IntEnum):
    """The order in which lines are dropped from a full screen: the highest rank first."""

    KEEP = 0
    DO = 1
    EVIDENCE = 2
    CHANGE = 3
    NOT_SEEN = 4
    MORE = 5
    DETAIL = 6


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an answer. `style` is rich's; `continued` lines are dropped together with the line before."""

    text: str
    style: str = ""
    rank: Rank = Rank.KEEP
    continued: bool = False


def fitted(parts: Iterable[Iterable[Line]], height: int = HEIGHT) -> tuple[Line, ...]:
    """The parts with a blank line between them, at most `height` lines; an empty part is left out."""
    kept = [given for part in parts if (given := list(part))]
    while sum(len(part) for part in kept) + max(0, len(kept) - 1) > height:
        rank = max((line.rank for part in kept for line in part), default=Rank.KEEP)
        if rank == Rank.KEEP:
            break
        part = next(part for part in reversed(kept) if any(line.rank == rank for line in part))
        last = max(number for number, line in enumerate(part) if line.rank == rank)
        first = last
        while first > 0 and part[first].continued and part[first - 1].rank == rank:
            first -= 1  # a sentence is dropped whole
        del part[first : last + 1]
        kept = [part for part in kept if part]
    lines: list[Line] = []
    for part in kept:
        lines += [Line("")] * bool(lines) + part
    return tuple(lines[:height])


def print_lines(lines: Iterable[Line], console: Console) -> None:
    """Each on one line of its own: a command that is longer than the screen can still be pasted."""
    for line in lines:
        console.print(Text(line.text, style=line.style), soft_wrap=True)


def sentence_lines(text: str, first: str, rest: str, most: int = 2) -> list[str]:
    """`text` wrapped in at most `most` lines; cut text ends in an ellipsis."""
    lines = [line.replace(TIE, " ") for line in wrapped(_UNIT.sub(TIE, text), first, rest)]
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: WIDTH - 2].rstrip(' ,.;')} …"]
    return lines
