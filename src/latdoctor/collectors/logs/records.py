"""Records of structured logs, as JSON of any nesting: their text and their time. Pure.

Read are journald, docker, bunyan, zap, structlog and other loggers, fluentd, GELF, the Elastic Common Schema, and what
Google Cloud Logging, Datadog, CloudWatch, Loki (also `values`: pairs of time and line) and OpenTelemetry export, one
record per line or many in one document.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from latdoctor.collectors.logs.timestamps import epoch_time, stamp_at
from latdoctor.decode_errors import UNDECODABLE

Fields = Mapping[str, object]

# The text field of a record, the likeliest first.
_MESSAGES = (
    "MESSAGE", "log", "message", "msg", "textPayload", "@message", "short_message", "_msg", "@m", "RenderedMessage",
    "log_message", "Message", "event",
)  # fmt: skip
# Names that other JSON has too: they count only beside a time.
_WEAK_MESSAGES = ("body", "Body", "content", "line", "text", "_raw", "@mt", "stringValue", "original", "data")
_TIMES = (
    "time", "timestamp", "@timestamp", "ts", "asctime", "timeUnixNano", "datetime", "date", "@t", "_time", "Timestamp",
    "t", "eventTime", "observedTimeUnixNano", "created", "receiveTimestamp", "ingestionTime",
)  # fmt: skip
_DEEPEST, _MOST_FIELDS, _INSIDE = 5, 500, 4
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],]', re.S)
_CLOSING = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class RecordTime:
    """The time of a record, unix seconds UTC."""

    time: float
    zoned: bool


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record with text. `fields` are those beside the text, and `time` its own time or that of what carries it."""

    message: bytes
    fields: Fields
    time: RecordTime | None = None


def object_in(line: bytes) -> dict[str, object] | None:
    """The JSON object that `line` is, or None."""
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except UNDECODABLE:
        return None


def records_of(value: object, written_at: float) -> Iterator[LogRecord]:
    """The records in a decoded value: the value itself, or those in its lists."""
    waiting = deque([(value, 0)])
    while waiting:
        one, depth = waiting.popleft()
        if isinstance(one, Mapping):
            holds = any(_holds_records(item) for item in one.values()) and not _is_leveled(one)
            record = None if holds else record_in(one, written_at)
            if record is not None:
                yield record
                continue
            below = list(one.values())
        elif isinstance(one, list):
            pair = _pair(one) or _named_values(one)
            record = record_in(pair, written_at) if pair else None
            if record is not None:
                yield record
                continue
            below = one
        else:
            continue
        if depth < 2 * _DEEPEST:
            waiting.extend((item, depth + 1) for item in below if isinstance(item, Mapping | list))


def record_in(fields: Fields, written_at: float) -> LogRecord | None:
    """The record that one JSON object is, or None. A record within its text replaces it."""
    found = _with_text(fields, written_at)
    for _ in range(_INSIDE):
        inner = object_in(found.message) if found and found.message.startswith(b"{") else None
        within = _with_text(inner, written_at) if inner is not None else None
        if found is None or within is None:
            break
        found = LogRecord(within.message, within.fields, within.time or found.time)
    return found


def records_in_document(content: bytes, written_at: float) -> Iterator[LogRecord]:
    """The records of a JSON document, or of several in a row; one that was cut is read up to there."""
    try:
        values = iter([msgspec.json.decode(content)])
    except UNDECODABLE:
        values = _values_in(content.decode("utf-8", "replace"))
    for value in values:
        yield from records_of(value, written_at)


def _is_leveled(fields: Fields) -> bool:
    """Whether it is a record, whatever lists it holds: Rust's tracing puts the spans around a message into one."""
    return "level" in fields and any(isinstance(fields.get(name), str) for name in _MESSAGES)


def _holds_records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping | list)


