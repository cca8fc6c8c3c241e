"""Request lines of inference servers and web frameworks that are text: one entry of `LINE_FORMATS` for each program.

The names of a pattern's groups say what they are:

* `time` (when the line was written), `start` (when the request came); without either, the time before the match;
* `request` (`POST /x HTTP/1.1`) or `path`; `status`, `grpc` (a gRPC code); `id`, `replica`, `agent`;
* `s`, `ms`, `us`, `dur` (a number with its unit): the duration; `stage_NAME_UNIT`: the time in a stage, whose sum is
  the duration of a line without one; `token_UNIT`: the time for each token.

A group that is empty or `-` is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log.entry import AccessLogEntry, RequestDuration, Timestamp
from latdoctor.collectors.access_log.failures import FailureReason
from latdoctor.collectors.access_log.stages import RequestStage

_UNITS: Mapping[str, float | None] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "dur": None}
_METHOD = r"(?:GET|POST|PUT|DELETE|PATCH|HEAD|OPTIONS)"
_NUMBER = r"\d{1,12}(?:\.\d{1,15})?(?:e-?\d{1,2})?"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?"
_BEFORE = re.compile(rf"{_ISO}(?!\d)")
_MOST_BEFORE = 200  # characters in which the time of a line is searched

# HTTP statuses of gRPC's codes, as gRPC's documentation maps them.
_OF_GRPC = {0: 200, 1: 499, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400, 12: 501, 13: 500,
            14: 503, 15: 500, 16: 401}  # fmt: skip
_WORDS = {"OK": 200, "ERROR": 500, "CANCELLED": 499, "Success": 200}


def status_of_grpc(code: int) -> int:
    """The HTTP status of a gRPC code; an unknown one is a failure of the server."""
    return _OF_GRPC.get(code, 500)


@dataclass(frozen=True, slots=True)
class LineFormat:
    """`needles`: every line in this format contains one of them. `statuses`: words in place of a status."""

    title: str
    needles: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    statuses: Mapping[str, int] = field(default_factory=lambda: _WORDS)
    finish: Callable[[AccessLogEntry, Mapping[str, str]], AccessLogEntry] | None = None
    hint: str = "configure the server to log the duration of each request, or set --log-pattern"

    def read(self, line: str) -> AccessLogEntry | None:
        """Parse `line`; None if it is no request in this format."""
        if not any(needle in line for needle in self.needles):
            return None
        found = next((match for form in self.patterns if (match := form.search(line))), None)
        if found is None:
            return None
        parts = {name: text for name, text in found.groupdict().items() if text and text != "-"}
        made = self._entry(parts, line, found.start())
        return self.finish(made, parts) if self.finish and made else made

    def _entry(self, parts: Mapping[str, str], line: str, begin: int) -> AccessLogEntry | None:
        status = self._status(parts)
        stages = {name: seconds for key, text in parts.items() if (name := _stage(key)) and
                  (seconds := _seconds(key, text)) is not None}  # fmt: skip
        duration = next(
            (found for unit in _UNITS if unit in parts and (found := _duration(unit, parts[unit])) is not None), None
        )
        if duration is None and stages and not parts.keys() & _UNITS.keys():
            duration = RequestDuration(sum(stages.values()), 1e-6)
        if status is None and duration is None and "path" not in parts:
            return None
        started = times.parse_timestamp(parts["start"]) if "start" in parts else None
        ended = times.parse_timestamp(parts["time"]) if "time" in parts else prefix_time(line, begin)
        if started is not None:
            end = started.time + duration.seconds if duration else started.time
            ended = Timestamp(end, started.fine, started.zoned)
        method, path = times.method_and_path(parts.get("request", ""))
        token = next((_seconds(key, text) for key, text in parts.items() if key.startswith("token_")), None)
        return AccessLogEntry(
            started,
            ended,
            duration,
            status,
            parts.get("path") or path,
            parts.get("id", ""),
            parts.get("replica", ""),
            tuple(stages.items()),
            per_token=token,
            method=parts.get("method") or method,
            agent=parts.get("agent", ""),
        )

    def _status(self, parts: Mapping[str, str]) -> int | None:
        if parts.get("grpc", "").isdecimal() and (parts["grpc"] != "0" or "status" not in parts):
            return status_of_grpc(int(parts["grpc"]))
        text = parts.get("status", "")
        return int(text) if text.isdecimal() else self.statuses.get(text)


def prefix_time(line: str, end: int) -> Timestamp | None:
    """The time before position `end`: one with a time zone if there is any, else the last."""
    found = [times.parse_timestamp(one[0].strip()) for one in _BEFORE.finditer(line, 0, min(end, _MOST_BEFORE))]
    known = [one for one in found if one is not None]
    return next((one for one in known if one.zoned), known[-1] if known else None)


def _stage(key: str) -> str:
    """The stage that a group's name says: `stage_queue_ms` → queue."""
    return RequestStage[key.split("_", 1)[1].rpartition("_")[0].upper()] if key.startswith("stage_") else ""


