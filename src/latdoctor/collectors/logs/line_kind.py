"""The interface of a kind of log lines, such as an engine's statistics or the requests of one server.

A kind is one module with a `LineKind`, listed in `line_kinds.py`. Only lines with one of its needles reach its reader:
one search over the raw bytes finds the lines with a needle of any kind, and all other lines are never decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.collectors.time_range import TimeRange
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.evidence.prefilter import Prefilter


@dataclass(frozen=True, slots=True)
class LineLocation:
    """A line of a log: its number from 1, its cleaned text, and its parsed form.

    `unit` is what is counted: lines, or the records of a JSON document. `raw` is the line or the JSON record as it
    stands in the log.
    """

    number: int
    text: str
    line: LogLine
    unit: str = "line"
    raw: bytes = b""

    @property
    def place(self) -> str:
        """Its place in the log, for an Origin."""
        return f"{self.unit} {self.number}"


class LineReader(Protocol):
    """Reads the lines of one kind in one log. Mutable; made anew for each log."""

    def take(self, at: LineLocation) -> None:
        """Read one line that contains a needle. Must not raise, whatever the line is.

        `at.line.message` is the text behind time and carrier, `at.line.time` is unix seconds UTC. With a requested
        time range, only lines within it are passed on.
        """

    def evidence(self, *, complete: bool) -> Evidence:
        """What the lines show. `complete` is false for a log of which only a part could be read."""


@dataclass(frozen=True)
class LineKind:
    """Lines of one kind. `reader` makes the reader of one log, whose subject is `node/{artifact.group}` as a rule;
    `ranged`, if there is one, that of a log of which a time range is requested.

    `needles` are regular expressions on bytes, of which every line of the kind contains at least one, in the syntax
    that Python's `re` and RE2 share: no look-around, no back-references. Each should hold a word of four letters or
    more that is rare in other logs, because every line that contains it is decoded.

    `levels` are those needles whose lines state nothing but levels at that time, such as the length of a queue: of a
    log with very many such lines, some in each block are read.
    """

    name: str
    needles: tuple[bytes, ...]
    reader: Callable[[Artifact], LineReader]
    ranged: Callable[[Artifact, TimeRange], LineReader] | None = None
    levels: tuple[bytes, ...] = ()

    def of(self, artifact: Artifact, requested: TimeRange | None) -> LineReader:
        """The reader of one log."""
        return self.ranged(artifact, requested) if self.ranged and requested else self.reader(artifact)

    @cached_property
    def has_needle(self) -> Callable[[bytes], bool]:
        """Whether raw bytes contain a needle."""
        return Prefilter(self.needles).search
