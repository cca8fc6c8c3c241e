"""Format of a log: plain lines, JSON records one per line (journalctl -o json, docker, structured logging), or a JSON
document with many records (exports of log services).

Files that are not logs are rejected, because the absence of a fault in them means nothing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from latdoctor.collectors.logs import line_prefix, records
from latdoctor.collectors.logs.line_prefix import APPLICATION, BARE, KERNEL, LogLine
from latdoctor.collectors.logs.month_names import MONTH
from latdoctor.collectors.logs.records import Fields, LogRecord
from latdoctor.errors import SourceError

_DRIVER = re.compile(r"NVRM: |nvidia-nvswitch\d{1,4}: SXid \(")
_MOMENT = re.compile(
    rf"(?P<own>\[\s*\d{{1,12}}(?:\.\d{{1,9}})?\]|\[[^\W\d_]{{1,4}}\.? {MONTH}\s+\d{{1,2}} \d\d:\d\d:\d\d \d{{4}}\])"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\s?(?:Z|[+-]\d\d:?\d\d)?\]?"
    rf"|{MONTH}\s+\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d{{1,9}})?"
)
_OF_HOST = re.compile(r"([\w.-]{1,253}): ")  # pdsh and clush; grep -H writes no space
_QUOTES = re.compile(r"[\"'`‘’“”«»]")
_LISTED = re.compile(r"\s*[-*+•] (?!-)")  # an item of a list, in which a time of day alone is that of a report
_DATED = re.compile(rf"\d{{4}}|{MONTH}\s+\d|\[\s*\d")
_SIGNS = re.compile(
    r"-|\||[FP]|std(?:out|err)|<\d{1,3}>1?|\[[^\]]{0,300}\]|kern(?:\.[a-z]{3,7})?"
    r"|(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|ALERT|FATAL)",
    re.IGNORECASE,
)
_TIME, _OWN_STAMP = "\x01", "\x02"  # placeholders of a time; a cleaned line contains neither
_MOST_BEFORE = 400  # characters before the driver's words
# Number of other words allowed there: a pod and its container, a host; one more if `kernel:` is present.
_WITH_KERNEL, _WITH_OWN_STAMP, _WITH_TIME = 3, 2, 1


def carried(text: str, line: LogLine, written_at: float) -> LogLine:
    """Return the driver's line carried by `line` (which is `text` parsed); `line` itself if there is none."""
    if line.writer == KERNEL:
        return line
    found = _DRIVER.search(text)
    before = text[: found.start()] if found else ""
    if found is None or not before.strip() or len(before) > _MOST_BEFORE or not _carries(before):
        return line
    moments = list(_MOMENT.finditer(text, 0, found.start()))
    inner = line_prefix.parse(text[moments[-1].start() :], written_at) if moments else line
    time, zoned = (line.time, line.zoned) if inner.time is None else (inner.time, inner.zoned)
    of_host = _OF_HOST.match(before)
    host = inner.host or line.host or (line_prefix.host_of(of_host[1]) if of_host else "")
    return replace(line, message=text[found.start() :], writer=KERNEL, time=time, zoned=zoned, uptime=inner.uptime,
                   pid="", process="", host=host)  # fmt: skip


def _carries(before: str) -> bool:
    """Whether `before`, the text before the driver's words, is a carrier's prefix and not part of a message."""
    if _QUOTES.search(before) or (_LISTED.match(before) and not _DATED.search(before)):
        return False
    words = _MOMENT.sub(lambda moment: f" {_OWN_STAMP if moment['own'] else _TIME} ", before).split()
    named = "kernel:" in words[-2:] or _ends_as_rfc_5424(words)
    left = []
    for number, word in enumerate(words):
        after = words[number + 1] if number + 1 < len(words) else ""
        if word in (_TIME, _OWN_STAMP, "kernel:") or after == "|" or _SIGNS.fullmatch(word):
            continue
        if word.endswith(":") and not (number == 0 and after in (_TIME, _OWN_STAMP)):  # grep -H, pdsh
            return False
        left.append(word)
    if named:
        return len(left) <= _WITH_KERNEL
    if words[-1] == _OWN_STAMP:
        return len(left) <= _WITH_OWN_STAMP
    return len(left) <= (_WITH_TIME if _TIME in words else 0)


