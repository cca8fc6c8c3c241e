"""Lines out of what carries them in several lines: journald's export and verbose output, dmesg's JSON, and CRI's pieces
of a line.

Each line of the carrier becomes one line, most of them empty, so that line numbers stay those of the file. Works on
blocks of whole lines, in bounded memory.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from latdoctor.collectors.logs.line_prefix import MAX_LINE

_MOST_LINES = 1000  # that are kept of one message
_MOST_ENTRY = 1 << 20  # bytes that are kept of one journal entry, or of a line in pieces
_LENGTH_BYTES = 4  # of a length, without its zeros
_NAME = rb"[A-Z_][A-Z0-9_]{0,63}"
_EXPORT = re.compile(rb"\s*__CURSOR=[^\n]+\n(?:__|_[A-Z])")
_FIELD = re.compile(rb"(" + _NAME + rb")=(.*)", re.DOTALL)
_BINARY = re.compile(_NAME + rb"$")
_VERBOSE = re.compile(
    rb"(?:[^\W\d]{1,6}\.? )?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: [\w+:/-]{1,40})?) \[s=[0-9a-f]+;"
)
_VERBOSE_FIELD = re.compile(rb"\s{2,}(" + _NAME + rb")=(.*)")
_PIECE = re.compile(rb"(\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) (stdout|stderr)) ([FP]) (.*)", re.DOTALL)
_DMESG = re.compile(rb"\s*\{\s*\"dmesg\"\s*:\s*\[")
_DMESG_FIELD = re.compile(rb"\"(time|msg)\"\s*:\s*(\"(?:[^\"\\]|\\.)*\"|\d{1,12}\.\d{1,9})")
_KEPT = frozenset(
    (b"MESSAGE", b"_TRANSPORT", b"_PID", b"SYSLOG_IDENTIFIER", b"_COMM", b"_HOSTNAME", b"_SOURCE_REALTIME_TIMESTAMP",
     b"__REALTIME_TIMESTAMP", b"_SOURCE_MONOTONIC_TIMESTAMP", b"__MONOTONIC_TIMESTAMP")
)  # fmt: skip
_UNSAFE = re.compile(rb"[^\w.@/-]+")


class _LineCarrier(Protocol):
    """Takes the lines of a carrier, without their ends, and returns the lines to be read for them."""

    def passes(self, block: bytes) -> bool:
        """Whether nothing in the block is carried, so that it need not be taken line by line."""
        ...

    def take(self, line: bytes) -> Iterable[bytes]: ...

    def finish(self) -> Iterable[bytes]: ...


def unwrapped(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks of a log with the lines of its carrier as plain lines or JSON records; other logs as they are."""
    rest = iter(blocks)
    first = next((block for block in rest if block.strip()), b"")
    carrier = _carrier(first)
    if carrier is None:
        yield from itertools.chain([first] if first else [], rest)
        return
    for block in itertools.chain([first], rest):
        if carrier.passes(block):
            yield block
            continue
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        found = [one for line in lines for one in carrier.take(line.rstrip(b"\r"))]
        if found:
            yield b"\n".join(found) + b"\n"
    if found := list(carrier.finish()):
        yield b"\n".join(found) + b"\n"


def _carrier(head: bytes) -> _LineCarrier | None:
    if _EXPORT.match(head):
        return _ExportLines()
    if _DMESG.match(head):
        return _DmesgEntries()
    begin = next((line for line in head.splitlines()[:5] if not line.startswith(b"-- ")), b"")
    if _VERBOSE.match(begin):
        return _VerboseLines()
    found = _PIECE.match(begin)
    return _Pieces() if found else None


