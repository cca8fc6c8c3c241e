"""Requests from named fields: JSON records, `key=value` lines, and lines of a user's pattern.

`record_formats.py` lists the programs whose names are known; others are read by common names. A duration is used only
if its unit is known: from its name (`duration_ms`), its value (`12ms`), the program that wrote the line, or entry and
exit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log import failures, upstreams
from latdoctor.collectors.access_log.entry import CLIENT_LEFT, AccessLogEntry, RequestDuration, Timestamp
from latdoctor.collectors.access_log.failures import FailureReason
from latdoctor.collectors.access_log.line_formats import TGI_STATUSES
from latdoctor.collectors.access_log.record_formats import Quantity, RecordFormat, format_of
from latdoctor.collectors.access_log.stages import RequestStage, with_own_time
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError

Fields = Mapping[str, object]

_SECONDS = ("seconds", "request_time", *(f"{name}_{unit}" for name in ("duration", "latency", "elapsed", "took",
            "response_time", "request_time", "request_duration") for unit in ("s", "sec", "seconds")))  # fmt: skip
_MILLIS = tuple(
    f"{name}{end}"
    for name in ("duration", "latency", "elapsed", "took", "response_time", "responsetime", "request_time",
                 "time_taken", "request_duration", "total_time")
    for end in ("_ms", "ms", "_millis", "_milliseconds")
)  # fmt: skip
_UNITS: Mapping[str, float] = {
    **dict.fromkeys(_SECONDS, 1.0),
    **dict.fromkeys(_MILLIS, 1e-3),
    **dict.fromkeys(("duration_us", "latency_us", "elapsed_us", "request_time_us", "took_us"), 1e-6),
    **dict.fromkeys(("duration_ns", "latency_ns", "elapsed_ns", "event.duration"), 1e-9),  # ECS counts nanoseconds
}
# Durations whose name does not imply the unit.
_UNITLESS = frozenset(
    ["duration", "latency", "elapsed", "took", "rt", "response_time", "responsetime", "time_taken", "request_duration",
     "httprequest.latency", "service"]
)  # fmt: skip
# In order of precedence.
_STATUS = (
    "status", "status_code", "statuscode", "response_code", "http_status", "http.response.status_code",
    "http.status_code", "http.status", "httprequest.status", "downstreamstatus", "response.status", "res.statuscode",
    "responsecode",
)  # fmt: skip
_CAME = ("entry", "start", "start_time", "starttime", "startutc", "started_at", "request_start", "event.start")
_WENT = ("exit", "end", "end_time", "endtime", "finished_at", "event.end")
_LOGGED = (
    "time", "timestamp", "@timestamp", "ts", "time_local", "time_iso8601", "msec", "datetime", "asctime", "requesttime",
)  # fmt: skip
_AGENT = (
    "user_agent", "useragent", "http_user_agent", "user-agent", "httprequest.useragent", "request_user-agent",
    "request.headers.user-agent", "properties.useragent",
)  # fmt: skip
_PATH = (
    "path", "uri", "request_uri", "url", "url.path", "request.uri", "httprequest.requesturl", "requestpath", "req.url",
    "http.path", "http.target", "x-envoy-origin-path", "properties.requesturi",
)  # fmt: skip
_ID = ("request_id", "requestid", "x_request_id", "x-request-id")
_REPLICA = ("replica", "pod")
_METHOD = (
    "method", "request_method", "request.method", "http.request.method", "httprequest.requestmethod", "requestmethod",
    "req.method", "http.method", "properties.httpmethod", "httpmethod",
)  # fmt: skip
_SESSION = (
    "session", "session_id", "sessionid", "conversation_id", "conversation", "chat_id", "thread_id", "x-session-id",
)  # fmt: skip
_TOKENS = (
    "input_tokens", "prompt_tokens", "num_prompt_tokens", "input_length", "request_tokens", "context_tokens",
    "usage.prompt_tokens", "usage.input_tokens",
)  # fmt: skip
_PAIR = re.compile(r'(?<![\w.@-])([A-Za-z_@][\w.@-]{0,60})=("(?:[^"\\]|\\.)*+"|[^\s"]*)')
_NESTED = 3
_STAGES, _MOST_STAGES = "stages.", 12
# Fields under which collectors of logs nest what a program wrote; text in one of `_TEXTS` is a line of its own.
_CARRIERS = frozenset({"jsonpayload", "_source", "fields", "log", "line", "message", "msg"})
_TEXTS = ("log", "message", "msg", "textpayload", "line", "content", "body", "event.original", "event")


def decoded(text: str) -> Fields | None:
    """The fields of a JSON record by their names in lower case, nested ones joined by dots; None if it is no record."""
    try:
        record = msgspec.json.decode(text, type=dict[str, object])
    except UNDECODABLE:
        return None
    found = {name.lower(): value for name, value in _flat(record, "", _NESTED)}
    carried = [name for name in found if "." in name and name.partition(".")[0] in _CARRIERS]
    for name in carried:
        found.setdefault(name.partition(".")[2], found[name])
    return found


def carried_text(record: Fields) -> str:
    """The line of text that a record carries; empty if there is none."""
    return next((text for name in _TEXTS if isinstance(text := record.get(name), str) and text.strip()), "")


def with_record(entry: AccessLogEntry, record: Fields) -> AccessLogEntry:
    """The request of a carried line, with what only the record around it says."""
    return replace(
        entry,
        ended=entry.ended or _time(record, _LOGGED),
        replica=entry.replica or _text(record, _REPLICA),
        request_id=entry.request_id or _text(record, _ID),
    )


def of_pairs(line: str) -> AccessLogEntry | None:
    """Parse the request in a line of `key=value` pairs; None if there is none."""
    found = {name.lower(): value.strip('"') for name, value in _PAIR.findall(line)}
    return of_fields(found) if found else None


def _flat(record: Mapping[str, object], before: str, depth: int) -> Iterator[tuple[str, object]]:
    for name, value in record.items():
        if isinstance(value, dict) and depth:
            yield from _flat(value, f"{before}{name}.", depth - 1)
        else:
            yield f"{before}{name}", value


def of_fields(fields: Fields) -> AccessLogEntry | None:
    """Return the request in the fields: it needs a status, path or method, and a time; otherwise None."""
    if str(fields.get("logger", "")).startswith("http.log.error"):
        return None  # Caddy repeats a failed request in its error log
    form = format_of(fields)
    status = _status(fields, form)
    request = fields.get("request")
    method, path = times.method_and_path(request if isinstance(request, str) else "")
    method, path = method or _text(fields, _METHOD), path or _text(fields, _PATH)
    if status is None and not path and not method:
        return None
    started, ended = _time(fields, _CAME), _time(fields, _WENT)
    if form is not None and form.logs_start and started is None:
        started = _time(fields, _LOGGED)
    duration, unit_unknown = _request_duration(fields, form, started, ended)
    dated = started or ended or _time(fields, _LOGGED) or (method and path)  # or clearly a request, with no more known
    if duration is None and not unit_unknown and (status is None or not dated):
        return None
    if ended is None:
        # The end is the sum of both; the time of the line itself may be that of the start.
        ended = (
            Timestamp(started.time + duration.seconds, started.fine, started.zoned)
            if started and duration
            else _time(fields, _LOGGED)
        )
    names = _text(fields, _ID), _text(fields, _REPLICA)
    entry = AccessLogEntry(
        started, ended, duration, status, path, *names, stages=_stages(fields), unit_unknown=unit_unknown,
        agent=_text(fields, _AGENT), method=method,
        failure=FailureReason.CLIENT_CLOSED if status in CLIENT_LEFT else None,
        session=_text(fields, _SESSION), tokens=_count(fields, _TOKENS),
    )  # fmt: skip
    return _of_program(entry, fields, form) if form else entry


def _of_program(entry: AccessLogEntry, fields: Fields, form: RecordFormat) -> AccessLogEntry:
    """Add what only the names of a known program say: stages, the server behind it, why the request failed."""
    total = entry.duration.seconds if entry.duration else None
    stages: dict[str, float] = dict(entry.stages)
    for stage, names in form.stages.items():
        if (seconds := _first_seconds(fields, names)) is not None:
            stages[stage] = seconds
    first = _time(fields, form.first_token)
    waited = times.duration_between(entry.started, first)
    if waited is not None and (total is None or waited.seconds < total):  # equal where the answer is no stream
        stages[RequestStage.FIRST_TOKEN] = waited.seconds
    behind = next((upstreams.last_status(str(fields[name])) for name in form.upstream_status if name in fields), None)
    attempts = max((upstreams.count(str(fields[name])) for name in form.attempts if name in fields), default=0)
    addresses = (upstreams.last_address(str(fields[name])) for name in form.upstream if fields.get(name))
    retries = [int(str(fields[name])) for name in form.retries if str(fields.get(name, "")).isdecimal()]
    known = (read(str(fields[name])) for name, read in form.reasons.items() if fields.get(name) not in (None, "", "-"))
    failure = entry.failure or next((one for one in known if one is not None), None)
    if failure is None and (form.gateway or any(name in fields for name in form.upstream_status)):
        failure = failures.of_statuses(entry.status, behind, form.unavailable)
    unknown = failure in failures.GAVE_UP or (failure is None and bool(form.reasons))
    status = None if entry.status == 0 and unknown else entry.status
    return replace(
        entry,
        status=status,
        stages=with_own_time(stages, total)[:_MOST_STAGES],
        failure=failure,
        upstream_status=behind,
        upstream=next(addresses, ""),
        attempts=retries[0] + 1 if retries else attempts,
        per_token=_first_seconds(fields, form.per_token),
    )


def _first_seconds(fields: Fields, names: Iterable[Quantity]) -> float | None:
    for name, unit in names:
        value = fields.get(name)
        if isinstance(value, str) and ("," in value or " : " in value):
            return upstreams.total_of(value)
        if (found := _duration(value, unit)) is not None:
            return found.seconds
    return None


def of_failed_span(fields: Fields) -> AccessLogEntry | None:
    """A request that TGI or TEI failed: its record has a message and no times. None for any other record."""
    if not str(fields.get("target", "")).startswith(("text_generation_", "text_embeddings_")):
        return None
    text = carried_text(fields)
    status = next((code for words, code in TGI_STATUSES.items() if text.startswith(words)), None)
    return AccessLogEntry(ended=_time(fields, _LOGGED), status=status) if status else None


def _stages(fields: Fields) -> tuple[tuple[str, float], ...]:
    """Seconds per stage of the reference server."""
    named = ((name.removeprefix(_STAGES), value) for name, value in fields.items() if name.startswith(_STAGES))
    found = ((name, _duration(value, 1.0)) for name, value in named)
    return tuple((name, duration.seconds) for name, duration in found if duration is not None)[:_MOST_STAGES]


def _status(fields: Fields, form: RecordFormat | None) -> int | None:
    for name in form.status if form else ():
        value = fields.get(name)
        known = form.statuses.get(value) if form and isinstance(value, str) else None
        if (code := known if known is not None else _code(value)) is not None:
            return code
    return next(
        (code for name, value in fields.items() if name in _STATUS and (code := _code(value)) is not None), None
    )


def _request_duration(
    fields: Fields, form: RecordFormat | None, started: Timestamp | None, ended: Timestamp | None
) -> tuple[RequestDuration | None, bool]:
    """The duration, and whether there is a number without a known unit."""
    for name, known in form.duration if form else ():
        if (found := _duration(fields.get(name), known)) is not None:
            return found, False
    for name, value in fields.items():
        if name in _UNITS and (found := _duration(value, _UNITS[name])) is not None:
            return found, False
    measured = times.duration_between(started, ended)
    unit_unknown = False
    unit = 1.0 if str(fields.get("logger", "")).startswith("http.log.access") else None  # Caddy
    for name, value in fields.items():
        if name in _UNITLESS:
            found = _duration(value, unit)
            if found is not None:
                return found, False
            unit_unknown = unit_unknown or isinstance(value, int | float)
    return measured, unit_unknown and measured is None


def _duration(value: object, unit: float | None) -> RequestDuration | None:
    if isinstance(value, str):
        return times.parse_duration(value, unit)
    if unit is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return times.numeric_duration(float(value), unit)


def logged_time(fields: Fields) -> Timestamp | None:
    """When a record was written, or None."""
    return _time(fields, _LOGGED)


def _time(fields: Fields, names: Iterable[str]) -> Timestamp | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and (found := times.parse_timestamp(value)) is not None:
            return found
        if isinstance(value, int | float) and not isinstance(value, bool):
            return times.unix_timestamp(float(value), fine=isinstance(value, float))
    return None


def _code(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 3:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1000 else None


def _text(fields: Fields, names: Iterable[str]) -> str:
    for name in names:
        if (value := fields.get(name)) is not None:
            first = value[0] if isinstance(value, list) and value else value  # Caddy lists the values of a header
            if isinstance(first, str | int):
                return str(first)
    return ""


def _count(fields: Fields, names: Iterable[str]) -> int | None:
    """The first of `names` with a whole number; of a line of pairs it is a text."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