def _ends_as_rfc_5424(words: list[str]) -> bool:
    """`host kernel - - -`: the program, its process, the message id and structured data."""
    return words[-4:] == ["kernel", "-", "-", "-"]


PLAIN, RECORDS, DOCUMENT = "plain", "records", "document"

_REALTIMES = ("_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP")  # of journald
HEAD = 1 << 20  # bytes used to recognise the format
_LONGEST_PREFIX = 200  # bytes before a journal's record that a container carries
_TRIED = 100  # lines used to recognise the format
_FRAME = re.compile(rb"\x1e|data: (?=\{)")  # before each record of journalctl -o json-seq and json-sse
_MARKUP = re.compile(rb"<(?:!doctype|html|\?xml)\b", re.I)
_JSON_BEGINS = re.compile(rb"\{\s*(?:$|\"[^\"]*\"\s*:|\})|\[\s*(?:$|[{\[\"\]])")
_METRIC = re.compile(rb"#\s+(?:HELP|TYPE)\s+[a-zA-Z_:][\w:]*(?:\s|$)|# EOF$")
_SAMPLE = re.compile(rb"[a-zA-Z_:][\w:]*(?:(\{.*\})\s*|\s+)[-+]?(?:\d[\d.eE+-]*|NaN|Inf)(?:\s+\d+)?$")
_ENOUGH = 0.9  # of the first lines
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def decoded(content: bytes) -> bytes:
    """Return `content` as UTF-8 without a byte order mark; UTF-16 is recognised by its mark (PowerShell writes it)."""
    encoding = encoding_of(content[:HEAD])
    if encoding:
        content = content.decode(encoding, "replace").encode("utf-8", "replace")
    # A log truncated while open begins with zeros, and UTF-16 without its mark is half zeros.
    return content.replace(b"\0", b"") if b"\0" in content else content


def encoding_of(head: bytes) -> str:
    """The encoding of a text that is not plain UTF-8, by its beginning: UTF-16 with or without its mark, else ""."""
    marked = next((encoding for mark, encoding in _BOMS if head.startswith(mark)), "")
    if marked or b"\0" not in head:
        return marked
    for encoding, zeros, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        # Text of one script: nearly every second byte is a zero, or the same few values.
        if zeros.count(0) > 0.5 * len(zeros) and others.count(0) < 0.05 * len(others):
            return encoding
    return ""


def form_of(content: bytes, where: str) -> str:
    """PLAIN, RECORDS or DOCUMENT, by the beginning of a decoded log. Raises SourceError for anything but a log."""
    head = content[:HEAD]
    _refuse_binary(head, where)
    lines = [line.strip() for line in head.splitlines() if line.strip()][:_TRIED]
    if lines and _MARKUP.match(lines[0]):
        raise SourceError("is a web page or XML, not a log of lines", where=where, next_step=_TEXT)
    if is_metrics(lines):
        raise SourceError("is a metrics page, not a log", where=where, next_step="pass it as --metrics FILE")
    begins = [_FRAME.sub(b"", line, count=1) for line in lines]
    if not begins or not _JSON_BEGINS.match(begins[0]):
        return PLAIN
    values = (records.object_in(line) for line in begins)
    if any(value is not None and next(records.records_of(value, 0.0), None) for value in values):
        return RECORDS
    if any(_is_dated(record) for record in islice(records.records_in_document(head, 0.0), _TRIED)):
        return DOCUMENT
    raise SourceError(
        "is a JSON document, not a log of lines",
        where=where,
        next_step="pass a profiler trace as --trace FILE, a journal as journalctl -o short-iso or -o json",
    )


def _is_dated(record: LogRecord) -> bool:
    """Whether it has a time: an answer of an API has a message too."""
    return record.time is not None or _microseconds(record.fields, *_REALTIMES) is not None


_TEXT = "pass it as text (a journal: journalctl -k -o short-iso > kernel.log)"