def _seconds(key: str, text: str) -> float | None:
    found = _duration(key.rpartition("_")[2], text)
    return found.seconds if found else None


def _duration(unit: str, text: str) -> RequestDuration | None:
    return times.parse_duration(text, _UNITS[unit])


def _of_torchserve(entry: AccessLogEntry, parts: Mapping[str, str]) -> AccessLogEntry:
    """TorchServe writes a gRPC code where others write a status."""
    if not parts.get("request", "").startswith("gRPC") or entry.status is None or entry.status >= 100:
        return entry
    return replace(entry, status=status_of_grpc(entry.status))


TGI_STATUSES = {
    "Model is overloaded": 429,
    "Request failed during generation": 424,
    "Backend error": 424,
    "Incomplete generation": 500,
    "Input validation error": 422,
    "Tokenization error": 422,
}
_REQUEST_TIMEOUT, _GATEWAY_TIMEOUT = 408, 504
_RAY_PROXIES = ("proxy", "http_proxy", "grpc_proxy")


def _of_ray(entry: AccessLogEntry, parts: Mapping[str, str]) -> AccessLogEntry:
    """The proxy sees a request whole, a replica its own part: each replica is a subject of its own.

    Where a request exceeds `request_timeout_s` the proxy answers 408, by which others mean a client that was too slow.
    """
    component = parts.get("component", "")
    if entry.status == _REQUEST_TIMEOUT and component in ("", *_RAY_PROXIES):
        return replace(entry, status=_GATEWAY_TIMEOUT, failure=FailureReason.UPSTREAM_TIMEOUT)
    if not component or component in _RAY_PROXIES:
        return entry
    instance = parts.get("instance", "")
    return replace(entry, replica=instance if instance.startswith(f"{component}#") else f"{component}#{instance}")


def _of_w3c(entry: AccessLogEntry, parts: Mapping[str, str]) -> AccessLogEntry:
    """Times are in UTC, as the format says; CloudFront writes 000 where the viewer left before an answer."""
    ended = entry.ended and replace(entry.ended, zoned=True)
    if entry.status == 0:
        return replace(entry, ended=ended, status=499, failure=FailureReason.CLIENT_CLOSED)
    return replace(entry, ended=ended)


