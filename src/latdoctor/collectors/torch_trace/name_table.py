"""Numbering of the names in a trace, with a bound on how many are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from latdoctor.collectors.torch_trace.event_names import LAYER_PREFIX, HostMark, mark_of
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.collectors.torch_trace.disk_spill import Numbers

Name = str | int | float | None

MAX_NAMES = 4096
FURTHER = "(further names)"  # stands for every name beyond them
_INSTANCE = re.compile(r"_\d+$")
_MAX_SHOWN = 120  # characters
_MAX_CACHED = 4096  # characters of a name that is cached


class NameTable(dict[Name, int]):
    """Numbers names on first lookup; `listed` has the sanitised names by number."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self._shown: dict[str, int] = {}

    def __missing__(self, name: Name) -> int:
        code = self._encode(name, self.number(clean("" if name is None else str(name), _MAX_SHOWN)))
        if len(self) < MAX_NAMES and (not isinstance(name, str) or len(name) <= _MAX_CACHED):
            self[name] = code
        return code

    def _encode(self, name: Name, number: int) -> int:
        """Return the value that a lookup of `name` gives."""
        return number

    def number(self, shown: str) -> int:
        """Return the number of a name that is sanitised already."""
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
        """Do the same, faster where nearly all names are equal. `names` must not be empty."""
        if names.count(names[0]) == len(names):
            return np.full(len(names), self[names[0]], np.int32)
        return self.of(names)

    def renumbered(self, listed: Iterable[str]) -> Numbers:
        """Map the numbers of another table to the numbers of this one; never empty."""
        return np.array([self.number(shown) for shown in listed] or [0], np.int32)


class MarkedNameTable(NameTable):
    """Looks up 2 · number, plus 1 where the name has a HostMark: one lookup for both, as most events are operators."""

    def _encode(self, name: Name, number: int) -> int:
        return 2 * number + bool(mark_of(name if isinstance(name, str) else ""))


class HostMarkCache(dict[str | None, HostMark]):
    """Caches what the names of host events mark."""

    def __missing__(self, name: str | None) -> HostMark:
        found = mark_of(name or "")
        # Steps and functions are numbered without end, so the cache is bounded.
        if len(self) < MAX_NAMES and len(name or "") <= _MAX_CACHED:
            self[name] = found
        return found


def layer_class(name: str) -> str:
    """Return the class of a layer: `nn.Module: Linear_9` → `Linear`."""
    return clean(_INSTANCE.sub("", name.removeprefix(LAYER_PREFIX)), _MAX_SHOWN) or name
