"""Requests that programs write as JSON records: one entry of `RECORD_FORMATS` for each program.

Names are those of nested fields joined by dots, in lower case: `span.total_time`. What an entry does not name is read
by the common names in `fields.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from latdoctor.collectors.access_log import failures
from latdoctor.collectors.access_log.failures import FailureReason
from latdoctor.collectors.access_log.stages import RequestStage

S, MS, US, NS = 1.0, 1e-3, 1e-6, 1e-9
Quantity = tuple[str, float]  # a field and the unit of its numbers, in seconds


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """`fits`: a record with one of these sets of fields is of this program.

    `stages`: the times of its stages; `first_token` is a point in time. `reasons`: fields that say why a request
    failed, and how they are read. `statuses`: words in place of a status. `unavailable`: the reason of its own 503.
    `gateway`: its 502 and 504 are those of a proxy, also where it names no server behind it. `logs_start`: the time of
    a record is that of the request's arrival.
    """

    program: str
    fits: tuple[frozenset[str], ...]
    duration: tuple[Quantity, ...] = ()
    status: tuple[str, ...] = ()
    statuses: Mapping[str, int] = field(default_factory=dict)
    stages: Mapping[RequestStage, tuple[Quantity, ...]] = field(default_factory=dict)
    per_token: tuple[Quantity, ...] = ()
    first_token: tuple[str, ...] = ()
    upstream_status: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    retries: tuple[str, ...] = ()
    reasons: Mapping[str, Callable[[str], FailureReason | None]] = field(default_factory=dict)
    unavailable: FailureReason | None = None
    gateway: bool = False
    logs_start: bool = False


def _of_all(*names: str) -> frozenset[str]:
    return frozenset(names)


_ENVOY_REASONS = {
    "response_flags": failures.of_envoy_flags,
    "response_flags_long": failures.of_envoy_flags,
    "response_code_details": lambda text: None if text == "via_upstream" else failures.of_details(text),
}
_WORDS = {"Success": 200, "success": 200, "failure": 500}
RECORD_FORMATS: tuple[RecordFormat, ...] = (
    RecordFormat(
        "TGI and TEI",
        (_of_all("span.total_time", "span.inference_time"), _of_all("total_time", "inference_time", "queue_time")),
        duration=(("span.total_time", S), ("total_time", S)),
        status=("message", "fields.message"),
        statuses=_WORDS,
        stages={
            RequestStage.PREPARE: (
                ("span.validation_time", S),
                ("span.tokenization_time", S),
                ("validation_time", S),
                ("tokenization_time", S),
            ),
            RequestStage.QUEUE: (("span.queue_time", S), ("queue_time", S)),
            RequestStage.COMPUTE: (("span.inference_time", S), ("inference_time", S)),
        },
        per_token=(("span.time_per_token", S), ("time_per_token", S)),
    ),
    RecordFormat(
        "Envoy",
        (
            _of_all("response_flags"),
            _of_all("upstream_host", "duration"),
            _of_all("upstream_service_time"),
            _of_all("x-envoy-upstream-service-time"),
        ),
        duration=(("duration", MS),),
        stages={RequestStage.UPSTREAM: (("upstream_service_time", MS), ("x-envoy-upstream-service-time", MS))},
        attempts=("upstream_request_attempt_count",),
        upstream=("upstream_host",),
        reasons=_ENVOY_REASONS,
    ),
    RecordFormat(
        "Traefik",
        (_of_all("startutc", "duration"), _of_all("downstreamstatus", "duration")),
        duration=(("duration", NS),),
        stages={RequestStage.UPSTREAM: (("originduration", NS),), RequestStage.PROXY: (("overhead", NS),)},
        upstream_status=("originstatus",),
        retries=("retryattempts",),
    ),
    RecordFormat(
        "nginx",
        (
            _of_all("upstream_response_time"),
            _of_all("request_time", "status"),
            _of_all("upstream_status"),
            _of_all("rt", "urt"),  # its variables under their usual short names
        ),
        duration=(("request_time", S), ("rt", S)),
        stages={
            RequestStage.UPSTREAM: (("upstream_response_time", S), ("urt", S)),
            RequestStage.CONNECT: (("upstream_connect_time", S), ("uct", S)),
        },
        upstream_status=("upstream_status",),
        attempts=("upstream_addr",),
        upstream=("upstream_addr",),
    ),
    RecordFormat(
        "Google's load balancer",
        (
            _of_all("jsonpayload.statusdetails"),
            _of_all("httprequest.latency", "jsonpayload.backendtargetprojectnumber"),
        ),
        duration=(("httprequest.latency", S),),
        reasons={"jsonpayload.statusdetails": failures.of_details},
        unavailable=FailureReason.NO_UPSTREAM,
        logs_start=True,
    ),
    RecordFormat(
        "Knative",
        (_of_all("httprequest.requestmethod", "httprequest.status", "httprequest.protocol"),),
        duration=(("httprequest.latency", S),),
        gateway=True,
    ),
    RecordFormat(
        "Kong",
        (_of_all("latencies.request"),),
        duration=(("latencies.request", MS),),
        stages={RequestStage.UPSTREAM: (("latencies.proxy", MS),), RequestStage.PROXY: (("latencies.kong", MS),)},
    ),
    RecordFormat(
        "APISIX",
        (_of_all("apisix_latency"), _of_all("upstream_latency", "latency")),
        duration=(("latency", MS),),
        stages={RequestStage.UPSTREAM: (("upstream_latency", MS),), RequestStage.PROXY: (("apisix_latency", MS),)},
    ),
    RecordFormat(
        "Azure Application Gateway",
        (_of_all("properties.httpstatus"), _of_all("httpstatus", "timetaken")),
        duration=(("properties.timetaken", S), ("timetaken", S)),
        status=("properties.httpstatus", "httpstatus"),
        stages={RequestStage.UPSTREAM: (("properties.serverresponselatency", S), ("serverresponselatency", S))},
        upstream_status=("properties.serverstatus", "serverstatus"),
    ),
    RecordFormat(
        "Amazon API Gateway",
        (_of_all("integrationlatency"), _of_all("responselatency", "status")),
        duration=(("responselatency", MS),),
        stages={RequestStage.UPSTREAM: (("integrationlatency", MS),)},
        upstream_status=("integrationstatus",),
    ),
    RecordFormat(
        "pino",
        (_of_all("responsetime", "res.statuscode"),),
        duration=(("responsetime", MS),),
    ),
    RecordFormat(
        "LiteLLM",  # its response_time ends at the first token of a stream, so the times of both ends count
        (_of_all("starttime", "endtime", "call_type"), _of_all("completionstarttime", "starttime")),
        status=("error_information.error_code", "status"),
        statuses=_WORDS,
        first_token=("completionstarttime",),
    ),
)


def format_of(names: Mapping[str, object]) -> RecordFormat | None:
    """The format of a record with these fields; None if no entry fits."""
    return next((one for one in RECORD_FORMATS if any(fields <= names.keys() for fields in one.fits)), None)
