"""One request of an access log, and parsers of its times and durations.

Times: `10/Oct/2000:13:55:36 -0700` (Apache, nginx; HAProxy with milliseconds; Flask with a space before the clock),
ISO 8601 with or without a zone, `2000/10/10 - 13:55:36` (Gin; nginx's error log without the dash), and unix time in
seconds, milliseconds, microseconds or nanoseconds, distinguished by magnitude. Durations: a number with a unit (`12ms`,
`0.5 s`, `1m2.5s` as in Go), or a number whose field name implies the unit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from latdoctor.collectors.access_log.failures import BROKEN_OFF, GAVE_UP, TIMED_OUT, FailureReason

# Health checks, metrics and lists of models, which are answered without the model and are not client requests.
_PROBE = re.compile(
    r"/(?:-/)?(?:healthz?|livez?|readyz?|ready|live|alive|ping|metrics|version|favicon\.ico"
    r"|health_check|health[-_]generate|v2/health/(?:live|ready)|api/(?:tags|ps|show|version)|v1/models"
    r"|get_model_info|get_server_info|slots|props|docs|openapi\.json)/?(?:\?.*)?"
)

_HOST = re.compile(r"^[a-z]{2,5}://[^/]*")

# Statuses of requests failed by the server or its backends, as counted on the metrics pages.
_TOO_MANY = 429
_MODEL_FAILED = 424  # TGI, TEI and SageMaker: the model failed, not the request
_TIMED_OUT = frozenset({408, 504})
CLIENT_LEFT = frozenset({499, 460})  # nginx's own, and that of AWS load balancers
# Programs that probe a server, by the beginning of their user agent.
_PROBER = re.compile(
    r"kube-probe|Knative-\w+-Probe|ELB-HealthChecker|GoogleHC|Envoy/HC|Prometheus/|Consul Health", re.I
)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The time of a line. `fine`: with a fraction of a second; `zoned`: with a time zone, otherwise UTC is assumed."""

    time: float  # unix seconds UTC
    fine: bool
    zoned: bool


@dataclass(frozen=True, slots=True)
class RequestDuration:
    """Duration of a request in seconds, and its resolution (1e-3: milliseconds)."""

    seconds: float
    step: float


@dataclass(frozen=True, slots=True)
class AccessLogEntry:
    """A request. `started` and `ended` are its entry and exit; None if the line lacks them."""

    started: Timestamp | None = None
    ended: Timestamp | None = None
    duration: RequestDuration | None = None
    status: int | None = None
    path: str = ""
    request_id: str = ""
    replica: str = ""
    stages: tuple[tuple[str, float], ...] = ()  # seconds in each stage, if the line has them
    unit_unknown: bool = False  # the line has a number without a unit that may be its duration
    bare: int | None = None  # that number, where it is whole
    failure: FailureReason | None = None  # why it failed, if the line says so
    upstream_status: int | None = None  # what the server behind a proxy answered
    upstream: str = ""  # the address of the server behind a proxy that answered
    attempts: int = 0  # servers that a proxy sent it to; 0 if unknown
    per_token: float | None = None  # seconds for each token of the answer
    agent: str = ""
    method: str = ""
    session: str = ""  # the conversation it belongs to
    tokens: int | None = None  # the length of its input

    @property
    def is_probe(self) -> bool:
        path = _HOST.sub("", self.path) if "://" in self.path else self.path
        if self.method in ("HEAD", "OPTIONS"):
            return True
        by_path = bool(path) and _PROBE.fullmatch(path) is not None
        return by_path or (bool(self.agent) and _PROBER.match(self.agent) is not None)

    @property
    def outcome(self) -> int | None:
        """The status as it counts: a response that began with 200 is none if it was never finished."""
        begun = self.status is None or 100 <= self.status < 400
        if begun and self.failure in GAVE_UP:
            return 499
        return 0 if self.status is not None and begun and self.failure in BROKEN_OFF else self.status

    @property
    def counts_as_latency(self) -> bool:
        """Answered or timed out: the time of a refusal says nothing about the time of an answer."""
        if self.failure in TIMED_OUT:
            return True
        if self.failure in GAVE_UP or self.failure in BROKEN_OFF:
            return False
        if self.status is None:
            return self.failure is None
        return 100 <= self.status < 400 or self.status in _TIMED_OUT


def method_and_path(request: str) -> tuple[str, str]:
    """Those of a request line `POST /x HTTP/1.1`; empty if it is none, such as `<BADREQ>`."""
    words = request.split(" ")
    return (words[0], words[1]) if len(words) > 1 else ("", "")


def is_failure(status: int) -> bool:
    """Shed, failed, timed out, or (status 0) never answered; -1 is unknown."""
    return status in (0, _TOO_MANY, _MODEL_FAILED) or status >= 500


