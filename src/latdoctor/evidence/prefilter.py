"""One search over raw bytes for the lines of a text that contain any of many needles.

RE2 runs all needles as one automaton, in time that grows with the length of the text alone, so that Python handles the
found lines only. Python's `re` would try the needles one after another at each byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

_MEMORY = 64 << 20  # bytes at most that an automaton may take; it takes a few MB


class Prefilter:
    """Finds lines with at least one of `needles`: regular expressions on bytes in the syntax of both `re` and RE2."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self.needles = tuple(needles)

    @cached_property
    def _of_text(self) -> Any:
        return _compiled(b"|".join(self.needles))

    @cached_property
    def _of_lines(self) -> Any:
        return _compiled(b"(?m)^.*(?:%b).*$" % b"|".join(self.needles))

    def search(self, raw: bytes) -> bool:
        """Whether `raw` contains a needle."""
        return self._of_text.search(raw) is not None

    def first(self, raw: bytes, start: int = 0, stop: int | None = None) -> tuple[int, int] | None:
        """Where the first needle between `start` and `stop` begins and ends; what precedes them counts as before it."""
        found = self._of_text.search(raw, start, len(raw) if stop is None else stop)
        return None if found is None else found.span()

    def begins(self, raw: bytes, at: int, length: int) -> bool:
        """Whether a needle of at most `length` bytes begins at `at`."""
        return self._of_text.match(raw, at, min(len(raw), at + length)) is not None

    def lines(self, block: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
        """Where each line with a needle begins and ends, from `start` on, which is the beginning of a line."""
        for found in self._of_lines.finditer(block, start):
            yield found.span()


def _compiled(pattern: bytes) -> Any:
    import re2  # loaded where a log is read

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # one byte is one character, whatever the bytes are
    options.never_capture = True
    options.max_mem = _MEMORY
    options.log_errors = False
    return re2.compile(pattern, options)
