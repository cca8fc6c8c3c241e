"""The events of a trace, and where one ends and the next begins in the text of a list of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

import msgspec
from msgspec import Raw, Struct

from latdoctor.sanitize import clean

_CANDIDATES = 4
_LONGEST_TOKEN = 64  # bytes of a number, an escape or a word
# Bytes before the end of a window in which a boundary is looked for first: most events take some hundred.
_NEAREST, _NEAR = 4 << 10, 64 << 10
BETWEEN_EVENTS = re.compile(rb"\}\s*(,)\s*\{")
# Profilers write bare inf and nan for a bandwidth over no time; JSON has no such values.
_NOT_A_NUMBER = re.compile(rb"(?<=:)(\s*)(-?(?:inf(?:inity)?|nan))(?=\s*[,}\]])", re.IGNORECASE)
_BYTE = re.compile(r"\(byte (\d+)\)")
_DIGITS = re.compile(r"[0-9]{1,18}")
_SURROGATES = re.compile("[\udc80-\udcff]")


class EventArgs(
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
    the same for an operator and what it put on the GPU, `correlation` for a call of the API and what that put there.
    ROCm writes numbers as text (`"bytes": "9216"`): `size` reads both.
    """

    device: int | str | None = None
    bytes: float | str | None = None
    old_bytes: float | str | None = None
    result: int | str | None = None
    old_result: int | str | None = None
    link: object = None
    old_link: object = None
    correlation: object = None

    @property
    def size(self) -> float | None:
        """The bytes of a copy; None where there are none, or not a number."""
        written = self.bytes if self.bytes is not None else self.old_bytes
        if not isinstance(written, str):
            return written
        return float(written) if _DIGITS.fullmatch(written) else None


class TraceEvent(Struct, gc=False):
    """One trace event; `ts` and `dur` are in microseconds. Fields that are not named here may be anything."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    ts: float | None = None
    dur: float | None = None
    args: EventArgs | None = None
    tid: int | str | float | None = None


@dataclass(slots=True)
class DamagedEvents:
    """Events that cannot be understood: how many, and what is wrong with the first of them."""

    count: int = 0
    first: str = ""

    def add(self, what: str) -> None:
        self.count += 1
        self.first = self.first or clean(what, 200)


class ParseFault(Struct, frozen=True):
    """Why the strict parser gave up, and at which byte of the window."""

    what: str
    byte: int


class DecodeFault(Enum):
    """What msgspec found wrong with a piece of JSON."""

    TRAILING = auto()  # the value is complete and more characters follow
    TRUNCATED = auto()  # the input ends within the value
    MALFORMED = auto()


def decode_fault(error: msgspec.DecodeError) -> tuple[DecodeFault, ParseFault]:
    """Kind and place of a decoding error.

    msgspec raises one exception type for all of them, without a code or a position: its text is the only source. The
    texts are those of its strict JSON parser; tests/collectors/torch_trace holds them to the installed version.
    """
    text = str(error)
    found = _BYTE.search(text)
    fault = ParseFault(_BYTE.sub("", text).strip(), int(found[1]) - 1 if found else 0)
    if "trailing characters" in text:
        return DecodeFault.TRAILING, fault
    return (DecodeFault.TRUNCATED if "truncated" in text else DecodeFault.MALFORMED), fault


EVENTS = msgspec.json.Decoder(list[TraceEvent])
EVENT = msgspec.json.Decoder(TraceEvent)
RAW = msgspec.json.Decoder(list[Raw])


def last_boundary(window: bytearray, begin: int, end: int) -> int | None:
    """The last comma in window[begin:end] that may part two events, if there is one near the end."""
    for near in (_NEAREST, _NEAR):
        borders = [found.start(1) for found in BETWEEN_EVENTS.finditer(window, max(begin, end - near), end)]
        if borders:
            return borders[-1]
    return None


def boundaries(window: bytes) -> list[int]:
    """The last commas of `window` that may part two events, the last one first."""
    for start in dict.fromkeys((max(0, len(window) - _NEAR), 0)):
        found = [match.start(1) for match in BETWEEN_EVENTS.finditer(window, start)]
        if found:
            return found[: -_CANDIDATES - 1 : -1]
    return []


def end_of_list(window: bytes, complete: bool) -> int | ParseFault | None:
    """Where the bracket that closes the list stands in `window`; None where the list goes on beyond it."""
    try:
        RAW.decode(b"[" + window)
    except RecursionError:
        return ParseFault("nested too deeply", 0)
    except msgspec.DecodeError as error:
        kind, fault = decode_fault(error)
        if kind is DecodeFault.TRAILING:
            return window.rindex(b"]", 0, fault.byte)
        # A number, an escape or a word that is cut by the end of the window is no fault of the file.
        if kind is DecodeFault.TRUNCATED or (fault.byte > len(window) - _LONGEST_TOKEN and not complete):
            return None
        return fault
    return window.rindex(b"]")


def repaired(text: bytes) -> bytes:
    """`text` with bare inf and nan as empty strings and bytes that are no UTF-8 as `?`; its length stays.

    An empty string where a number is used is then reported as a damaged event.
    """
    plain = _NOT_A_NUMBER.sub(lambda found: found[1] + b'""'.ljust(len(found[2])), text)
    try:
        plain.decode("utf-8")
    except UnicodeDecodeError:
        return _SURROGATES.sub("?", plain.decode("utf-8", "surrogateescape")).encode()
    return plain


def why_no_events(document: bytes) -> str:
    if not document.strip():
        return "is empty"
    try:
        keys = msgspec.json.decode(repaired(document), type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        return f"is not whole JSON ({error}) and no list of traceEvents was found in it"
    if "traceEvents" in keys:
        return "has traceEvents that are not a list"
    return "is JSON without traceEvents"
