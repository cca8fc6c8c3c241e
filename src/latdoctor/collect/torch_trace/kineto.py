"""Reading Kineto traces: the events of the JSON trace format, batch by batch, in bounded memory.

The list of events is cut where one event ends and the next begins. Such a cut is a guess until the strict parser has
read everything before it: a parse that starts at a proven event start and succeeds proves that the cut lies between
two events and not inside a string or a nested list. So each batch is exactly what a parse of the whole file would
give, while only some megabytes are held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from latdoctor.collect.torch_trace import raw as trace_bytes
from latdoctor.errors import SourceError
from latdoctor.text import clean

# An event, the head before the events and the tail after them may be as large as this.
MAX_WINDOW = 64 << 20
_CANDIDATES = 4
_LONGEST_TOKEN = 64  # bytes of a number, an escape or a word
_BETWEEN_EVENTS = re.compile(rb"\}\s*(,)\s*\{")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
# Profilers write bare inf and nan for a bandwidth over no time; JSON has no such values.
_NOT_A_NUMBER = re.compile(rb"(?<=:)(\s*)(-?(?:inf(?:inity)?|nan))(?=\s*[,}\]])", re.IGNORECASE)
_BYTE = re.compile(r"\(byte (\d+)\)")
_SURROGATES = re.compile("[\udc80-\udcff]")

HOW_TO_RECORD = "give a trace that torch.profiler exported (export_chrome_trace), plain or gzip"


class Args(
    Struct,
    gc=False,
    rename={
        "old_bytes": "Bytes",
        "result": "returnValue",
        "old_result": "return value",
        "link": "External id",
        "old_link": "external id",
    },
):
    """The details of an event that are used. `result` is a call's return code, where the profiler noted it; `link` is
    the same for an operator and what it put on the GPU.
    """

    device: int | str | None = None
    bytes: float | None = None
    old_bytes: float | None = None
    result: int | str | None = None
    old_result: int | str | None = None
    link: object = None
    old_link: object = None


class Event(Struct, gc=False):
    """One trace event; `ts` and `dur` are in microseconds. Fields that are not named here may be anything."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


class _Surroundings(Struct, rename={"base": "baseTimeNanoseconds"}):
    """The keys of the trace beside its events."""

    base: float | int | str | None = None


_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)
_RAW = msgspec.json.Decoder(list[Raw])


