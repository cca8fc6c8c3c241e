"""What form a log has: plain lines, or JSON records (journalctl -o json, docker, structured logging).

Files that are no log at all are refused here: absence of a fault in them would say nothing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from latdoctor.collect.logs import stamps
from latdoctor.collect.logs.carried import carried
from latdoctor.collect.logs.stamps import APPLICATION, BARE, KERNEL, Line
from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import SourceError

PLAIN, RECORDS = "plain", "records"

HEAD = 1 << 20  # bytes by which the form is told
_LONGEST_PREFIX = 200  # bytes before a journal's record that a container carries
_TRIED = 100  # lines by which the form is told
# The text of a record: journald, docker (json-file), and what structured logging usually calls it.
_MESSAGES = ("MESSAGE", "log", "message", "msg", "event")
_TIMES = ("time", "timestamp", "@timestamp", "ts", "asctime")
_FRAME = re.compile(rb"\x1e|data: (?=\{)")  # before each record of journalctl -o json-seq and json-sse
_MARKUP = re.compile(rb"<(?:!doctype|html|\?xml)\b", re.I)
_JSON_BEGINS = re.compile(rb"\{\s*(?:$|\"[^\"]*\"\s*:|\})|\[\s*(?:$|[{\[\"\]])")
_METRIC = re.compile(rb"#\s+(?:HELP|TYPE)\s+[a-zA-Z_:][\w:]*(?:\s|$)|# EOF$")
_SAMPLE = re.compile(rb"[a-zA-Z_:][\w:]*(?:(\{.*\})\s*|\s+)[-+]?(?:\d[\d.eE+-]*|NaN|Inf)(?:\s+\d+)?$")
_ENOUGH = 0.9  # of the first lines
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def decoded(content: bytes) -> bytes:
    """`content` as UTF-8 without a byte order mark; UTF-16 is known by its mark (PowerShell writes it)."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            content = content.decode(encoding, "replace").encode()
    # A log that was cut while it was written begins with zeros, and UTF-16 without its mark is half zeros.
    return content.replace(b"\0", b"") if b"\0" in content else content


def form_of(content: bytes, where: str) -> str:
    """PLAIN or RECORDS, by the beginning of a decoded log. Raises SourceError for what is no log of lines."""
    head = content[:HEAD]
    _refuse_binary(head, where)
    lines = [line.strip() for line in head.splitlines() if line.strip()][:_TRIED]
    if lines and _MARKUP.match(lines[0]):
        raise SourceError("is a web page or XML, not a log of lines", where=where, next_step=_TEXT)
    if is_metrics(lines):
        raise SourceError("is a metrics page, not a log", where=where, next_step="give it as --metrics FILE")
    records = [_FRAME.sub(b"", line, count=1) for line in lines]
    if not records or not _JSON_BEGINS.match(records[0]):
        return PLAIN
    if any(_message_of(_object(line)) is not None for line in records):
        return RECORDS
    raise SourceError(
        "is a JSON document, not a log of lines",
        where=where,
        next_step="give a profiler's trace as --trace FILE, a journal as journalctl -o short-iso or -o json",
    )


_TEXT = "give it as text (a journal: journalctl -k -o short-iso > kernel.log)"


def _refuse_binary(head: bytes, where: str) -> None:
    """Raises SourceError where the beginning is no text: over 5 % control characters or 20 % not UTF-8.

    A Latin-1 log has few such bytes; random bytes have 10 % and over half.
    """
    control = len(head) - len(head.translate(None, delete=bytes([*range(1, 9), *range(14, 27), 28, 29, 31])))
    odd = head.decode("utf-8", "replace").count("\ufffd")
    if control > 0.05 * len(head) or odd > 0.2 * len(head):
        raise SourceError("is binary, not a log of lines", where=where, next_step=_TEXT)


def is_metrics(lines: list[bytes]) -> bool:
    """Whether nearly all of `lines` are those of a metrics page."""
    declared = [line for line in lines if _METRIC.match(line)]
    samples = [found for line in lines if (found := _SAMPLE.match(line))]
    sure = declared or any(found[1] for found in samples)
    return bool(sure) and len(declared) + len(samples) >= _ENOUGH * len(lines)