class _JournalEntry:
    """One journal entry: its fields and its number of lines. Mutable."""

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}
        self.lines = 0
        self.message_line = 0
        self._size = 0

    def put(self, name: bytes, value: bytes) -> None:
        if name in _KEPT and self._size + len(value) <= _MOST_ENTRY:
            self._size += len(value)
            self.fields.setdefault(name, value)
            if name == b"MESSAGE":
                self.message_line = self.lines

    def placed(self, text: bytes) -> Iterator[bytes]:
        """`text`, of one line or several, at the line of the message, and as many lines in all as the entry has."""
        if not text:
            yield from itertools.repeat(b"", self.lines)
            return
        shown = text.split(b"\n")
        before = max(0, min(self.message_line - 1, self.lines - len(shown)))
        yield from itertools.repeat(b"", before)
        yield from shown
        yield from itertools.repeat(b"", self.lines - before - len(shown))


class _ExportLines:
    """`journalctl -o export`: `NAME=value` lines, an empty line behind each entry. A value of several lines stands
    behind its name alone and its length in 8 bytes, of which the zeros are gone already.
    """

    def __init__(self) -> None:
        self._entry = _JournalEntry()
        self._name = b""  # of the binary value that is being read
        self._value: list[bytes] = []
        self._size = 0  # of the value, with the ends of its lines

    def passes(self, block: bytes) -> bool:
        return False

    def take(self, line: bytes) -> Iterable[bytes]:
        self._entry.lines += 1
        field = _FIELD.match(line)
        if self._name and (field is None or not self._is_whole()) and self._size < _MOST_ENTRY:
            self._value.append(line)
            self._size += len(line) + 1
            return ()
        self._close()
        if field:
            self._entry.put(field[1], field[2])
        elif line and _BINARY.match(line):
            self._name = line
        elif not line:
            return self._finished()
        return ()

    def finish(self) -> Iterable[bytes]:
        self._close()
        return self._finished()

    def _is_whole(self) -> bool:
        """Whether the value has the length that it begins with, by its beginning and size alone."""
        head = b"\n".join(self._value[: _LENGTH_BYTES + 1])[:_LENGTH_BYTES]
        return not self._value or _length_width(head, self._size - 1) is not None

    def _close(self) -> None:
        if self._name:
            raw = b"\n".join(self._value)
            whole = _without_length(raw)
            self._entry.put(self._name, raw.lstrip(bytes(range(32))) if whole is None else whole)
        self._name, self._value, self._size = b"", [], 0

    def _finished(self) -> Iterable[bytes]:
        entry, self._entry = self._entry, _JournalEntry()
        known = {key.decode(): value.decode("utf-8", "replace") for key, value in entry.fields.items()}
        return entry.placed(json.dumps(known).encode() if "MESSAGE" in known else b"")


def _without_length(raw: bytes) -> bytes | None:
    """The value behind its length, where the length fits it."""
    width = _length_width(raw[:_LENGTH_BYTES], len(raw))
    return None if width is None else raw[width:]


def _length_width(head: bytes, size: int) -> int | None:
    """How many bytes of `head`, the beginning of a value of `size` bytes, are the length of the rest."""
    for width in range(1, min(_LENGTH_BYTES, size) + 1):
        if head[:width] == (size - width).to_bytes(8, "little").replace(b"\0", b""):
            return width
    return None


class _VerboseLines:
    """`journalctl -o verbose`: a line with the time, and indented `NAME=value` lines; as lines of a system log."""

    def __init__(self) -> None:
        self._entry = _JournalEntry()
        self._time = b""
        self._in_message = False
        self._further: list[bytes] = []  # lines of the message behind its first

    def passes(self, block: bytes) -> bool:
        return False

    def take(self, line: bytes) -> Iterable[bytes]:
        done: Iterable[bytes] = ()
        if found := _VERBOSE.match(line):
            done = self.finish()
            self._time, self._entry = found[1], _JournalEntry()
        self._entry.lines += 1
        field = _VERBOSE_FIELD.match(line)
        if field:
            self._entry.put(field[1], field[2])
            self._in_message = field[1] == b"MESSAGE"
        elif self._in_message and line[:1].isspace():
            if len(self._further) < _MOST_LINES:
                self._further.append(line.strip()[:MAX_LINE])
        else:
            self._in_message = False
        return done

    def finish(self) -> Iterable[bytes]:
        entry = self._entry
        message = b"\n".join([entry.fields.get(b"MESSAGE", b""), *self._further])
        self._in_message, self._further = False, []
        if not message:
            return list(entry.placed(b""))
        before = self._time + b" " + _writer(entry.fields)
        return list(entry.placed(b"\n".join(before + line for line in message.split(b"\n"))))


