"""Formats of access logs: line → AccessLogEntry.

Combined (nginx, Apache, gunicorn, ingress-nginx), Envoy and Istio, HAProxy, uvicorn, JSON lines and `key=value` lines.
Prefixes added by log collectors (docker, the container runtime of Kubernetes, syslog) are removed.

In the combined format, the duration is whatever the administrator appended. A number with a fraction is taken for
nginx's `$request_time` (seconds), one with a unit for what it says, and `%T/%D` of Apache for its microseconds. A bare
integer is ambiguous (Apache's `%D` is in microseconds, others use milliseconds) and is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log import fields
from latdoctor.collectors.access_log.entry import AccessLogEntry, RequestDuration, Timestamp
from latdoctor.decode_errors import UNDECODABLE

MAX_LINE = 64 << 10  # bytes; longer lines are skipped

_QUOTED = r'"((?:[^"\\]|\\.)*+)"'
_COMBINED = re.compile(rf"(?:\S{{1,300}} ){{2,4}}\[([^\]]{{1,40}})\] {_QUOTED} (\d{{3}}|-) (\d{{1,19}}|-)(.*)", re.S)
_ENVOY = re.compile(
    rf"\[(\d{{4}}-\d\d-\d\dT[\d:.]{{8,20}}Z)\] {_QUOTED} (\d{{1,3}}) \S+ "
    r'(?:\S+ \S+ "(?:[^"\\]|\\.)*+" )?\d{1,19} \d{1,19} (\d{1,12}) '
)
_HAPROXY = re.compile(
    r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d\.\d{3})\] \S{1,200} \S{1,200} "
    r"-?\d{1,9}/-?\d{1,9}/-?\d{1,9}/-?\d{1,9}/\+?(\d{1,12}) (-1|\d{3}) "
)
_HAPROXY_REQUEST = re.compile(r'"([^"]*)"?$')
_UVICORN = re.compile(r':\d{1,5} - "[A-Z]{3,10} (\S{1,8000}) HTTP/[\d.]{1,3}" (\d{3})\b')
_LEADING_TIME = re.compile(r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?)")

_NAMED = re.compile(
    r'\b(?:rt|request_time|req_time|duration|took|time)[=:]"?(\d{1,9}(?:\.\d{1,9})?\s?(?:ms|us|µs|s)?)\b'
)
_FRACTION = re.compile(r'"?(\d{1,9}\.\d{3,9})"?')
_WITH_UNIT = re.compile(r'"?(\d{1,12}(?:\.\d{1,9})?(?:ms|us|µs|ns|s))"?')
_BOTH = re.compile(r"(\d{1,9})/(\d{1,15})")  # %T/%D
_WHOLE = re.compile(r'"?\d{1,15}"?')
_NOT_A_NUMBER = re.compile(r'"(?![\d.]+"(?:\s|$))(?:[^"\\]|\\.)*+"')

_CRI = re.compile(r"\d{4}-\d\d-\d\dT\S{10,30} std(?:out|err) [FP] ")
_SYSLOG = re.compile(r"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} [\w./-]{1,100}(?:\[\d{1,10}\])?: ")


@dataclass(frozen=True, slots=True)
class AccessLogFormat:
    """`hint`: what to change if its lines have no duration."""

    title: str
    read: Callable[[str], AccessLogEntry | None]
    hint: str = "configure the server to log the duration of each request, or set --log-pattern"


def line_text(raw: bytes) -> str | None:
    """The server's own line; None if it is too long or empty."""
    if len(raw) > MAX_LINE:
        return None
    line = raw.decode("utf-8", "replace").rstrip("\r\n")
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


def _combined(line: str) -> AccessLogEntry | None:
    found = _COMBINED.match(line)
    ended = times.parse_timestamp(found[1]) if found else None
    if found is None or ended is None:
        return None
    duration, unit_unknown = _of_tail(found[5])
    words = found[2].split(" ")
    status = int(found[3]) if found[3] != "-" else None
    return AccessLogEntry(None, ended, duration, status, words[1] if len(words) > 1 else "", unit_unknown=unit_unknown)