def lines_of(record: bytes, taken_at: float) -> Iterator[tuple[str, Line]]:
    """The lines of one JSON record: each with its text as it was written. A line that is no JSON is a plain line.

    Raises ValueError where a record cannot be read or holds no text.
    """
    record = _FRAME.sub(b"", record.strip(), count=1)
    if not record.startswith(b"{"):
        yield line_of(record, taken_at)
        return
    fields = _object(record)
    message = _message_of(fields)
    if fields is None or message is None:
        raise ValueError("a record without a text that can be read")
    inner = _object(message) if message.startswith(b"{") else None  # a journal's record out of a container's log
    if inner is not None and (told := _message_of(inner)) is not None:
        fields, message = {**{name: fields[name] for name in _TIMES if name in fields}, **inner}, told
    for raw in message.splitlines() or [b""]:
        text = stamps.cleaned(raw)
        yield text, _journal(fields, text) if "MESSAGE" in fields else _structured(fields, text, taken_at)


def line_of(raw: bytes, taken_at: float) -> tuple[str, Line]:
    """A line that is no record: its cleaned text, and that taken apart. It may carry a line of the driver, or the
    record of a journal that does.
    """
    begin = raw.find(b"{")
    fields = _object(raw[begin:]) if 0 < begin <= _LONGEST_PREFIX and b'"MESSAGE"' in raw else None
    message = _message_of(fields)
    if fields is not None and message is not None and b"\n" not in message:
        text = stamps.cleaned(message)
        return text, _journal(fields, text)
    text = stamps.cleaned(raw[: stamps.MAX_LINE])
    return text, carried(text, stamps.parse(text, taken_at), taken_at)


def _object(line: bytes) -> dict[str, object] | None:
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except UNDECODABLE:
        return None


def _message_of(fields: dict[str, object] | None) -> bytes | None:
    """journald gives a text, the bytes of one that is not plain (colours), and null for one that was too long."""
    for name in _MESSAGES if fields else ():
        match fields.get(name) if fields else None:
            case str() as text:
                return text.encode("utf-8", "replace")
            case list() as numbers if all(isinstance(n, int) and 0 <= n < 256 for n in numbers):
                return bytes(n for n in numbers if isinstance(n, int))
            case _:
                continue
    return None


def _journal(fields: dict[str, object], text: str) -> Line:
    kernel = fields.get("_TRANSPORT") == "kernel" or _is_kernels(fields)
    uptime = _microseconds(fields, "_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP") if kernel else None
    time = _microseconds(fields, "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP")
    pid = "" if kernel else stamps.cleaned(str(fields.get("_PID") or "").encode())
    process = "" if kernel else stamps.cleaned(str(fields.get("SYSLOG_IDENTIFIER") or "").encode())
    return Line(text, KERNEL if kernel else APPLICATION, time, time is not None, uptime, pid, process)


def _is_kernels(fields: dict[str, object]) -> bool:
    """Of a journal of which only some fields were kept: named as the kernel's, and no process has written it."""
    return fields.get("SYSLOG_IDENTIFIER") == "kernel" and not fields.get("_PID")


def _microseconds(fields: dict[str, object], *names: str) -> float | None:
    for name in names:
        told = fields.get(name)
        if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) < 20:
            return int(told) / 1e6
    return None


def _structured(fields: dict[str, object], text: str, taken_at: float) -> Line:
    """A line inside a record; where it carries no time of its own, the record's counts."""
    line = carried(text, stamps.parse(text, taken_at), taken_at)
    if line.writer == BARE and not text.lstrip().startswith("NVRM:"):
        line = replace(line, writer=APPLICATION)
    told = next((value for name in _TIMES if isinstance(value := fields.get(name), str)), "")
    outer = stamps.parse(f"{stamps.cleaned(told.encode('utf-8', 'replace'))} x", taken_at)
    return line if line.time is not None else replace(line, time=outer.time, zoned=outer.zoned)
