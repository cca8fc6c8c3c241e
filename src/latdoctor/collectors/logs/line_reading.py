"""Reads the lines of one log: those with a needle in full, and some others for their writers and times.

All lines at the beginning are read, and later ones at places spread evenly over each block, so that it is known who
wrote the log and what time it covers without decoding a million lines of a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from latdoctor.collectors.logs import broken_lines, formats, line_prefix, mentions, patterns, typed_commands
from latdoctor.collectors.logs.candidates import MANY, Candidates
from latdoctor.collectors.logs.line_kind import LineKind, LineLocation, LineReader
from latdoctor.collectors.logs.line_prefix import BARE, MAX_LINE, LogLine
from latdoctor.collectors.logs.log_clock import LogTimes
from latdoctor.collectors.logs.scanner import LogScanner
from latdoctor.collectors.logs.undated_times import UndatedTimes

MAX_RECORD = 1 << 20  # bytes of a JSON record
HEAD_LINES = 500  # at the beginning, all of which are read
NEAR = 64  # lines: a line without a time (part of a traceback) has the time of one at most so far before it
_STEP, _LATER_STEP = 8 << 10, 64 << 10  # bytes between other lines that are read, at first and in a long log
_LONG = 50_000  # lines, after which a log is long
# Of records: texts that escapes or lists of numbers hide from the needles, and records that cannot be read.
HIDING = (rb"\\u00[2-7]", rb"\\u[dD][89a-fA-F]", rb'"MESSAGE"\s*:\s*(?:null|\[)', rb"[^}\]\s]\r?$")


class LineReading:
    """Passes the lines of one log to its scanner and to the readers of other kinds of lines. Mutable."""

    def __init__(
        self,
        scan: LogScanner,
        kinds: Sequence[tuple[LineKind, LineReader]],
        candidate: Candidates,
        written_by: float,
        times: LogTimes,
        *,
        records: bool,
        undated: UndatedTimes | None = None,
    ) -> None:
        self._times = times
        self._scan = scan
        self._kinds = kinds
        self._candidate = candidate
        self._worth = candidate.of_records(HIDING) if records else candidate
        self._levels = 0  # lines of levels that were read
        self._written_by = written_by
        self._records = records
        self._undated = undated
        self._number = 0  # lines before the place reached
        self._nearest: tuple[LogLine, int] | None = None  # the last line with a time, and its number
        self.unread = 0  # records

    def read(self, blocks: Iterable[bytes]) -> None:
        """Read a log of lines or records, in blocks that end behind a line."""
        context = b""
        for block in blocks:
            view = context + block if context else block
            self._read_block(view, len(context))
            context = _last_lines(view)
        if self._scan.coverage and not self._records:
            for start, end in _all_lines(context, 0):
                self._scan.coverage.note_time(self._parsed(context[start:end]))

    def _read_block(self, view: bytes, base: int) -> None:
        at, looked = base, 0
        for start, end, worth, sampled in self._places(view, base):
            self._number += view.count(b"\n", at, start)
            at = start
            raw = view[start:end]
            if self._records:
                self._take_record(raw, sampled)
                continue
            found = self._line(raw, worth)
            line = self._undated.placed(found.line, raw) if self._undated else found.line
            if worth and line.time is None and line.uptime is None:
                line = self._with_nearest(line, view, start, looked)
                looked = start
            elif line.time is not None:
                self._nearest = (line, found.number)
                looked = start
            searched = raw[:MAX_LINE]
            if len(raw) > MAX_LINE:  # the message of a long record may be behind it
                searched += b"\n" + line.message.encode("utf-8", "replace")
            found = replace(found, line=line)
            whole = self._rejoined(found, raw, view[end + 1 : end + 1 + MAX_LINE])
            if whole is not found:
                searched += b"\n" + whole.raw
            self._pass_on(whole, searched, worth or whole is not found, sampled)
        self._number += view.count(b"\n", at)

    def _places(self, view: bytes, base: int) -> Iterator[tuple[int, int, bool, bool]]:
        """Where the lines to be read begin and end, in order; whether they contain a needle, and are a sample."""
        others = self._others(view, base)
        other = next(others, None)
        many = self._levels >= MANY
        for start, end in self._worth.thinned(view, base) if many else self._worth.lines(view, base):
            while other is not None and other[0] < start:
                yield (*other, False, True)
                other = next(others, None)
            sampled = other is not None and other[0] == start
            if sampled:
                other = next(others, None)
            yield start, end, True, sampled
        while other is not None:
            yield (*other, False, True)
            other = next(others, None)

    def _others(self, view: bytes, base: int) -> Iterator[tuple[int, int]]:
        """Lines that are read whatever they contain."""
        start, left = base, HEAD_LINES - self._number
        step = _STEP if self._number < _LONG else _LATER_STEP
        while start < len(view):
            end = view.find(b"\n", start)
            end = len(view) if end < 0 else end
            yield start, end
            left -= 1
            start = end + 1 if left > 0 else view.find(b"\n", start + step) + 1 or len(view)

    def _line(self, raw: bytes, worth: bool) -> LineLocation:
        number = self._number + 1
        if worth:
            start = raw[:MAX_RECORD]
            text, line = formats.line_of(start, self._written_by)
            return LineLocation(number, text, self._times.in_utc(line), raw=start)
        text = line_prefix.clean_line(raw[:MAX_LINE])
        return LineLocation(number, text, self._times.in_utc(line_prefix.parse(text, self._written_by)))

    def _rejoined(self, at: LineLocation, raw: bytes, behind: bytes) -> LineLocation:
        """The line with those that it was broken into, where they report more than it does; else `at`."""
        begun = broken_lines.begun_in(at.line.message)
        if not begun and not broken_lines.ends_in_piece(raw):
            return at
        further, own = self._further(behind), patterns.parse_facts(at.line)
        spanning = broken_lines.spanning(raw, further[0]) if further else ()
        for joined in broken_lines.joinings(raw[:MAX_LINE], further) if begun or spanning else ():
            text, line = formats.line_of(joined, self._written_by)
            facts = patterns.parse_facts(line)
            if len(facts) > len(own) or (len(facts) == len(own) > 0 and _goes_on(raw, further[0])):
                line = replace(line, time=at.line.time, zoned=at.line.zoned)
                return replace(at, text=text, line=line, raw=joined)
        suspected = (*(begun if not own else ()), *spanning, *(broken_lines.cut_short(raw) if not behind else ()))
        self._scan.suspect(suspected, at.place)
        return at

    def _further(self, behind: bytes) -> list[bytes]:
        """The lines at the beginning of `behind` that have no prefix of a log, and may be parts of one before."""
        found: list[bytes] = []
        for raw in behind.split(b"\n", broken_lines.MOST_LINES)[: broken_lines.MOST_LINES]:
            text, line = formats.line_of(raw, self._written_by)
            if not text.strip() or line.writer != BARE or typed_commands.command_in(text):
                break
            found.append(raw)
        return found

    def _parsed(self, raw: bytes) -> LogLine:
        return self._times.in_utc(line_prefix.parse(line_prefix.clean_line(raw[:MAX_LINE]), self._written_by))

    def _with_nearest(self, line: LogLine, view: bytes, start: int, looked: int) -> LogLine:
        """`line` with the time of the nearest line before it; each line is looked at once."""
        number, end = self._number + 1, start
        for before in range(1, NEAR + 1):
            if end == 0 or end <= looked:
                break
            begin = view.rfind(b"\n", 0, end - 1) + 1
            _, one = formats.line_of(view[begin : end - 1][:MAX_LINE], self._written_by)
            if one.time is not None:
                self._nearest = (self._times.in_utc(one), number - before)
                break
            end = begin
        if self._nearest is None or number - self._nearest[1] > NEAR:
            return line
        nearest = self._nearest[0]
        return replace(line, time=nearest.time, zoned=nearest.zoned)

    def _take_record(self, raw: bytes, sampled: bool) -> None:
        if not raw.strip():
            return
        try:
            if len(raw) > MAX_RECORD:
                raise ValueError("record too long")
            for text, parsed in formats.lines_of(raw, self._written_by):
                line = self._times.in_utc(parsed)
                searched = line.message.encode("utf-8", "replace") + b"\n" + raw  # numbers may be in other fields
                found = LineLocation(self._number + 1, text, line, raw=raw)
                self._pass_on(found, searched, self._candidate.search(searched), sampled)
        except ValueError:
            self.unread += 1

    def read_document(self, lines: Iterable[list[tuple[str, LogLine]]]) -> None:
        """Read a JSON document; its records are counted instead of lines."""
        for number, of_record in enumerate(lines, 1):
            for text, parsed in of_record:
                line = self._times.in_utc(parsed)
                message = line.message.encode("utf-8", "replace")
                found = LineLocation(number, text, line, "record")
                self._pass_on(found, message, self._candidate.search(message), sampled=True)

    def _pass_on(self, at: LineLocation, raw: bytes, worth: bool, sampled: bool) -> None:
        """`raw` are the bytes that are searched for the needles of each kind."""
        if at.line.writer == BARE and (command := typed_commands.command_in(at.text)):
            self._scan.note_command(at, command)
            return
        worth = worth and not mentions.is_mention(at.line, at.text)
        self._scan.take(at, worth and self._candidate.has_fact(raw), sampled=sampled)
        coverage = self._scan.coverage
        if not worth or (coverage and (at.line.time is None or coverage.excludes(at.line.time, earlier_too=False))):
            return
        self._levels += self._levels < MANY and self._candidate.is_level(raw)
        for kind, reader in self._kinds:
            if kind.has_needle(raw):
                reader.take(at)


def _goes_on(raw: bytes, further: bytes) -> bool:
    """Whether a number at the end of a line goes on in the next one."""
    return raw[-1:].isdigit() and further[:1].isdigit()


def _last_lines(view: bytes) -> bytes:
    """The last NEAR lines of a block, up to a bound: what follows may be part of them."""
    start = len(view)
    for _ in range(NEAR):
        begin = view.rfind(b"\n", 0, max(0, start - 1)) + 1
        if len(view) - begin > NEAR * MAX_LINE:
            break
        start = begin
        if start == 0:
            break
    return view[start:]


def _all_lines(view: bytes, start: int) -> Iterator[tuple[int, int]]:
    while start < len(view):
        end = view.find(b"\n", start)
        end = len(view) if end < 0 else end
        yield start, end
        start = end + 1