def _of_tail(tail: str) -> tuple[RequestDuration | None, bool]:
    """The duration after the combined format, and whether there is only a number without a unit."""
    named = _NAMED.search(tail)
    if named:
        return times.parse_duration(named[1], 1.0 if "." in named[1] else None), "." not in named[1]
    tokens = _NOT_A_NUMBER.sub(" ", tail).split()
    for form, unit in ((_WITH_UNIT, None), (_FRACTION, 1.0)):
        for token in tokens:
            if found := form.fullmatch(token):
                return times.parse_duration(found[1], unit), False
    for token in tokens:
        both = _BOTH.fullmatch(token)
        if both and int(both[2]) // 1_000_000 == int(both[1]):
            return times.parse_duration(both[2], 1e-6), False
    return None, any(_WHOLE.fullmatch(token) for token in tokens)


def _envoy(line: str) -> AccessLogEntry | None:
    found = _ENVOY.match(line)
    started = times.parse_timestamp(found[1]) if found else None
    duration = times.parse_duration(found[4], 1e-3) if found else None
    if found is None or started is None or duration is None:
        return None
    words = found[2].split(" ")
    ended = Timestamp(started.time + duration.seconds, started.fine, started.zoned)
    return AccessLogEntry(started, ended, duration, int(found[3]), words[1] if len(words) > 1 else "")


def _haproxy(line: str) -> AccessLogEntry | None:
    found = _HAPROXY.search(line[:2000])
    started = times.parse_timestamp(found[1]) if found else None
    duration = times.parse_duration(found[2], 1e-3) if found else None
    if found is None or started is None or duration is None:
        return None
    request = _HAPROXY_REQUEST.search(line[-MAX_LINE // 4 :])
    words = request[1].split(" ") if request else []
    ended = Timestamp(started.time + duration.seconds, started.fine, started.zoned)
    return AccessLogEntry(started, ended, duration, max(0, int(found[3])), words[1] if len(words) > 1 else "")


def _uvicorn(line: str) -> AccessLogEntry | None:
    found = _UVICORN.search(line)
    if found is None:
        return None
    time = _LEADING_TIME.match(line)
    return AccessLogEntry(None, times.parse_timestamp(time[1]) if time else None, None, int(found[2]), found[1])


def _json(line: str) -> AccessLogEntry | None:
    return fields.of_json(line) if line.startswith("{") else None


def _pairs(line: str) -> AccessLogEntry | None:
    return fields.of_pairs(line) if "status" in line and "=" in line else None


FORMATS: tuple[AccessLogFormat, ...] = (
    AccessLogFormat("JSON lines", _json, "write the duration with its unit in its name, such as duration_ms"),
    AccessLogFormat("the combined form", _combined, "log the duration too (nginx: $request_time), or specify its unit: "
           "--log-pattern '{*} [{time}] \"{request}\" {status} {*} \"{*}\" \"{*}\" {us}'"),
    AccessLogFormat("Envoy's form", _envoy),
    AccessLogFormat("HAProxy's form", _haproxy),
    AccessLogFormat("uvicorn's form", _uvicorn, "uvicorn logs none: use the log of the proxy in front of it"),
    AccessLogFormat("key=value lines", _pairs, "write the duration with its unit, such as duration=12ms"),
)  # fmt: skip


def recognise_format(lines: Sequence[str]) -> tuple[AccessLogFormat, int] | None:
    """The format of most of `lines`, and how many match it; None if it is not an access log.

    Three in five lines must match, or ten: a server may mix its access log with other output.
    """
    counts = [(sum(form.read(line) is not None for line in lines), form) for form in FORMATS]
    most, form = max(counts, key=lambda one: one[0])
    return (form, most) if most and (most >= 0.6 * len(lines) or most >= 10) else None