def _writer(fields: Mapping[bytes, bytes]) -> bytes:
    """`host program[pid]: `, or `kernel: `; no program where the host is not known, as it would be taken for that."""
    kernel = fields.get(b"_TRANSPORT") == b"kernel"
    host = _UNSAFE.sub(b"_", fields.get(b"_HOSTNAME", b""))
    if not host:
        return b"kernel: " if kernel else b""
    if kernel:
        return host + b" kernel: "
    program = _UNSAFE.sub(b"_", fields.get(b"SYSLOG_IDENTIFIER") or fields.get(b"_COMM") or b"program")
    pid = fields.get(b"_PID", b"")
    return b"%s %s[%s]: " % (host, program, pid) if pid.isdigit() else b"%s %s: " % (host, program)


class _DmesgEntries:
    """`dmesg --json`: entries with `time`, in seconds since the start of the machine, and `msg`; as dmesg's lines."""

    def __init__(self) -> None:
        self._time = b""

    def passes(self, block: bytes) -> bool:
        return False

    def take(self, line: bytes) -> Iterable[bytes]:
        shown: list[bytes] = []
        for name, value in _DMESG_FIELD.findall(line):
            if name == b"time":
                self._time = _uptime(value)
                continue
            message = _text_of(value)
            shown += [self._time + one for one in message.split(b"\n")]
            self._time = b""
        return shown or (b"",)

    def finish(self) -> Iterable[bytes]:
        return ()


def _uptime(value: bytes) -> bytes:
    """The bracket before a message: with six decimals, or the time of `dmesg -T`."""
    return b"[%s] " % _text_of(value) if value.startswith(b'"') else b"[%12.6f] " % float(value)


def _text_of(value: bytes) -> bytes:
    """The text of a JSON string; what is no string shows nothing."""
    try:
        text = json.loads(value)
    except ValueError:
        return b""
    return text.encode("utf-8", "replace") if isinstance(text, str) else b""


class _Pieces:
    """A container runtime's log: a long line in pieces marked `P`, and the last one marked `F`, of each stream.

    Pieces of a plain line that is long are left apart: each is searched by itself, and only the beginning of a line is.
    """

    def __init__(self) -> None:
        self._held: dict[bytes, _HeldPieces] = {}  # by stream

    def passes(self, block: bytes) -> bool:
        return not self._held and b"stdout P " not in block and b"stderr P " not in block

    def take(self, line: bytes) -> Iterable[bytes]:
        found = _PIECE.match(line)
        if found is None:
            return (line,)
        start, stream, mark, text = found[1], found[2], found[3], found[4]
        begun = self._held.pop(stream, None)
        whole = _HeldPieces(begun.start, begun.text + text, begun.lines + 1) if begun else _HeldPieces(start, text, 1)
        most = _MOST_ENTRY if whole.text.lstrip().startswith(b"{") else MAX_LINE
        if len(whole.text) > most:
            return (*(begun.lines_of() if begun else ()), line)
        if mark == b"P":
            self._held[stream] = whole
            return ()
        return whole.lines_of() if begun else (line,)

    def finish(self) -> Iterable[bytes]:
        return [line for held in self._held.values() for line in held.lines_of()]


class _HeldPieces(Struct, frozen=True):
    """The pieces of a line so far: the time and the stream of the first, the text, and the number of pieces."""

    start: bytes
    text: bytes
    lines: int

    def lines_of(self) -> tuple[bytes, ...]:
        """The line, behind as many empty ones as there were further pieces."""
        return (*itertools.repeat(b"", self.lines - 1), self.start + b" F " + self.text)