_UVICORN = "uvicorn logs none: use the log of the proxy in front of it"
LINE_FORMATS: tuple[LineFormat, ...] = (
    LineFormat(
        "TorchServe's form",
        ("ACCESS_LOG", " HTTP/"),
        (
            re.compile(
                r'ACCESS_LOG - \S{0,80} "(?P<request>[^"]{0,8000})" (?P<status>\d{1,3}|OK) (?P<ms>\d{1,12})\s*$'
            ),
            re.compile(
                rf'(?:^|(?<=\d - ))/[\w.:\[\]%-]{{2,60}}:\d{{1,5}} "(?P<request>(?:{_METHOD}|gRPC) [^"]{{0,8000}})"'
                r" (?P<status>\d{1,3}|OK) (?P<ms>\d{1,12})\s*$"
            ),
        ),
        finish=_of_torchserve,
    ),
    LineFormat(
        "the form of TGI and TEI",
        ('total_time="', "text_generation_", "text_embeddings_"),
        (
            re.compile(
                r'total_time="(?P<dur>[^"]{1,30})" (?:validation|tokenization)_time="(?P<stage_prepare_dur>[^"]{1,30})"'
                r' queue_time="(?P<stage_queue_dur>[^"]{1,30})" inference_time="(?P<stage_compute_dur>[^"]{1,30})"'
                r'(?: time_per_token="(?P<token_dur>[^"]{1,30})")?(?:.{0,400}: (?P<status>Success)\b)?'
            ),
            re.compile(
                r"^.{0,120}?\bERROR .{0,4000}?(?:text_generation|text_embeddings)_\w{1,40}\S{0,80}: (?:\S{1,120}: )?"
                rf"(?P<status>{'|'.join(TGI_STATUSES)})"
            ),
        ),
        statuses={**_WORDS, **TGI_STATUSES},
    ),
    LineFormat(
        "BentoML's form",
        ("(scheme=",),
        (
            re.compile(
                r"(?:\[(?P<replica>runner:[^\]:]{1,100})[^\]]{0,20}\] )?\S{1,80} "
                r"\(scheme=\w{0,10}(?:,method=\w{1,10})?,path=(?P<path>[^,)]{0,2000})[^)]{0,400}\) "
                r"\((?:http_)?status=(?P<status>\d{3})(?:,grpc_status=(?P<grpc>\d{1,2}))?[^)]{0,400}\) "
                rf"(?P<ms>{_NUMBER})ms"
            ),
        ),
    ),
    LineFormat(
        "Ray Serve's form",
        ("ms",),
        (
            re.compile(
                rf"(?:INFO|WARNING|ERROR) (?P<time>{_ISO}) (?P<component>\S{{1,150}}) (?P<instance>\S{{1,150}}) "
                r"(?:.{0,300}? )?(?:[\w./<>-]{1,80}:\d{1,6} -|--) (?:\S{3,60}:\d{1,5} )?"
                rf"(?:(?:{_METHOD}|CALL|HANDLE)(?: (?P<path>[^\s\d]\S{{0,2000}}))?|[\w./:]{{2,200}}) "
                rf"(?P<status>\d{{3}}|OK|ERROR|CANCELLED) (?P<ms>\d{{1,9}}\.\d)ms\s*$"
            ),
            re.compile(
                rf"^(?:\S{{3,60}}:\d{{1,5}} )?(?:{_METHOD}|CALL) (?P<path>[^\s\d]\S{{0,2000}}) "
                r"(?P<status>\d{3}|OK|ERROR|CANCELLED) (?P<ms>\d{1,9}\.\d)ms\s*$"
            ),
            re.compile(
                r"^\w{1,60}\.py:\d{1,6} - (?:\w{1,20} )?[\w./:]{2,200} "
                r"(?P<status>\d{3}|OK|ERROR|CANCELLED) (?P<ms>\d{1,9}\.\d)ms\s*$"
            ),
        ),
        finish=_of_ray,
    ),
    LineFormat(
        "KServe's times by stage",
        ("preprocess_ms: ",),
        (
            re.compile(
                rf"requestId: (?:N\.A\.|(?P<id>[^,\s]{{1,100}})), preprocess_ms: (?P<stage_prepare_ms>{_NUMBER}), "
                rf"(?:explain_ms: (?P<stage_explain_ms>{_NUMBER}), )?predict_ms: (?P<stage_compute_ms>{_NUMBER}), "
                rf"postprocess_ms: (?P<stage_postprocess_ms>{_NUMBER})"
            ),
        ),
    ),
    LineFormat(
        "KServe's times by endpoint",
        ("'http_status:",),
        (
            re.compile(
                rf"(?P<path>[\w.]{{1,200}}):? (?P<s>{_NUMBER}),? \['http_status:(?P<status>\d{{3}})', "
                r"'http_method:\w{1,10}', 'time:wall'\]"
            ),
        ),
    ),
    LineFormat(
        "Gin's form",
        ("[GIN] ",),
        (
            re.compile(
                r"\[GIN\] (?P<time>\d{4}/\d\d/\d\d - \d\d:\d\d:\d\d) ?\| *(?P<status>\d{3}) *\| *(?P<dur>[^|\s]{1,40})"
                r' *\|[^|]{0,80}\|\s{0,3}(?P<method>[A-Z]{3,10}) {1,10}"(?P<path>[^"]{0,4000})"'
            ),
        ),
    ),
    LineFormat(
        "llama.cpp's form",
        ("log_server_r",),
        (
            re.compile(
                r"log_server_r\w{0,8}: (?:done )?request: (?P<method>[A-Z]{3,10}) (?P<path>/\S{0,2000}) \S{1,80} "
                r"(?P<status>\d{3})\b"
            ),
            re.compile(
                r"log_server_request\] request \|.{0,60}? timestamp=(?P<time>\d{10}) .{0,200}?status=(?P<status>\d{3}) "
                r'method="[A-Z]{3,10}" path="(?P<path>[^"]{0,2000})"'
            ),
        ),
        hint="llama-server logs none with the request: use its timings or the log of the proxy in front of it",
    ),
    LineFormat(
        "Triton's HTTP lines",
        ("HTTP request: ",),
        (re.compile(r"\.cc:\d{1,6}\] \"?HTTP request: \d{1,2} (?P<path>/[^\s\"]{1,2000})"),),
        hint="Triton logs none: use its metrics or its trace",
    ),
    LineFormat(
        "uvicorn's form",
        (" HTTP/",),
        (
            re.compile(
                r' - "(?P<method>[A-Z]{3,10}) (?P<path>\S{1,8000}) HTTP/[\d.]{1,3}" '
                r"(?P<status>\d{3})\b"
            ),
        ),
        hint=_UVICORN,
    ),
    LineFormat(
        "tornado's form",
        ("ms",),
        (
            re.compile(
                rf"(?:^|[\s:\]])(?P<status>\d{{3}}) {_METHOD} (?P<path>/\S{{0,4000}}) \([\w.:-]{{2,60}}\) "
                rf"(?P<ms>{_NUMBER})ms\s*$"
            ),
        ),
    ),
    LineFormat(
        "morgan's form",
        (" ms - ",),
        (
            re.compile(
                rf"(?:^|\s){_METHOD} (?P<path>/\S{{0,4000}}) (?P<status>\d{{3}}) (?P<ms>{_NUMBER}) ms "
                r"- (?:\d{1,12}|-)\s*$"
            ),
        ),
    ),
    LineFormat(
        "Sanic's form",
        ("(sanic.access)",),
        (
            re.compile(
                rf"^(?:\[(?P<time>{_ISO})\] )?.{{0,80}}\(sanic\.access\).{{0,120}}: {_METHOD} (?P<path>\S{{1,4000}}) "
                rf"+(?P<status>\d{{3}}) -?\d{{1,12}}(?: (?P<ms>{_NUMBER})ms)?"
            ),
        ),
    ),
    LineFormat(
        "LocalAI's form",
        ("]:",),
        (re.compile(rf"\[[\w.:-]{{2,60}}\]:\d{{1,5}} (?P<status>\d{{3}}) - {_METHOD} (?P<path>/\S{{0,4000}})\s*$"),),
    ),
    LineFormat(
        "chi's form",
        ('" from ',),
        (
            re.compile(
                r'(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) "(?P<request>[A-Z]{3,10} [^"]{1,8000})" from \S{1,80} - '
                r"(?P<status>\d{3}) \d{1,15}B in (?P<dur>\S{2,40})"
            ),
        ),
    ),
    LineFormat(
        "actix's form",
        ("actix_web::middleware::logger",),
        (
            re.compile(
                r'logger\] \S{1,80} "(?P<request>[^"]{1,8000})" (?P<status>\d{3}) \d{1,15} "[^"]{0,2000}" '
                rf'"(?P<agent>[^"]{{0,2000}})" (?P<s>{_NUMBER})'
            ),
        ),
    ),
    LineFormat(
        "tower's form",
        ("finished processing request",),
        (
            re.compile(
                r"(?:uri=(?P<path>\S{1,4000}) .{0,300})?finished processing request "
                r"latency=(?P<dur>\d{1,12} ?(?:ms|μs|µs|ns|s)) status=(?P<status>\d{3})"
            ),
        ),
    ),
    LineFormat(
        "the form of IIS",  # its default fields of the W3C extended form
        (" /",),
        (
            re.compile(
                r"^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \S{2,100} (?P<method>[A-Z]{3,10}) (?P<path>/\S{0,4000}) "
                r"\S{1,8000} \d{1,5} \S{1,200} \S{2,100} (?P<agent>\S{1,2000}) \S{1,4000} (?P<status>\d{3}) "
                r"\d{1,5} \d{1,10} (?P<ms>\d{1,9})\s*$"
            ),
        ),
        finish=_of_w3c,
    ),
    LineFormat(
        "CloudFront's form",
        ("\thttp",),
        (
            re.compile(
                r"^(?P<time>\d{4}-\d\d-\d\d\t\d\d:\d\d:\d\d)\t[\w-]{3,20}\t\d{1,15}\t\S{2,100}\t(?P<method>[A-Z]{3,10})\t"
                r"\S{1,300}\t(?P<path>/\S{0,4000})\t(?P<status>\d{3})\t\S{1,4000}\t(?P<agent>\S{1,2000})\t\S{1,8000}\t"
                r"\S{1,4000}\t\w{1,30}\t(?P<id>\S{1,100})\t\S{1,300}\t(?:https?|wss?)\t\d{1,15}\t(?P<s>\d{1,6}\.\d{1,6})(?:\t|$)"
            ),
        ),
        finish=_of_w3c,
    ),
)