_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: n for n, name in enumerate(_NAMES, 1)}
_CLF = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4})[: ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: ?([+-]\d{4}|Z))?")
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T \t](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)
_SLASHED = re.compile(r"(\d{4})/(\d\d)/(\d\d) (?:- )?(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_NUMBER = re.compile(r"\d{9,19}(?:\.\d{1,9})?")
_QUANTITY = re.compile(
    r"(\d{1,15}(?:\.\d{1,12})?(?:e[+-]?\d{1,2})?)\s*(h|msec|ms|min|m|seconds?|sec|s|us|µs|ns)?(?![a-z])", re.I
)
_PLAIN = re.compile(r"[0-9]{1,15}(?:\.([0-9]{1,12}))?")
_UNITS = {
    "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3,
    "us": 1e-6, "µs": 1e-6, "ns": 1e-9,
}  # fmt: skip
_LONGEST = 30 * 86400.0  # seconds; no request takes longer, so that such a number is none


def parse_timestamp(text: str) -> Timestamp | None:
    """The time that `text` as a whole is, or None."""
    found = _CLF.fullmatch(text)
    if found:
        day, month, year, *rest = found.groups()
        return _stamp((year, str(_MONTHS.get(month, 0)), day), *rest)
    found = _ISO.fullmatch(text)
    if found:
        return _stamp(found.group(1, 2, 3), *found.groups()[3:])
    found = _SLASHED.fullmatch(text)
    if found:
        hour, minute, second, fraction = found.groups()[3:]
        return _stamp(found.group(1, 2, 3), hour, minute, second, fraction, None)
    return unix_timestamp(float(text), fine="." in text) if _NUMBER.fullmatch(text) else None


def unix_timestamp(number: float, *, fine: bool) -> Timestamp | None:
    """Parse unix time in any unit: 10¹¹ seconds are the year 5138, as milliseconds 1973."""
    for limit, factor in ((1e11, 1.0), (1e14, 1e-3), (1e17, 1e-6), (1e20, 1e-9)):
        if 0 < number < limit:
            return Timestamp(number * factor, fine or factor < 1, True)
    return None


def _stamp(
    date: tuple[str, ...], hour: str, minute: str, second: str, fraction: str | None, zone: str | None
) -> Timestamp | None:
    whole = _whole(date, hour, minute, second, zone or "")
    if whole is None:
        return None
    return Timestamp(whole + float(f"0.{fraction}") if fraction else whole, bool(fraction), zone is not None)


@lru_cache(maxsize=4096)
def _whole(date: tuple[str, ...], hour: str, minute: str, second: str, zone: str) -> float | None:
    """Unix seconds without their fraction, cached because many lines share a second."""
    try:
        year, month, day = (int(part) for part in date)
        local = datetime(year, month, day, int(hour), int(minute), min(int(second), 59), tzinfo=UTC).timestamp()
    except ValueError:  # 31 February and the like
        return None
    if zone in ("", "Z", "UTC"):
        return local
    digits = zone[1:].replace(":", "")
    offset = int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0
    return local + offset if zone[0] == "-" else local - offset


def parse_duration(text: str, unit: float | None = None) -> RequestDuration | None:
    """Parse a duration; `unit` (seconds) applies to a number without a unit. None if invalid."""
    if unit is not None and (plain := _PLAIN.fullmatch(text)):
        seconds = float(text) * unit
        return RequestDuration(seconds, unit * 10.0 ** -len(plain[1] or "")) if seconds <= _LONGEST else None
    total, step, position = 0.0, math.inf, 0
    text = text.strip().replace("\u03bc", "µ")  # the Greek letter that Go writes instead of the micro sign
    while position < len(text):
        found = _QUANTITY.match(text, position)
        factor = None if not found else _UNITS[found[2].lower()] if found[2] else unit
        if found is None or factor is None or (position and not found[2]):
            return None
        total += float(found[1]) * factor
        step = min(step, factor * 10.0 ** -_decimals(found[1]))
        position = found.end()
    return RequestDuration(total, step) if position and 0 <= total <= _LONGEST else None


def _decimals(number: str) -> int:
    return 0 if "e" in number.lower() else len(number.partition(".")[2])


def numeric_duration(number: float, unit: float) -> RequestDuration | None:
    """Convert a JSON number to a duration. The resolution of a whole float is unknown, so its unit is used."""
    seconds = number * unit
    if not (math.isfinite(seconds) and 0 <= seconds <= _LONGEST):
        return None
    return RequestDuration(seconds, unit if number == int(number) else unit * 1e-3)


def duration_between(started: Timestamp | None, ended: Timestamp | None) -> RequestDuration | None:
    """The duration from entry to exit; None if the clock was set back in between."""
    if started is None or ended is None or not 0 <= ended.time - started.time <= _LONGEST:
        return None
    return RequestDuration(ended.time - started.time, 1e-6 if started.fine and ended.fine else 1.0)
