"""Formats of request logs: line → AccessLogEntry, and which of them a log is in.

`line_formats.py` lists the lines of inference servers, `proxy_formats.py` those of proxies, `fields.py` reads JSON
records and `key=value` lines. Prefixes and records in which log collectors carry a line (docker, the container runtime
of Kubernetes, syslog, a cloud's export) are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log import fields, haproxy_formats, proxy_formats
from latdoctor.collectors.access_log.entry import AccessLogEntry, Timestamp
from latdoctor.collectors.access_log.line_formats import LINE_FORMATS, prefix_time
from latdoctor.collectors.logs import line_prefix
from latdoctor.decode_errors import UNDECODABLE

MAX_LINE = 64 << 10  # bytes; longer lines are skipped
_MOST_BEFORE = 300  # characters before a JSON record in a line
_DEPTH = 2  # records within records

_CRI = re.compile(r"\d{4}-\d\d-\d\dT\S{10,30} std(?:out|err) [FP] ")
_SYSLOG = re.compile(r"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} [\w./-]{1,100}(?:\[\d{1,10}\])?: ")
_SPREAD = re.compile(rb"\s*(?:\[\s*\{|\{\s*\n\s*\")")
_RECORD = re.compile(r"[\s,\[\]]{0,1000}\{")
_DECODER = json.JSONDecoder()
_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}m")


@dataclass(frozen=True, slots=True)
class AccessLogFormat:
    """`needles`: where a log is searched for its lines. `sure`: one line with a duration is proof enough.

    `hint`: what to change if its lines have no duration.
    """

    title: str
    read: Callable[[str], AccessLogEntry | None]
    hint: str = "configure the server to log the duration of each request, or set --log-pattern"
    needles: tuple[bytes, ...] = ()
    sure: bool = True


def as_lines(content: bytes) -> bytes:
    """One record on each line, where `content` is a JSON array of records, or records that span lines."""
    if not _SPREAD.match(content):
        return content
    text, position, records = content.decode("utf-8", "replace"), 0, []
    while (begin := _RECORD.match(text, position)) is not None:
        try:
            record, position = _DECODER.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            break  # the end of a file that was cut off
        records.append(msgspec.json.encode(record))
    return b"\n".join([*records, b""]) if records else content


def line_text(raw: bytes) -> str | None:
    """The server's own line; None if it is too long or empty."""
    if len(raw) > MAX_LINE:
        return None
    line = raw.decode("utf-8", "replace").rstrip("\r\n")
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    if line.startswith('{"log":'):
        line = _docker(line)
    elif found := _CRI.match(line) or _SYSLOG.match(line):
        line = line[found.end() :]
    return line if line and not line.isspace() else None


def _docker(line: str) -> str:
    try:
        return msgspec.json.decode(line, type=_Wrapped).log.rstrip("\r\n")
    except UNDECODABLE:
        return line


class _Wrapped(msgspec.Struct):
    log: str
    time: str = ""


def carrier_time(raw: bytes) -> Timestamp | None:
    """When the container runtime took a line, which has a time zone; None for a line without its prefix."""
    if raw.startswith(b'{"log":'):
        return _docker_time(raw.decode("utf-8", "replace"))
    found = _CRI.match(raw[:_MOST_BEFORE].decode("utf-8", "replace"))
    return times.parse_timestamp(found[0].split(" ", 1)[0]) if found else None


def _docker_time(line: str) -> Timestamp | None:
    try:
        return times.parse_timestamp(msgspec.json.decode(line, type=_Wrapped).time)
    except UNDECODABLE:
        return None


def line_time(raw: bytes, taken_at: float) -> Timestamp | None:
    """The time at the beginning of a line, or in the record around it; None if it has none.

    `taken_at` (unix seconds) supplies the year that some forms leave out.
    """
    line = line_prefix.clean_line(raw[: line_prefix.MAX_LINE])
    if line.startswith('{"log":'):
        return _docker_time(line)
    if (found := prefix_time(line, len(line))) is not None:
        return found
    parsed = line_prefix.parse(line, taken_at)
    return Timestamp(parsed.time, fine=False, zoned=parsed.zoned) if parsed.time is not None else None


def _json(line: str, depth: int = _DEPTH) -> AccessLogEntry | None:
    begin = 0 if line.startswith("{") else line.find("{", 0, _MOST_BEFORE) if line.rstrip().endswith("}") else -1
    record = fields.decoded(line[begin:]) if begin >= 0 else None
    if record is None:
        return None
    found = fields.of_fields(record) or fields.of_failed_span(record) or _carried(record, depth)
    return replace(found, ended=prefix_time(line, begin)) if found and begin and found.ended is None else found


def _carried(record: fields.Fields, depth: int) -> AccessLogEntry | None:
    """The request in the line that a record carries."""
    text = _COLOUR.sub("", fields.carried_text(record)[:MAX_LINE])
    if not text or not depth:
        return None
    found = _json(text, depth - 1) if "{" in text else None
    if found is None:
        found = next((entry for form in TEXT_FORMATS if (entry := form.read(text)) is not None), None)
    return fields.with_record(found, record) if found else None


def _pairs(line: str) -> AccessLogEntry | None:
    return fields.of_pairs(line) if "status" in line and "=" in line else None


TEXT_FORMATS: tuple[AccessLogFormat, ...] = (
    AccessLogFormat("the combined form", proxy_formats.combined, "log the duration too (nginx: $request_time), or "
           "specify its unit: --log-pattern '{*} [{time}] \"{request}\" {status} {*} \"{*}\" \"{*}\" {us}'", (b'] "',)),
    AccessLogFormat("Envoy's form", proxy_formats.envoy, needles=(b'Z] "',)),
    AccessLogFormat("HAProxy's form", haproxy_formats.http, needles=(b" ---- ", b"/")),
    AccessLogFormat("HAProxy's form of TCP connections", haproxy_formats.tcp,
                    "set `option httplog`: the time of a connection is that of no request", (b" -- ", b"/")),
    AccessLogFormat("the form of AWS load balancers", proxy_formats.load_balancer, needles=(b" HTTP/",)),
    *(AccessLogFormat(one.title, one.read, one.hint, tuple(needle.encode() for needle in one.needles))
      for one in LINE_FORMATS),
)  # fmt: skip
_RECORDS = (b'"response_flags"', b'"DownstreamStatus"', b'"http.log.access', b'"httpRequest"', b'"total_time"',
            b'"log_server_request"', b'"upstream_response_time"', b'"request_time"', b'"latencies"', b'"call_type"',
            b'"timeTaken"', b"ACCESS_LOG", b'ms"')  # fmt: skip
FORMATS: tuple[AccessLogFormat, ...] = (
    AccessLogFormat("JSON lines", _json, "write the duration with its unit in its name, such as duration_ms", _RECORDS),
    *TEXT_FORMATS,
    AccessLogFormat("key=value lines", _pairs, "write the duration with its unit, such as duration=12ms", sure=False),
)  # fmt: skip
ENOUGH, SHARE = 10, 0.6  # lines, or share of the lines that are tried, which make any log a request log


def recognise_format(lines: Sequence[str]) -> tuple[AccessLogFormat, int] | None:
    """The format of most of `lines`, and how many match it; None if it is not a request log.

    Three in five lines must match, or ten: a server may mix its requests with other output.
    """
    counts = [(sum(form.read(line) is not None for line in lines), form) for form in FORMATS]
    most, form = max(counts, key=lambda one: one[0])
    return (form, most) if most and (most >= SHARE * len(lines) or most >= ENOUGH) else None
