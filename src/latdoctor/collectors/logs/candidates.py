"""The lines of a log that are worth reading: those with a needle, and of very many lines of levels only some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.evidence.prefilter import Prefilter

MANY = 5_000  # lines of levels in one log, after which they are thinned
_STEP = 64 << 10  # bytes between those that are read then


class Candidates(Prefilter):
    """Finds lines with a needle of the facts or of any kind; `hidden` are needles of lines that may hide another."""

    def __init__(self, facts: bytes, kinds: Sequence[LineKind], hidden: Sequence[bytes] = ()) -> None:
        self._given = (facts, tuple(kinds))
        levels = tuple(needle for kind in kinds for needle in kind.levels)
        needles = (needle for kind in kinds for needle in kind.needles)
        rare = (facts, *hidden, *(needle for needle in needles if needle not in levels))
        super().__init__((*rare, *levels))
        self._facts = Prefilter((facts,))
        self._rare = Prefilter(rare)
        self._levels = Prefilter(levels) if levels else None

    def of_records(self, hidden: Sequence[bytes]) -> Candidates:
        """The same, with `hidden`."""
        return Candidates(*self._given, hidden)

    def has_fact(self, raw: bytes) -> bool:
        """Whether `raw` contains a needle of the facts."""
        return self._facts.search(raw)

    def is_level(self, raw: bytes) -> bool:
        """Whether `raw` is a line of levels."""
        return self._levels is not None and self._levels.search(raw)

    def thinned(self, block: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
        """As `lines`, with one line of levels in so many bytes only."""
        levels = self._some_levels(block, start)
        level = next(levels, None)
        for line in self._rare.lines(block, start):
            while level is not None and level < line:
                yield level
                level = next(levels, None)
            if level == line:
                level = next(levels, None)
            yield line
        while level is not None:
            yield level
            level = next(levels, None)

    def _some_levels(self, block: bytes, start: int) -> Iterator[tuple[int, int]]:
        while self._levels is not None and start < len(block):
            found = next(self._levels.lines(block, start), None)
            if found is None:
                return
            yield found
            start = block.find(b"\n", max(found[1], start + _STEP)) + 1 or len(block)