MAX_LENGTH = 1000

# The role of each place; nginx's names and our own.
_ROLES = {
    "time": "ended", "exit": "ended", "time_local": "ended", "time_iso8601": "ended", "msec": "ended",
    "entry": "started", "start": "started",
    "seconds": "s", "request_time": "s", "duration": "named unit", "ms": "ms", "us": "us", "ns": "ns",
    "status": "status", "request": "request", "path": "path", "request_uri": "path", "uri": "path",
    "id": "id", "request_id": "id", "replica": "replica",
}  # fmt: skip
_PLACEHOLDER_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "named unit": None}
_PLACE = re.compile(r"\{(\*|[a-z0-9_]{1,64})\}|\$([a-z0-9_]{1,64})")
_NEXT = "write it such as --log-pattern '{*} [{time}] \"{request}\" {status} {*} {seconds}'"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The text before the first place, and each place with its role and the text after it."""

    head: str
    places: tuple[tuple[str, str], ...]

    def read(self, line: str) -> AccessLogEntry | None:
        """Parse `line`; None if it does not match."""
        if not line.startswith(self.head):
            return None
        position = len(self.head)
        parts: dict[str, str] = {}
        for role, after in self.places:
            end = line.find(after, position) if after else len(line)
            if end < 0:
                return None
            if role and role not in parts:
                parts[role] = line[position:end].strip()
            position = end + len(after)
        return _entry(parts)


def compiled(text: str) -> Pattern:
    """Compile a pattern. Raises UsageError if it is invalid or has neither a time nor a duration."""
    found = list(_PLACE.finditer(text)) if len(text) <= MAX_LENGTH else []
    if not found:
        raise UsageError(f"{text[:80]!r} contains no place", where="--log-pattern", next_step=_NEXT)
    places = []
    for number, place in enumerate(found):
        name = place[1] or place[2]
        if place[1] not in (None, "*") and name not in _ROLES:
            known = ", ".join(f"{{{one}}}" for one in _ROLES)
            raise UsageError(
                f"{{{name}}} is not a known place", where="--log-pattern", next_step=f"known are {known} and {{*}}"
            )
        end = found[number + 1].start() if number + 1 < len(found) else len(text)
        after = text[place.end() : end]
        if not after and number + 1 < len(found):
            raise UsageError(f"no text follows {place[0]}", where="--log-pattern", next_step=_NEXT)
        places.append((_ROLES.get(name, ""), after))
    roles = {role for role, _ in places}
    if not roles & _PLACEHOLDER_UNITS.keys() and not {"started", "ended"} <= roles:
        raise UsageError("it has no place for the duration of a request", where="--log-pattern", next_step=_NEXT)
    return Pattern(text[: found[0].start()], tuple(places))


def _entry(parts: dict[str, str]) -> AccessLogEntry | None:
    started, ended = (times.parse_timestamp(parts[role]) if role in parts else None for role in ("started", "ended"))
    units = [_PLACEHOLDER_UNITS[role] for role in parts if role in _PLACEHOLDER_UNITS]
    duration: RequestDuration | None = None
    for role, unit in _PLACEHOLDER_UNITS.items():
        if role in parts and duration is None:
            duration = times.parse_duration(parts[role], unit)
    status = parts.get("status", "")
    code = int(status) if status.isascii() and status.isdecimal() and len(status) <= 3 else None
    if (units and duration is None) or ("status" in parts and code is None):
        return None
    if not units:
        duration = times.duration_between(started, ended)
    if any(role in parts and one is None for role, one in (("started", started), ("ended", ended))):
        return None
    path = parts.get("path") or times.method_and_path(parts.get("request", ""))[1]
    return AccessLogEntry(started, ended, duration, code, path, parts.get("id", ""), parts.get("replica", ""))
