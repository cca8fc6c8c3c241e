"""Request lines of proxies and load balancers that are text: the combined form, Envoy, AWS.

In the combined form the duration is whatever the administrator appended. A number with a fraction is taken for nginx's
`$request_time` (seconds), one with a unit for what it says, and `%T/%D` of Apache for its microseconds. A bare integer
is ambiguous (Apache's `%D` is in microseconds, others use milliseconds): `bare_numbers.py` decides by the whole log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log import failures, upstreams
from latdoctor.collectors.access_log.entry import CLIENT_LEFT, AccessLogEntry, RequestDuration, Timestamp
from latdoctor.collectors.access_log.failures import FailureReason
from latdoctor.collectors.access_log.stages import RequestStage, with_own_time

_QUOTED = r'"((?:[^"\\]|\\.)*+)"'
_GEVENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"  # as gevent writes the time
_COMBINED = re.compile(
    rf"\[(\d\d/[A-Z][a-z]{{2}}/\d{{4}}[: ]\d\d:\d\d:\d\d[^\]]{{0,16}}|{_GEVENT})\] {_QUOTED} "
    r"(\d{3}|-)(?: (\d{1,19}|-)(.*))?",
    re.S,
)
_ENVOY = re.compile(
    rf"\[(\d{{4}}-\d\d-\d\dT[\d:.]{{8,20}}Z)\] {_QUOTED} (\d{{1,3}}|-) (\S{{1,60}}) "
    r'((?:(?:"(?:[^"\\]|\\.)*+"|-|[^\s"\d]\S{0,400}) ){0,4})'
    rf"\d{{1,19}} \d{{1,19}} (\d{{1,12}}|-) (\d{{1,12}}|-)(?: {_QUOTED} {_QUOTED} {_QUOTED})?"
)
_ALB = re.compile(
    r"(?:^|\s)(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z) \S{1,200} \S{3,80}:\d{1,5} \S{1,80} "
    r"(?P<request_s>-?\d{1,6}(?:\.\d{1,9})?) (?P<target_s>-?\d{1,6}(?:\.\d{1,9})?) "
    r"(?P<response_s>-?\d{1,6}(?:\.\d{1,9})?) "
    rf"(?P<status>\d{{3}}|-) (?P<upstream>\d{{1,3}}|-) -?\d{{1,19}} -?\d{{1,19}} (?P<request>{_QUOTED}) "
    rf"(?P<agent>{_QUOTED})(?P<rest>.*)",
    re.S,
)
_ALB_CREATED = re.compile(r'"(?:[^"\\]|\\.)*+" -?\d{1,6} (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z) ')
_ALB_ERROR = re.compile(r'"((?:Target|Lambda|Auth|WAF)[A-Za-z]{3,60})"')

_DURATION_NAMED = re.compile(
    r'\b(?:(?:rt|request_time|req_time|duration|took|time)[=:]\s?|request_time )"?'
    r"(\d{1,9}(?:\.\d{1,9})?\s?(?:ms|us|µs|s)?)(?![\w.])"
)
_MICROSECONDS = re.compile(r'\b(?:D|usec|us|time_us|duration_us|response_time_us)[=:]"?(\d{1,15})\b')
_FRACTION = re.compile(r'"?(\d{1,9}\.\d{3,9})"?')
_WITH_UNIT = re.compile(r'"?(\d{1,12}(?:\.\d{1,9})?(?:ms|us|µs|ns|s))"?')
_BOTH = re.compile(r"\*{0,2}(\d{1,9})/(\d{1,15})\*{0,2}")  # %T/%D
_WHOLE = re.compile(r'"?(\d{1,15})"?')
_NOT_A_NUMBER = re.compile(r'"(?![\d.]+"(?:\s|$))(?:[^"\\]|\\.)*+"')
_NONE = upstreams.Upstreams()
_AGENT = re.compile(rf" {_QUOTED} {_QUOTED}")


def combined(line: str) -> AccessLogEntry | None:
    """The common and the combined form: nginx, Apache, gunicorn, hypercorn, Flask, Traefik, ingress-nginx."""
    found = _COMBINED.search(line)
    ended = times.parse_timestamp(found[1]) if found else None
    if found is None or ended is None:
        return None
    tail = found[5] or ""
    behind = upstreams.of_tail(tail) or _NONE
    duration, bare = (behind.total, None) if behind.total is not None else _of_tail(tail)
    method, path = times.method_and_path(found[2])
    status = int(found[3]) if found[3] != "-" else None
    named = _AGENT.match(tail)
    failure = FailureReason.CLIENT_CLOSED if status in CLIENT_LEFT else None
    if failure is None and behind is not _NONE:
        failure = failures.of_statuses(status, behind.status)
    return AccessLogEntry(
        None,
        ended,
        duration,
        status,
        path,
        behind.request_id,
        stages=with_own_time(dict(behind.stages), duration.seconds if duration else None) if behind.stages else (),
        unit_unknown=bare is not None,
        bare=bare,
        failure=failure,
        upstream_status=behind.status,
        attempts=behind.attempts,
        upstream=behind.address,
        agent=named[2] if named else "",
        method=method,
    )


def _of_tail(tail: str) -> tuple[RequestDuration | None, int | None]:
    """The duration after the combined form, or else the last number without a unit."""
    if exact := _MICROSECONDS.search(tail):
        return times.parse_duration(exact[1], 1e-6), None
    if named := _DURATION_NAMED.search(tail):
        plain = named[1].strip().isdecimal()
        return times.parse_duration(named[1], None if plain else 1.0), int(named[1]) if plain else None
    tokens = _NOT_A_NUMBER.sub(" ", tail).split()
    for form, unit in ((_WITH_UNIT, None), (_FRACTION, 1.0)):
        for token in tokens:
            if found := form.fullmatch(token):
                return times.parse_duration(found[1], unit), None
    for token in tokens:
        both = _BOTH.fullmatch(token)
        if both and int(both[2]) // 1_000_000 == int(both[1]):
            return times.parse_duration(both[2], 1e-6), None
    whole = [int(found[1]) for token in tokens if (found := _WHOLE.fullmatch(token))]
    if len(whole) == 2 and whole[0] != whole[1] and max(whole) >= 1_000_000 and max(whole) // 1_000_000 == min(whole):
        return times.numeric_duration(float(max(whole)), 1e-6), None  # %T %D
    return None, whole[-1] if whole else None


def envoy(line: str) -> AccessLogEntry | None:
    """Envoy's and Istio's default form; None for a line of a TCP connection."""
    found = _ENVOY.search(line)
    started = times.parse_timestamp(found[1]) if found else None
    if found is None or started is None or found[2].startswith("- "):
        return None
    method, path = times.method_and_path(found[2])
    duration = times.parse_duration(found[6], 1e-3)
    upstream = times.parse_duration(found[7], 1e-3)
    failure = failures.of_envoy_flags(found[4]) or (
        failures.of_details(found[5]) if found[4] != "-" and found[5].strip() else None
    )
    status = int(found[3]) if found[3].isdecimal() and found[3] != "0" else None
    entry = AccessLogEntry(
        started,
        Timestamp(started.time + (duration.seconds if duration else 0.0), started.fine, started.zoned),
        duration,
        0 if status is None and failure not in failures.GAVE_UP and failure is not None else status,
        path,
        (found[10] or "").strip("-"),
        failure=failure,
        agent=found[9] or "",
        method=method,
    )
    total = duration.seconds if duration else None
    stages = with_own_time({RequestStage.UPSTREAM: upstream.seconds} if upstream else {}, total)
    return replace(entry, stages=stages, upstream_status=status if upstream and failure is None else None)


def load_balancer(line: str) -> AccessLogEntry | None:
    """AWS: an application or classic load balancer. A time of -1 and a status of `-` are unknown."""
    found = _ALB.search(line)
    ended = times.parse_timestamp(found["time"]) if found else None
    if found is None or ended is None:
        return None
    stages = _of_amazon(found.groupdict())
    created = _ALB_CREATED.search(found["rest"])
    started = times.parse_timestamp(created[1]) if created else None
    duration = (
        RequestDuration(sum(stages.values()), 1e-3) if len(stages) == 3 else times.duration_between(started, ended)
    )
    status = int(found["status"]) if found["status"].isdecimal() else None
    behind = int(found["upstream"]) if found["upstream"].isdecimal() and int(found["upstream"]) else None
    known = _ALB_ERROR.search(found["rest"])
    gone = FailureReason.CLIENT_CLOSED if status in CLIENT_LEFT else None
    failure = gone or (failures.of_details(known[1]) if known else None)
    method, path = times.method_and_path(found["request"].strip('"'))
    return AccessLogEntry(
        started,
        ended,
        duration,
        status,
        path,
        stages=tuple(stages.items()),
        failure=failure or failures.of_statuses(status, behind, FailureReason.NO_UPSTREAM),
        upstream_status=behind,
        agent=found["agent"].strip('"'),
        method=method,
    )


def _of_amazon(parts: Mapping[str, str | None]) -> dict[str, float]:
    names = {RequestStage.RECEIVE: "request_s", RequestStage.UPSTREAM: "target_s", RequestStage.SEND: "response_s"}
    return {stage: float(text) for stage, name in names.items() if (text := parts[name] or "-")[0] != "-"}