@dataclass(slots=True)
class Damage:
    """Events that cannot be understood: how many, and what is wrong with the first of them."""

    count: int = 0
    first: str = ""

    def add(self, what: str) -> None:
        self.count += 1
        self.first = self.first or clean(what, 200)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why the strict parser gave up, and at which byte of the window."""

    what: str
    byte: int


@dataclass(frozen=True, slots=True)
class _Step:
    """The events at the front of a window and the bytes after them; `ended` where the list of events closed."""

    events: list[Event]
    rest: bytes
    ended: bool


class KinetoReader:
    """One trace, read once by `batches()`; the other attributes are complete when that has come to its end."""

    def __init__(self, content: bytes | Path, where: str, *, piece: int = trace_bytes.PIECE) -> None:
        self._where = where
        self._piece = piece
        self._pieces = trace_bytes.pieces(content, where, size=piece)
        self._bare = False
        self._consumed = 0  # bytes of decompressed content before the window
        self.events = 0
        self.damage = Damage()
        self.base_time: float | None = None  # seconds, unix: what the times of the events count from

    def batches(self) -> Iterator[list[Event]]:
        """All events in file order. Raises SourceError where this is not one whole trace."""
        window = self._head()
        wanted, complete = 0, False
        while True:
            while not complete and len(window) <= wanted:
                piece = next(self._pieces, b"")
                complete = not piece
                window += piece
            damaged = self.damage.count
            step = self._step(window, complete)
            if step is None:
                self._refuse_endless(window, complete)
                wanted = 2 * len(window)
                continue
            self.events += len(step.events) + self.damage.count - damaged
            yield step.events
            self._consumed += len(window) - len(step.rest)
            window = step.rest
            if step.ended:
                self._tail(window)
                return
            wanted = self._piece

    def _head(self) -> bytes:
        """Reads up to the list of events; what was read beyond its bracket."""
        window = b""
        for piece in self._pieces:
            window = (window + piece).removeprefix(b"\xef\xbb\xbf")
            start = window.lstrip()[:1]
            if start == b"[":
                self._bare = True
                return self._after(window, window.index(b"[") + 1)
            if start not in {b"{", b""}:
                raise self._problem(f"is not JSON: it begins with {clean(repr(window.lstrip()[:12])[1:])}")
            for key in _EVENTS_KEY.finditer(window):
                # Only a key of the outermost object makes `{… "traceEvents": []}` an object.
                if self._surroundings(window[: key.end()] + b"]}"):
                    return self._after(window, key.end())
            if len(window) > MAX_WINDOW:
                raise self._problem(f"holds no traceEvents within its first {MAX_WINDOW >> 20} MiB")
        raise self._problem(_why_no_events(window))

    def _after(self, window: bytes, start: int) -> bytes:
        self._consumed = start
        return window[start:]

    def _surroundings(self, document: bytes) -> bool:
        """Is `document` one whole object? Its base time is kept."""
        try:
            found = msgspec.json.decode(_mended(document), type=_Surroundings)
        except (msgspec.DecodeError, RecursionError):
            return False
        if isinstance(found.base, int | float):
            self.base_time = found.base * 1e-9
        return True

    def _step(self, window: bytes, complete: bool) -> _Step | None:
        """What can be taken off the front of `window`; None where more bytes are needed to tell."""
        found = self._taken(window, complete)
        if isinstance(found, _Fault):
            found = self._taken(_mended(window), complete)
        if isinstance(found, _Fault):
            event = self.events + len(_BETWEEN_EVENTS.findall(window, 0, found.byte)) + 1
            raise self._problem(
                f"is damaged or cut off near event {event}, byte {self._consumed + found.byte}: {found.what}",
                trace_bytes.RECORD_AGAIN,
            )
        return found

    def _taken(self, window: bytes, complete: bool) -> _Step | _Fault | None:
        for cut in _boundaries(window):
            events = self._decoded(window[:cut])
            if events is not None:
                return _Step(events, window[cut + 1 :], ended=False)
        end = _end_of_list(window, complete)
        if not isinstance(end, int):
            return end
        return _Step(self._decoded(window[:end]) or [], window[end + 1 :], ended=True)

    def _decoded(self, text: bytes) -> list[Event] | None:
        """The events of `text`, or None where it is not a list of whole values."""
        try:
            return _EVENTS.decode(b"[" + text + b"]")
        except UnicodeDecodeError:
            return self._decoded(_mended(text))
        except msgspec.ValidationError:
            return self._one_by_one(b"[" + text + b"]")
        except (msgspec.DecodeError, RecursionError):
            return None

    def _one_by_one(self, document: bytes) -> list[Event] | None:
        try:
            values = _RAW.decode(document)
        except (msgspec.DecodeError, RecursionError):
            return None
        kept = []
        for index, value in enumerate(values):
            try:
                kept.append(_EVENT.decode(_mended(bytes(value))))
            except msgspec.ValidationError as error:
                self.damage.add(f"event {self.events + index + 1}: {error}")
        return kept

    def _refuse_endless(self, window: bytes, complete: bool) -> None:
        if complete:
            raise self._problem(
                f"is cut off near event {self.events + len(_BETWEEN_EVENTS.findall(window)) + 1} "
                f"(byte {self._consumed + len(window)}): figures from a part of a trace would mislead",
                trace_bytes.RECORD_AGAIN,
            )
        if len(window) > MAX_WINDOW:
            raise self._problem(f"holds an event of more than {MAX_WINDOW >> 20} MiB at byte {self._consumed}")

    def _tail(self, window: bytes) -> None:
        """Reads what follows the events, to see that the file is whole. An endless tail is skipped unread."""
        skipped = False
        for piece in self._pieces:
            skipped = skipped or len(window) > MAX_WINDOW
            window = window if skipped else window + piece
        whole = not window.strip() if self._bare else self._surroundings(b'{"":0' + window)
        if not whole and not skipped:
            raise self._problem("is cut off or damaged after its last event", trace_bytes.RECORD_AGAIN)

    def _problem(self, what: str, next_step: str = HOW_TO_RECORD) -> SourceError:
        return SourceError(f"the trace {what}", where=self._where, next_step=next_step)


def _boundaries(window: bytes) -> list[int]:
    """The last commas of `window` that may part two events, the last one first."""
    for start in dict.fromkeys((max(0, len(window) - (64 << 10)), 0)):
        found = [match.start(1) for match in _BETWEEN_EVENTS.finditer(window, start)]
        if found:
            return found[: -_CANDIDATES - 1 : -1]
    return []


def _end_of_list(window: bytes, complete: bool) -> int | _Fault | None:
    """Where the bracket that closes the list stands in `window`; None where the list goes on beyond it."""
    try:
        _RAW.decode(b"[" + window)
    except RecursionError:
        return _Fault("nested too deeply", 0)
    except msgspec.DecodeError as error:
        message = str(error)
        told = _BYTE.search(message)
        byte = int(told[1]) - 1 if told else 0
        if "trailing characters" in message:
            return window.rindex(b"]", 0, byte)
        # A number, an escape or a word that the window's end cuts is no fault of the file.
        if "truncated" in message or (byte > len(window) - _LONGEST_TOKEN and not complete):
            return None
        return _Fault(_BYTE.sub("", message).strip(), byte)
    return window.rindex(b"]")


def _mended(text: bytes) -> bytes:
    """`text` with bare inf and nan as empty strings and bytes that are no UTF-8 as `?`; its length stays.

    An empty string where a number is used is then reported as a damaged event.
    """
    plain = _NOT_A_NUMBER.sub(lambda found: found[1] + b'""'.ljust(len(found[2])), text)
    try:
        plain.decode("utf-8")
    except UnicodeDecodeError:
        return _SURROGATES.sub("?", plain.decode("utf-8", "surrogateescape")).encode()
    return plain


def _why_no_events(document: bytes) -> str:
    if not document.strip():
        return "is empty"
    try:
        keys = msgspec.json.decode(_mended(document), type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        return f"is not whole JSON ({error}) and no list of traceEvents was found in it"
    if "traceEvents" in keys:
        return "has traceEvents that are not a list"
    return "is JSON without traceEvents"
