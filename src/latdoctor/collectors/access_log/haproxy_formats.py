"""Lines of HAProxy: its HTTP form, one request each, and its TCP form, one connection each.

A time of -1 is unknown: the session ended before. The termination state says how it ended, and in which phase.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log import failures
from latdoctor.collectors.access_log.entry import AccessLogEntry, Timestamp
from latdoctor.collectors.access_log.stages import RequestStage

_FRONT = r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?:\.\d{3})?)\] \S{1,200} \S{1,200} "
_CONNECTIONS = r"\d{1,9}/\d{1,9}/\d{1,9}/\d{1,9}/\+?(\d{1,9}) "
_HTTP = re.compile(
    rf"{_FRONT}(-?\d{{1,9}})/(-?\d{{1,9}})/(-?\d{{1,9}})/(-?\d{{1,9}})/\+?(-1|\d{{1,12}}) (-1|\d{{3}}) "
    rf"(?:\+?\d{{1,19}} \S{{1,4000}} \S{{1,4000}} (\S{{2,4}}) {_CONNECTIONS})?"
)
_TCP = re.compile(
    rf"{_FRONT}(-?\d{{1,9}})/(-?\d{{1,9}})/\+?(-1|\d{{1,12}}) \+?\d{{1,19}} ([A-Za-z-]{{2}}) {_CONNECTIONS}\d{{1,9}}/\d"
)
_HTTP_STAGES = (RequestStage.RECEIVE, RequestStage.QUEUE, RequestStage.CONNECT, RequestStage.UPSTREAM)
_TCP_STAGES = (RequestStage.QUEUE, RequestStage.CONNECT)
_REQUEST = re.compile(r'"([^"]*)"?(?: [^"]{0,400})?$')
_MAX_REQUEST = 16 << 10  # characters at the end of a line in which the request is searched
_MAX_FRONT = 8000  # characters at its beginning with all else


def http(line: str) -> AccessLogEntry | None:
    """A request: the times TR/Tw/Tc/Tr/Ta and how the session ended."""
    found = _HTTP.search(line[:_MAX_FRONT])
    started = times.parse_timestamp(found[1]) if found else None
    if found is None or started is None:
        return None
    duration = times.parse_duration(found[6], 1e-3)
    request = _REQUEST.search(line[-_MAX_REQUEST:])
    method, path = times.method_and_path(request[1] if request else "")
    stages = _stages(_HTTP_STAGES, found.groups()[1:5])
    rest = duration.seconds - sum(stages.values()) if duration else -1.0
    if RequestStage.UPSTREAM in stages and rest >= 0:
        stages[RequestStage.SEND] = rest
    state = found[8] or ""
    failure = failures.of_haproxy_state(state)
    status: int | None = int(found[7])
    if found[7] == "-1":  # the session ended before an answer
        status = 499 if failure in failures.GAVE_UP else None if failure is None else 0
    return AccessLogEntry(
        started,
        Timestamp(started.time + (duration.seconds if duration else 0.0), started.fine, started.zoned),
        duration,
        status,
        path,
        stages=tuple(stages.items()),
        failure=failure,
        attempts=int(found[9] or 0) + 1 if state else 0,
        method=method,
    )


def tcp(line: str) -> AccessLogEntry | None:
    """A connection: the times Tw/Tc/Tt. It may carry many requests, so the last is the duration of none."""
    found = _TCP.search(line[:_MAX_FRONT])
    started = times.parse_timestamp(found[1]) if found else None
    if found is None or started is None:
        return None
    lasted = times.parse_duration(found[4], 1e-3)
    return AccessLogEntry(
        started,
        Timestamp(started.time + (lasted.seconds if lasted else 0.0), started.fine, started.zoned),
        stages=tuple(_stages(_TCP_STAGES, found.groups()[1:3]).items()),
        failure=failures.of_haproxy_state(found[5]),
        attempts=int(found[6]) + 1,
    )


def _stages(names: Sequence[RequestStage], found: Sequence[str | None]) -> dict[str, float]:
    return {name: int(text) / 1e3 for name, text in zip(names, found, strict=True) if text and text[0] != "-"}
