"""Reading Kineto traces: the events of the JSON trace format, batch by batch, in bounded memory.

The list of events is cut where one event ends and the next begins. Such a cut is a guess until the strict parser has
read everything before it: a parse that starts at a proven event start and succeeds proves that the cut lies between
two events and not inside a string or a nested list. So each batch is exactly what a parse of the whole file would
give, while only some megabytes are held.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, cast

import msgspec
from msgspec import Struct

from latdoctor.collectors.torch_trace.events import (
    BETWEEN_EVENTS,
    EVENT,
    EVENTS,
    RAW,
    DamagedEvents,
    ParseFault,
    TraceEvent,
    boundaries,
    end_of_list,
    last_boundary,
    repaired,
    why_no_events,
)
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.decompression import unpacked_limit
from latdoctor.errors import SourceError
from latdoctor.sanitize import clean

# Measured: pieces of 2 to 4 MB are read fastest, larger ones fall out of the processor's cache.
PIECE = 2 << 20
# What is read at most after decompression: ten million events are about 2.8 GB.
MAX_BYTES = 4 << 30
_GZIP = b"\x1f\x8b"

RECORD_AGAIN = "copy the file again once the profiler has finished writing it, or record the trace again"


class DecompressedSource:
    """The decompressed content from byte `start` on. Opened by the first read, to be closed after the last."""

    def __init__(self, content: bytes | Path, where: str, *, start: int = 0, limit: int = MAX_BYTES) -> None:
        self._content, self._where, self._start, self._limit = content, where, start, limit
        self._files = ExitStack()
        self._stream: IO[bytes] | None = None
        self._total = 0

    def close(self) -> None:
        self._files.close()

    def read_into(self, room: memoryview) -> int:
        """How many bytes were put into `room`; 0 at the end.

        Raises SourceError where the file cannot be read, its compressed data is cut off or damaged, or more than the
        limit comes out of it.
        """
        try:
            self._stream = self._stream or self._opened()
            count: int = self._stream.readinto(room)  # type: ignore[attr-defined]  # every binary stream has it
        except EOFError as error:
            raise self._problem("the compressed data is cut off: the end of the file is missing") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise self._problem(f"the compressed data is damaged after {self._total} bytes of content") from error
        except OSError as error:
            raise self._problem(f"cannot be read: {error.strerror}", "check path and permissions") from error
        self._total += count
        if self._total > self._limit:
            raise _too_large(self._where, self._limit)
        return count

    def _opened(self) -> IO[bytes]:
        content = self._content
        opened = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb", buffering=0)
        raw = cast(IO[bytes], self._files.enter_context(opened))
        magic = raw.read(len(_GZIP))
        if not is_packed(magic):
            raw.seek(self._start)
            return raw
        self._limit = unpacked_limit(raw.seek(0, io.SEEK_END), self._limit)
        raw.seek(self._start)
        return cast(IO[bytes], self._files.enter_context(gzip.GzipFile(fileobj=raw, mode="rb")))

    def _problem(self, what: str, next_step: str = RECORD_AGAIN) -> SourceError:
        return SourceError(what, where=self._where, next_step=next_step)


def is_packed(beginning: bytes) -> bool:
    return beginning.startswith(_GZIP)


class StreamBuffer:
    """A stretch of the content in one buffer that is used again and again: what lies between `begin` and `end`.

    The byte before `begin` is free to be written. New memory for every piece would cost as much time as parsing it.
    """

    def __init__(self, source: DecompressedSource, piece: int) -> None:
        self._source, self._piece = source, piece
        self.buffer = bytearray(1)
        self.begin = self.end = 1
        self.complete = False  # nothing follows what is here

    def __len__(self) -> int:
        return self.end - self.begin

    def __bytes__(self) -> bytes:
        return bytes(memoryview(self.buffer)[self.begin : self.end])

    def fill(self, more_than: int) -> None:
        """Reads on until more than so many bytes are here, or all."""
        while len(self) <= more_than and not self.complete:
            self._make_room(max(self._piece, more_than + 1 - len(self)))
            room = memoryview(self.buffer)[self.end :]
            count = self._source.read_into(room[: self._piece])
            self.complete = count == 0
            self.end += count

    def drop(self) -> None:
        """Forgets what is here."""
        self.begin = self.end = 1

    def _make_room(self, room: int) -> None:
        size = len(self)
        if self.end + room <= len(self.buffer):
            return
        kept = bytes(self)
        if 1 + size + room > len(self.buffer):
            self.buffer = bytearray(1 + size + room)
        self.buffer[1 : 1 + size] = kept
        self.begin, self.end = 1, 1 + size


def _too_large(where: str, limit: int) -> SourceError:
    return SourceError(
        f"more than the {limit >> 20} MiB that are read at most",
        where=where,
        next_step="record a shorter trace: 3 s under load are enough",
    )


# An event, the head before the events and the tail after them may be as large as this.
MAX_WINDOW = 64 << 20
_FURTHEST_BASE = 1e25  # ns
_MAX_KEYS = 64  # named traceEvents before the one that counts
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')

HOW_TO_RECORD = "give a trace that torch.profiler exported (export_chrome_trace), plain or gzip"


class _Surroundings(Struct, rename={"base": "baseTimeNanoseconds"}):
    """The keys of the trace beside its events."""

    base: float | int | str | None = None


class _Step(Struct, frozen=True):
    """The events at the front of a window and the bytes after them; `ended` where the list of events closed."""

    events: list[TraceEvent]
    rest: bytes
    ended: bool


class KinetoReader:
    """One trace, read once by `batches()`; the other attributes are complete when that has come to its end.

    `start` is where an event is taken to begin, for a process that reads the rest from there. `stop` is such a
    place further on: where the events before it end exactly there, reading ends, and `stopped` is true; that proves
    that an event begins at `stop`. Else the place was no border, and reading goes on to the end of the file.
    """

    def __init__(
        self,
        content: bytes | Path,
        where: str,
        *,
        piece: int = PIECE,
        start: int | None = None,
        stop: int | None = None,
    ) -> None:
        self._content, self._where = content, where
        self._piece = piece
        self._source = DecompressedSource(content, where, start=start or 0)
        self._window = StreamBuffer(self._source, piece)
        self._inside, self._stop = start is not None, stop
        self._bare = False
        self._consumed = start or 0  # bytes of decompressed content before the window
        self.events = 0
        self.damage = DamagedEvents()
        self.base_time: float | None = None  # seconds, unix: what the times of the events count from
        self.stopped = False
        self.tail_unread = False  # too much follows the events to decide whether the file is whole

    def resumed(self, start: int) -> KinetoReader:
        """A reader of the rest, from `start` on, that goes on counting where this one stopped."""
        further = KinetoReader(self._content, self._where, piece=self._piece, start=start)
        further.events, further.damage, further.base_time = self.events, self.damage, self.base_time
        further._bare = self._bare
        return further

    def batches(self) -> Iterator[list[TraceEvent]]:
        """All events in file order. Raises SourceError where this is not one whole trace."""
        with closing(self._source):
            if not self._inside:
                self._head()
            yield from self._list()

    def _list(self) -> Iterator[list[TraceEvent]]:
        window, wanted = self._window, 0
        while True:
            window.fill(wanted)
            if self._stop is not None and self._consumed + len(window) >= self._stop:
                last = self._up_to(self._stop)
                self._stop = None
                if last is not None:
                    self.stopped = True
                    yield last
                    return
            quick = self._quick()
            if quick is not None:
                yield quick
                wanted = self._piece
                continue
            damaged = self.damage.count
            step = self._step(bytes(window), window.complete)
            if step is None:
                self._refuse_endless()
                wanted = 2 * len(window)
                continue
            self.events += len(step.events) + self.damage.count - damaged
            self._advance(window.end - len(step.rest))
            yield step.events
            if step.ended:
                self._tail()
                return
            wanted = self._piece

    def _advance(self, begin: int) -> None:
        self._consumed += begin - self._window.begin
        self._window.begin = begin

    def _quick(self) -> list[TraceEvent] | None:
        """The events up to the last likely border, parsed where they lie; None where that is not so simple."""
        cut = last_boundary(self._window.buffer, self._window.begin, self._window.end)
        return None if cut is None else self._parsed_up_to(cut)

    def _up_to(self, stop: int) -> list[TraceEvent] | None:
        """The events before byte `stop` of the content, where the byte before it is the comma that ends them."""
        cut = self._window.begin + stop - self._consumed - 1
        return self._parsed_up_to(cut) if cut >= self._window.begin else None

    def _parsed_up_to(self, cut: int) -> list[TraceEvent] | None:
        buffer, begin = self._window.buffer, self._window.begin
        kept, buffer[begin - 1], buffer[cut] = buffer[cut], ord("["), ord("]")
        if kept != ord(","):
            buffer[cut] = kept
            return None
        try:
            events = EVENTS.decode(memoryview(buffer)[begin - 1 : cut + 1])
        except UNDECODABLE:
            buffer[cut] = kept
            return None
        self.events += len(events)
        self._advance(cut + 1)
        return events

    def _head(self) -> None:
        """Reads up to the list of events."""
        window, tried = self._window, 0
        while not window.complete:
            window.fill(2 * len(window))
            if window.buffer.startswith(b"\xef\xbb\xbf", 1):
                window.begin = 4
            text = bytes(window)
            start = text.lstrip()[:1]
            if start == b"[":
                self._bare = True
                self._advance(window.begin + text.index(b"[") + 1)
                return
            if start not in {b"{", b""}:
                raise self._problem(f"is not JSON: it begins with {clean(repr(text.lstrip()[:12])[1:])}")
            keys = list(_EVENTS_KEY.finditer(text))
            for key in keys[tried:_MAX_KEYS]:
                # Only a key of the outermost object makes `{… "traceEvents": []}` an object.
                if self._surroundings(text[: key.end()] + b"]}"):
                    self._advance(window.begin + key.end())
                    return
            tried = len(keys)
            if len(text) > MAX_WINDOW:
                raise self._problem(f"holds no traceEvents within its first {MAX_WINDOW >> 20} MiB")
        raise self._problem(why_no_events(bytes(window)))

    def _surroundings(self, document: bytes) -> bool:
        """Is `document` one whole object? Its base time is kept."""
        try:
            found = msgspec.json.decode(repaired(document), type=_Surroundings)
        except (msgspec.DecodeError, RecursionError):
            return False
        if isinstance(found.base, int | float) and abs(found.base) < _FURTHEST_BASE:
            self.base_time = found.base * 1e-9
        return True

    def _step(self, window: bytes, complete: bool) -> _Step | None:
        """What can be taken off the front of `window`; None where more bytes are needed."""
        found = self._taken(window, complete)
        if isinstance(found, ParseFault):
            found = self._taken(repaired(window), complete)
        if isinstance(found, ParseFault):
            event = self.events + len(BETWEEN_EVENTS.findall(window, 0, found.byte)) + 1
            raise self._problem(
                f"is damaged or cut off near event {event}, byte {self._consumed + found.byte}: {found.what}",
                RECORD_AGAIN,
            )
        return found

    def _taken(self, window: bytes, complete: bool) -> _Step | ParseFault | None:
        for cut in boundaries(window):
            events = self._decoded(window[:cut])
            if events is not None:
                return _Step(events, window[cut + 1 :], ended=False)
        end = end_of_list(window, complete)
        if not isinstance(end, int):
            return end
        return _Step(self._decoded(window[:end]) or [], window[end + 1 :], ended=True)

    def _decoded(self, text: bytes) -> list[TraceEvent] | None:
        """The events of `text`, or None where it is not a list of whole values."""
        try:
            return EVENTS.decode(b"[" + text + b"]")
        except UnicodeDecodeError:
            return self._decoded(repaired(text))
        except msgspec.ValidationError:
            return self._one_by_one(b"[" + text + b"]")
        except (msgspec.DecodeError, RecursionError):
            return None

    def _one_by_one(self, document: bytes) -> list[TraceEvent] | None:
        try:
            values = RAW.decode(document)
        except (msgspec.DecodeError, RecursionError):
            return None
        kept = []
        for index, value in enumerate(values):
            try:
                kept.append(EVENT.decode(repaired(bytes(value))))
            except msgspec.ValidationError as error:
                self.damage.add(f"event {self.events + index + 1}: {error}")
        return kept

    def _refuse_endless(self) -> None:
        window = self._window
        if window.complete:
            near = self.events + len(BETWEEN_EVENTS.findall(bytes(window))) + 1
            raise self._problem(
                f"is cut off near event {near} (byte {self._consumed + len(window)}): "
                "figures from a part of a trace would mislead",
                RECORD_AGAIN,
            )
        if len(window) > MAX_WINDOW:
            raise self._problem(f"holds an event of more than {MAX_WINDOW >> 20} MiB at byte {self._consumed}")

    def _tail(self) -> None:
        """Reads what follows the events, to see that the file is whole. An endless tail is skipped unread."""
        window = self._window
        while not window.complete:
            if len(window) > MAX_WINDOW or self.tail_unread:
                self.tail_unread = True
                window.drop()
            window.fill(2 * len(window))
        text = bytes(window)
        whole = self.tail_unread or (not text.strip() if self._bare else self._surroundings(b'{"":0' + text))
        if not whole:
            raise self._problem("is cut off or damaged after its last event", RECORD_AGAIN)

    def _problem(self, what: str, next_step: str = HOW_TO_RECORD) -> SourceError:
        return SourceError(f"the trace {what}", where=self._where, next_step=next_step)
