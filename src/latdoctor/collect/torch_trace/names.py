"""Numbers for names: bounded however many a trace holds, and fast, since every event of a trace goes through them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from latdoctor.collect.torch_trace import api_calls
from latdoctor.text import clean

if TYPE_CHECKING:
    from latdoctor.collect.torch_trace.spool import Numbers

Name = str | int | float | None

MAX_NAMES = 4096
FURTHER = "(further names)"  # what every name beyond them is called
_INSTANCE = re.compile(r"_\d+$")
_LONGEST = 120  # characters shown of a name
_LONGEST_KEPT = 4096  # of one that is looked up


class Names(dict[Name, int]):
    """Numbers names as they are looked up; `listed` are the names, made harmless, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self._shown: dict[str, int] = {}

    def __missing__(self, name: Name) -> int:
        code = self._coded(name, self.number(clean("" if name is None else str(name), _LONGEST)))
        if len(self) < MAX_NAMES and (not isinstance(name, str) or len(name) <= _LONGEST_KEPT):
            self[name] = code
        return code

    def _coded(self, name: Name, number: int) -> int:
        """What is looked up for `name`, whose number this is."""
        return number

    def number(self, shown: str) -> int:
        """The number of a name that is clean already."""
        if shown not in self._shown:
            if len(self.listed) >= MAX_NAMES:
                shown = FURTHER
            if shown not in self._shown:
                self._shown[shown] = len(self.listed)
                self.listed.append(shown)
        return self._shown[shown]

    def of(self, names: Sequence[Name]) -> Numbers:
        return np.fromiter(map(self.__getitem__, names), np.int32, len(names))

    def of_few(self, names: Sequence[Name]) -> Numbers:
        """The same, faster where they are mostly all the same; there must be one."""
        if names.count(names[0]) == len(names):
            return np.full(len(names), self[names[0]], np.int32)
        return self.of(names)

    def renumbered(self, listed: Iterable[str]) -> Numbers:
        """For each name of another numbering, its number in this one; never empty."""
        return np.array([self.number(shown) for shown in listed] or [0], np.int32)


class MarkedNames(Names):
    """Looks up twice the number of a name, and one more where the name tells something (see Marks): one look for both,
    since traces hold more operators than anything else.
    """

    def _coded(self, name: Name, number: int) -> int:
        return 2 * number + bool(api_calls.meaning_of(name if isinstance(name, str) else ""))


class Marks(dict[str | None, str]):
    """What a name of the host's side tells: api_calls.STEP, COMPILES or LAYER, or `` for nothing."""

    def __missing__(self, name: str | None) -> str:
        found = api_calls.meaning_of(name or "")
        # Steps and functions are numbered without end; what is not kept is looked at again.
        if len(self) < MAX_NAMES and len(name or "") <= _LONGEST_KEPT:
            self[name] = found
        return found


def layer_class(name: str) -> str:
    """`nn.Module: Linear_9` → `Linear`: what the layers of one kind are called together."""
    return clean(_INSTANCE.sub("", name.removeprefix(api_calls.LAYER_PREFIX)), _LONGEST) or name
