"""Why a request failed, as proxies write it: Envoy's flags, HAProxy's termination state, details of load balancers.

Codes and words are those of each program's documentation; what a program does not explain has no reason.
"""

from __future__ import annotations

import re
from enum import StrEnum


class FailureReason(StrEnum):
    """Why a request failed, or why its answer did not reach the client."""

    UPSTREAM_TIMEOUT = "upstream timeout"
    UPSTREAM_RESET = "upstream reset"  # the server behind the proxy closed the connection
    UPSTREAM_UNREACHABLE = "upstream unreachable"  # no connection to it
    NO_UPSTREAM = "no healthy upstream"
    UPSTREAM_OVERFLOW = "upstream overflow"  # the proxy's limit of connections or requests
    UPSTREAM_ERROR = "upstream error"  # it answered with an error
    BAD_GATEWAY = "bad gateway"  # no connection or no valid answer: the status does not say which
    UPSTREAM_PROTOCOL = "upstream protocol error"
    RETRIES_EXHAUSTED = "retries exhausted"
    DURATION_TIMEOUT = "request duration limit"
    QUEUE_TIMEOUT = "queue timeout"
    IDLE_TIMEOUT = "idle timeout"
    CLIENT_CLOSED = "client closed"
    CLIENT_TIMEOUT = "client timeout"
    RATE_LIMITED = "rate limited"
    OVERLOADED = "proxy overloaded"
    NO_ROUTE = "no route"
    DENIED = "denied"
    INJECTED = "fault injected"
    PROXY_ERROR = "proxy error"


R = FailureReason
GAVE_UP = frozenset({R.CLIENT_CLOSED, R.CLIENT_TIMEOUT})  # the client did, not the server
TIMED_OUT = frozenset({R.UPSTREAM_TIMEOUT, R.DURATION_TIMEOUT, R.QUEUE_TIMEOUT, R.IDLE_TIMEOUT})
# The server or the proxy did so in the middle of a response whose status was sent before.
BROKEN_OFF = TIMED_OUT | {R.UPSTREAM_RESET, R.UPSTREAM_PROTOCOL, R.PROXY_ERROR}
# In order of precedence: of several flags, the first that is listed is the reason.
_ENVOY: dict[str, FailureReason] = {
    "UT": R.UPSTREAM_TIMEOUT, "UpstreamRequestTimeout": R.UPSTREAM_TIMEOUT,
    "UPE": R.UPSTREAM_PROTOCOL, "UpstreamProtocolError": R.UPSTREAM_PROTOCOL,
    "UF": R.UPSTREAM_UNREACHABLE, "UpstreamConnectionFailure": R.UPSTREAM_UNREACHABLE,
    "DF": R.UPSTREAM_UNREACHABLE, "DnsResolutionFailed": R.UPSTREAM_UNREACHABLE,
    "UH": R.NO_UPSTREAM, "NoHealthyUpstream": R.NO_UPSTREAM,
    "NC": R.NO_UPSTREAM, "NoClusterFound": R.NO_UPSTREAM,
    "LH": R.NO_UPSTREAM, "FailedLocalHealthCheck": R.NO_UPSTREAM,
    "UO": R.UPSTREAM_OVERFLOW, "UpstreamOverflow": R.UPSTREAM_OVERFLOW,
    "UC": R.UPSTREAM_RESET, "UpstreamConnectionTermination": R.UPSTREAM_RESET,
    "UR": R.UPSTREAM_RESET, "UpstreamRemoteReset": R.UPSTREAM_RESET,
    "LR": R.UPSTREAM_RESET, "LocalReset": R.UPSTREAM_RESET,
    "DT": R.DURATION_TIMEOUT, "DurationTimeout": R.DURATION_TIMEOUT,
    "UMSDR": R.DURATION_TIMEOUT, "UpstreamMaxStreamDurationReached": R.DURATION_TIMEOUT,
    "SI": R.IDLE_TIMEOUT, "StreamIdleTimeout": R.IDLE_TIMEOUT,
    "URX": R.RETRIES_EXHAUSTED, "UpstreamRetryLimitExceeded": R.RETRIES_EXHAUSTED,
    "RL": R.RATE_LIMITED, "RateLimited": R.RATE_LIMITED,
    "RLSE": R.RATE_LIMITED, "RateLimitServiceError": R.RATE_LIMITED,
    "OM": R.OVERLOADED, "OverloadManagerTerminated": R.OVERLOADED,
    "DO": R.OVERLOADED, "DropOverLoad": R.OVERLOADED,
    "UDO": R.OVERLOADED, "UnconditionalDropOverload": R.OVERLOADED,
    "NR": R.NO_ROUTE, "NoRouteFound": R.NO_ROUTE,
    "UAEX": R.DENIED, "UnauthorizedExternalService": R.DENIED,
    "IH": R.DENIED, "InvalidEnvoyRequestHeaders": R.DENIED,
    "DPE": R.PROXY_ERROR, "DownstreamProtocolError": R.PROXY_ERROR,
    "NFCF": R.PROXY_ERROR, "NoFilterConfigFound": R.PROXY_ERROR,
    "OMAC": R.OVERLOADED, "CE": R.PROXY_ERROR,
    "DC": R.CLIENT_CLOSED, "DownstreamConnectionTermination": R.CLIENT_CLOSED,
    "DR": R.CLIENT_CLOSED, "DownstreamRemoteReset": R.CLIENT_CLOSED,
    "FI": R.INJECTED, "FaultInjected": R.INJECTED, "DI": R.INJECTED, "DelayInjected": R.INJECTED,
}  # fmt: skip
_ENVOY_ORDER = {failure: place for place, failure in enumerate(dict.fromkeys(_ENVOY.values()))}
# HAProxy: how the session ended, and in which phase (R request, Q queue, C connect, H headers, D data).
_HAPROXY_TIMEOUTS = {
    "Q": R.QUEUE_TIMEOUT,
    "C": R.UPSTREAM_UNREACHABLE,
    "H": R.UPSTREAM_TIMEOUT,
    "D": R.UPSTREAM_TIMEOUT,
}
_HAPROXY: dict[str, FailureReason] = {
    "C": R.CLIENT_CLOSED, "c": R.CLIENT_TIMEOUT, "S": R.UPSTREAM_RESET, "P": R.DENIED, "R": R.OVERLOADED,
    "I": R.PROXY_ERROR, "D": R.NO_UPSTREAM, "K": R.PROXY_ERROR, "U": R.NO_UPSTREAM,
}  # fmt: skip
# Words of Google's, Amazon's and Envoy's details; the first that matches counts.
_DETAILS: tuple[tuple[re.Pattern[str], FailureReason], ...] = tuple(
    (re.compile(pattern, re.I), failure)
    for pattern, failure in (
        (r"client_?(?:disconnect|timed_?out|cancel)|downstream_remote_disconnect", R.CLIENT_CLOSED),
        (r"max_duration|duration_timeout", R.DURATION_TIMEOUT),
        (r"(?:backend|response|request|upstream)_\w{0,30}time_?out|per_try_timeout|TargetTimeout", R.UPSTREAM_TIMEOUT),
        (r"failed_to_connect|connection_failure|connection_refused|TargetConnection", R.UPSTREAM_UNREACHABLE),
        (r"failed_to_pick|no_healthy|no_cluster|cluster_not_found", R.NO_UPSTREAM),
        (r"overflow", R.UPSTREAM_OVERFLOW),
        (r"connection_(?:closed|terminat)|upstream_reset|balancer_reset|remote_reset", R.UPSTREAM_RESET),
        (r"retry_limit", R.RETRIES_EXHAUSTED),
        (r"route_not_found|no_route", R.NO_ROUTE),
        (r"rate_?limit|throttl", R.RATE_LIMITED),
    )
)