def _refuse_binary(head: bytes, where: str) -> None:
    """Raises SourceError for binary data: over 5 % control characters or 20 % invalid UTF-8.

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
    ramp = declared or any(found[1] for found in samples)
    return bool(ramp) and len(declared) + len(samples) >= _ENOUGH * len(lines)


def lines_of(record: bytes, written_at: float) -> Iterator[tuple[str, LogLine]]:
    """Yield the lines of one JSON record, each with its original text. Other lines are plain lines.

    Raises ValueError if a record cannot be read or has no text.
    """
    record = _FRAME.sub(b"", record.strip(), count=1)
    if not record.startswith(b"{"):
        yield line_of(record, written_at)
        return
    fields = records.object_in(record)
    found = list(records.records_of(fields, written_at)) if fields is not None else []
    if not found:
        raise ValueError("a record without readable text")
    for one in found:
        yield from lines_of_record(one, written_at)


def lines_of_document(content: bytes, written_at: float) -> Iterator[list[tuple[str, LogLine]]]:
    """Yield the lines of each record of a JSON document."""
    for record in records.records_in_document(content, written_at):
        yield list(lines_of_record(record, written_at))


def lines_of_record(record: LogRecord, written_at: float) -> Iterator[tuple[str, LogLine]]:
    """Yield the lines of a record, each with its text."""
    for raw in record.message.splitlines() or [b""]:
        text = line_prefix.clean_line(raw)
        yield (
            text,
            _journal(record.fields, text) if "MESSAGE" in record.fields else _structured(record, text, written_at),
        )


def line_of(raw: bytes, written_at: float) -> tuple[str, LogLine]:
    """Parse a line that is not a record: return its cleaned text and parsed form. It may carry a driver line or a
    record of one line.
    """
    begin = raw.find(b"{", 0, _LONGEST_PREFIX)
    if begin >= 0 and (found := _carried_record(raw, begin, written_at)) is not None:
        return found
    text = line_prefix.clean_line(raw[: line_prefix.MAX_LINE])
    return text, carried(text, line_prefix.parse(text, written_at), written_at)


def _carried_record(raw: bytes, begin: int, written_at: float) -> tuple[str, LogLine] | None:
    """The line in a JSON record behind a carrier's prefix, or None."""
    prefix = line_prefix.clean_line(raw[:begin])
    if b'"MESSAGE"' not in raw and not line_prefix.is_carrier(prefix, written_at):
        return None
    fields = records.object_in(raw[begin:].rstrip())
    record = records.record_in(fields, written_at) if fields is not None else None
    if record is None or len(record.message.splitlines()) > 1:
        return None
    ((text, line),) = lines_of_record(record, written_at)
    if line.time is None and prefix:
        outer = line_prefix.parse(f"{prefix}x", written_at)
        line = replace(line, time=outer.time, zoned=outer.zoned)
    return text, line


def _journal(fields: Fields, text: str) -> LogLine:
    kernel = fields.get("_TRANSPORT") == "kernel" or _is_kernels(fields)
    uptime = _microseconds(fields, "_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP") if kernel else None
    time = _microseconds(fields, *_REALTIMES)
    pid = "" if kernel else line_prefix.clean_line(str(fields.get("_PID") or "").encode())
    process = "" if kernel else line_prefix.clean_line(str(fields.get("SYSLOG_IDENTIFIER") or "").encode())
    host = line_prefix.host_of(line_prefix.clean_line(str(fields.get("_HOSTNAME") or "").encode()))
    writer = KERNEL if kernel else APPLICATION
    return LogLine(text, writer, time, time is not None, uptime, pid, process, host)


def _is_kernels(fields: Fields) -> bool:
    """For a journal with a selection of fields: the identifier is the kernel's, and there is no PID."""
    return fields.get("SYSLOG_IDENTIFIER") == "kernel" and not fields.get("_PID")


def _microseconds(fields: Fields, *names: str) -> float | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            return int(value) / 1e6
    return None


def _structured(record: LogRecord, text: str, written_at: float) -> LogLine:
    """Parse a line within a record; the record's time applies if the line has none, and its zone if that has none."""
    line = carried(text, line_prefix.parse(text, written_at), written_at)
    if line.writer == BARE and not text.lstrip().startswith("NVRM:"):
        line = replace(line, writer=APPLICATION)
    if record.time is None:
        return line
    outer = LogLine(text, APPLICATION, record.time.time, record.time.zoned)
    return (
        line_prefix.joined(outer, line) if line.time is not None else replace(line, time=outer.time, zoned=outer.zoned)
    )