def _pair(items: list[object]) -> Fields | None:
    """Loki's `["1747649593000000000", "line"]`."""
    if len(items) < 2 or not isinstance(items[1], str) or not isinstance(items[0], str):
        return None
    return {"timestamp": items[0], "line": items[1]} if epoch_time(items[0]) is not None else None


def _named_values(items: list[object]) -> Fields | None:
    """CloudWatch Insights' `[{"field": "@message", "value": …}, …]`."""
    if not items or not all(isinstance(one, Mapping) and "field" in one and "value" in one for one in items):
        return None
    return {str(one["field"]): one["value"] for one in items if isinstance(one, Mapping)}


def _with_text(fields: Fields, written_at: float) -> LogRecord | None:
    """The text nearest to the surface of nested objects, with its time."""
    waiting: deque[tuple[Fields, tuple[Fields, ...]]] = deque([(fields, ())])
    seen = 0
    while waiting and seen < _MOST_FIELDS:
        one, around = waiting.popleft()
        seen += 1
        chain = (one, *around)
        message = _text(one, _MESSAGES)
        time = _time(chain, written_at) if message is not None else None
        if message is None and (message := _text(one, _WEAK_MESSAGES)) is not None:
            time = _time(chain, written_at)
            message = message if time else None
        if message is not None:
            return LogRecord(message, one, time)
        if len(around) < _DEEPEST:
            waiting.extend((value, chain) for value in one.values() if isinstance(value, Mapping))
    return None


def _text(fields: Fields, names: tuple[str, ...]) -> bytes | None:
    """journald writes a text, its bytes if it has control characters (colours), or null for one that was too long."""
    for name in names:
        match fields.get(name):
            case str() as text:
                return text.encode("utf-8", "replace")
            case list() as numbers if name == "MESSAGE" and all(isinstance(n, int) and 0 <= n < 256 for n in numbers):
                return bytes(n for n in numbers if isinstance(n, int))
            case _:
                continue
    return None


def _time(chain: tuple[Fields, ...], written_at: float) -> RecordTime | None:
    """The time beside the text, else of the objects around it."""
    for fields in chain:
        for name in _TIMES:
            if name in fields and (found := _moment(fields[name], written_at)) is not None:
                return found
    return None


def _moment(value: object, written_at: float) -> RecordTime | None:
    match value:
        case bool():
            return None
        case int() | float() if math.isfinite(value) and abs(value) < 1e20:
            time = epoch_time(f"{value:.9f}" if isinstance(value, float) else str(value))
            return None if time is None else RecordTime(time, True)
        case str() if len(value) < 100:
            stripped = value.strip()
            time = epoch_time(stripped) if stripped.replace(".", "", 1).isdigit() else None
            stamp = stamp_at(stripped, 0, written_at) if time is None else None
            if stamp is not None and stamp.time is not None:
                return RecordTime(stamp.time, stamp.zoned)
            return None if time is None else RecordTime(time, True)
        case {"seconds": int() | str() as seconds}:
            return _moment(seconds, written_at)
        case {"$date": inner} | {"timestamp": inner}:
            return _moment(inner, written_at) if not isinstance(inner, Mapping) else None
        case _:
            return None


def _values_in(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        while position < len(text) and (text[position].isspace() or text[position] == ","):
            position += 1
        if position == len(text):
            return
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            yield from _value_of_cut(text[position:])
            return
        yield value


def _value_of_cut(text: str) -> Iterator[object]:
    """The value whose end is missing, up to its last complete part."""
    opened: list[str] = []
    end, closers = 0, ""
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in _CLOSING:
            opened.append(mark)
            continue
        if mark in "}]":
            if not opened or _CLOSING[opened.pop()] != mark:
                break
            end = token.end()
        elif mark == "," and opened:
            end = token.start()
        else:
            continue
        closers = "".join(_CLOSING[one] for one in reversed(opened))
        if len(opened) > 100:
            return
    try:
        yield json.loads(text[:end] + closers)
    except (ValueError, RecursionError):
        return