def of_envoy_flags(flags: str) -> FailureReason | None:
    """The reason of `UF,URX`; None for `-` and for flags that are no failure."""
    found = [_ENVOY[flag] for flag in flags.split(",") if flag in _ENVOY]
    return min(found, key=_ENVOY_ORDER.__getitem__, default=None)


def of_haproxy_state(state: str) -> FailureReason | None:
    """The reason of a termination state such as `sH--`; None for a session that ended by itself."""
    if state[:1] == "s":
        return _HAPROXY_TIMEOUTS.get(state[1:2], R.UPSTREAM_TIMEOUT)
    if state[:2] == "SC":
        return R.UPSTREAM_UNREACHABLE
    if state[:2] == "SQ":
        return R.UPSTREAM_OVERFLOW
    return _HAPROXY.get(state[:1])


def of_details(text: str) -> FailureReason | None:
    """The reason in the details that a load balancer writes: `backend_timeout`, `upstream_reset_before_…`."""
    return next((failure for form, failure in _DETAILS if form.search(text)), None)


def of_statuses(
    status: int | None, upstream_status: int | None, unavailable: FailureReason | None = None
) -> FailureReason | None:
    """The reason of a proxy's answer, by its own status and that of the server behind it (None if that gave none).

    `unavailable` is the reason of this proxy's own 503.
    """
    if status is None or status < 500:
        return None
    if status == 504 and upstream_status in (None, 504):
        return R.UPSTREAM_TIMEOUT
    if status == 502 and upstream_status in (None, 502):
        return R.BAD_GATEWAY
    if upstream_status is not None and upstream_status >= 500:
        return R.UPSTREAM_ERROR
    return unavailable if status == 503 and upstream_status is None else None
