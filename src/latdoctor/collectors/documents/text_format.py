"""What a format of text is: how it is recognised, which lines belong to it, and how a part of it is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from latdoctor.evidence.model import Evidence, Origin


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a text file in one format: `text` without quoting and colours, from line `first_line` (1 is the first).

    `taken_at` is when the file was written or read, unix seconds UTC: it supplies what times in the text leave out.
    `further`: an earlier part of the file has the same format. `command`: the line before it, which may be its command.
    """

    text: str
    first_line: int
    artifact: str
    source: str
    taken_at: float
    further: bool = False
    command: str = ""
    content: bytes = field(default=b"", repr=False)  # the raw file, of a binary format

    def origin(self, line: int = 0, place: str = "") -> Origin:
        """The origin of something in line `line` of the section (0 is its first) or at a named place in it."""
        return Origin(self.artifact, place or f"line {self.first_line + line}")


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A format of text.

    `begins` matches a line with which a part in this format begins. A part ends before a line that begins another, or
    at a line of a log where `contains_times` is false; `keeps` matches lines that belong to it though they have times.
    `confirms` is searched in the whole part; None where the first line is proof enough. `whole`: the file is one
    document (JSON, XML, CSV) and is never split; `begins` is then searched in its first 128 KiB. `repeats`: a heading
    repeats within a part (`-l`), also after an empty line.
    `cumulative`: later parts of a file repeat what earlier ones say, so only the last is read.
    `in_logs`: servers print it into their logs too, so that a log with such a part stays a log.
    `entries`: how many levels of lists in a JSON document have entries that stand for themselves: one that is cut in
    the middle is read up to its last complete entry there. With 0 only a document that is a list itself is.
    `binary`: the file is no text, and `read` takes its raw content.
    `read_together` reads several files of this format that belong together (two snapshots of counters).
    `quotes_logs`: messages in it, and text that follows it, may be lines of a log; failures in them are read too.
    `read` raises ValueError, or a subclass, where the part is damaged; it never returns a zero for what is absent.
    """

    name: str  # for programs: `nvidia-smi-q`
    title: str  # for people: `nvidia-smi -q`
    begins: re.Pattern[str]
    read: Callable[[Section], Evidence]
    provides: frozenset[str]
    confirms: re.Pattern[str] | None = None
    whole: bool = False
    contains_times: bool = False
    keeps: re.Pattern[str] | None = None
    quotes_logs: bool = False
    repeats: bool = False
    cumulative: bool = False
    in_logs: bool = False
    entries: int = 0
    binary: bool = False
    read_together: Callable[[Sequence[Section]], Evidence] | None = None
