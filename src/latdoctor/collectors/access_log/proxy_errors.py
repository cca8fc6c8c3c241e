"""Lines of a proxy's error log that say why the server behind it failed a request: nginx, Caddy, Knative.

They stand beside the request lines, or in a file of their own, and repeat requests that the request log counts: they
are events, never requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log import fields
from latdoctor.collectors.access_log.entry import Timestamp
from latdoctor.collectors.access_log.failures import FailureReason

R = FailureReason
MARKS = (b": *", b"http.log.error", b"reverse proxying")  # every such line contains one of them
# nginx's error log, with any of its levels; `*` numbers the connection.
_NGINX = re.compile(
    r"(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) \[(?:debug|info|notice|warn|error|crit|alert|emerg)\]"
    r" \d{1,10}#\d{1,10}: (?:\*\d{1,19} )?(.{1,4000})"
)
_REQUEST = re.compile(r'request: "[A-Z]{3,10} ([^" ]{1,2000})')
_SERVER = re.compile(r'upstream: "([^"]{1,500})"')
# What each program says; the first that matches counts.
_WORDS: tuple[tuple[re.Pattern[str], FailureReason], ...] = tuple(
    (re.compile(pattern, re.I), failure)
    for pattern, failure in (
        (r"upstream timed out.{0,60}while connecting|connect\(\) timed out", R.UPSTREAM_UNREACHABLE),
        (r"upstream timed out|deadline exceeded|i/o timeout|timeout awaiting response", R.UPSTREAM_TIMEOUT),
        (
            r"connect\(\) failed|connection refused|no route to host|no such host|not be resolved",
            R.UPSTREAM_UNREACHABLE,
        ),
        (r"no live upstreams|no upstreams available", R.NO_UPSTREAM),
        (
            r"upstream prematurely closed|reset by peer|upstream sent no valid|broken pipe|\bEOF$",
            R.UPSTREAM_RESET,
        ),
        (r"limiting (?:requests|connections)", R.RATE_LIMITED),
        (r"worker_connections are not enough", R.OVERLOADED),
        (r"upstream sent (?:invalid|too big)", R.UPSTREAM_PROTOCOL),
        (r"client (?:prematurely )?closed|context canceled", R.CLIENT_CLOSED),
    )
)


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """`reason` is None for a line of the error log that says nothing of a request that failed."""

    time: Timestamp | None
    failure: FailureReason | None
    path: str = ""
    server: str = ""


def read(line: str) -> ErrorLine | None:
    """Parse a line of a proxy's error log; None for any other line."""
    if found := _NGINX.search(line):
        path, server = _REQUEST.search(found[2]), _SERVER.search(found[2])
        return ErrorLine(
            times.parse_timestamp(found[1]),
            _reason(found[2]),
            path[1] if path else "",
            server[1] if server else "",
        )
    begin = line.find("{")
    record = fields.decoded(line[begin:]) if begin >= 0 and line.rstrip().endswith("}") else None
    if record is None:
        return None
    text = f"{record.get('msg', '')}: {record.get('error', '')}"
    if not str(record.get("logger", "")).startswith("http.log.error") and "reverse proxying" not in text:
        return None
    uri = record.get("request.uri")
    return ErrorLine(fields.logged_time(record), _reason(text), uri if isinstance(uri, str) else "")


def _reason(text: str) -> FailureReason | None:
    return next((failure for form, failure in _WORDS if form.search(text)), None)
