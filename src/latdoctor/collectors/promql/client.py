"""HTTP API client of a Prometheus server: concurrent queries, limited in size and total time, without redirects."""

from __future__ import annotations

import base64
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from latdoctor.background import run_concurrently
from latdoctor.collectors.base import ApiEndpoint, code_of_failure
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError, UsageError
from latdoctor.gap_code import GapCode
from latdoctor.http.client import HttpClient, HttpRequest, HttpResponse
from latdoctor.http.failure import FailureCode, RequestFailure
from latdoctor.http.safe_address import is_loopback, redact_url
from latdoctor.regular_file import read_regular
from latdoctor.sanitize import clean

AUTH, AUTH_FILE, CA_FILE = "LATDOCTOR_PROMETHEUS_AUTH", "LATDOCTOR_PROMETHEUS_AUTH_FILE", "LATDOCTOR_PROMETHEUS_CA_FILE"
_MAX_FILE = 64 << 10
_FORM = "`Bearer TOKEN` or `Basic USER:PASSWORD`"


def prometheus_endpoint(address: str, auth_file: Path | None = None, ca_file: Path | None = None) -> ApiEndpoint:
    """Return the server at `address`, with credentials from files or the environment. Raises UsageError."""
    url, name, host = _address(address)
    return ApiEndpoint(
        url=url,
        name=name,
        loopback=is_loopback(host),
        authorization=authorization(auth_file, os.environ),
        ca_file=ca_file or (Path(os.environ[CA_FILE]) if os.environ.get(CA_FILE) else None),
    )


def _address(address: str) -> tuple[str, str, str]:
    hint = "write it such as --prometheus http://HOST:9090"
    try:
        parts = urlsplit(address.strip() if "://" in address else f"http://{address.strip()}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:  # its text may contain a password
        raise UsageError("the address is invalid", where="--prometheus", next_step=hint) from error
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "an address with a user or password: others can read it",
            where="--prometheus",
            next_step=f"put {_FORM} into a file and its name into {AUTH_FILE}",
        )
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError("not the http or https address of a server", where="--prometheus", next_step=hint)
    bare = f"[{host}]" if ":" in host else host
    place = bare if port is None else f"{bare}:{port}"
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return urlunsplit((parts.scheme, place, path, "", "")), clean(place + path, 200), host


def authorization(
    auth_file: Path | None,
    environment: Mapping[str, str],
    variable: str = AUTH,
    file_variable: str = AUTH_FILE,
    *,
    bare: bool = False,
) -> str:
    """Return the header's value; empty without credentials. `bare`: a single word is a bearer token.

    Raises UsageError; no message contains the credentials.
    """
    named = auth_file or (Path(environment[file_variable]) if environment.get(file_variable) else None)
    if named is None:
        return _header(environment.get(variable, ""), variable, bare=bare)
    try:
        raw = read_regular(named, _MAX_FILE)
    except OSError as error:
        raise UsageError(
            f"credentials cannot be read: {error.strerror}", where=str(named), next_step="check path and permissions"
        ) from error
    text = raw.decode("utf-8", errors="replace") if len(raw) <= _MAX_FILE else "\0"
    return _header(text, str(named), address=True, bare=bare)


def _header(text: str, where: str, *, address: bool = False, bare: bool = False) -> str:
    line = text.strip()
    if bare and line and " " not in line:
        line = f"Bearer {line}"
    if not line and not address:
        return ""
    scheme, _, secret = line.partition(" ")
    secret = secret.strip()
    known = scheme.lower()
    fits = secret.isprintable() and secret.isascii() and bool(secret)
    if not fits or known not in ("bearer", "basic") or (known == "basic" and ":" not in secret):
        raise UsageError("holds no credentials that can be used", where=where, next_step=f"write {_FORM} into it")
    if known == "basic":
        return f"Basic {base64.b64encode(secret.encode()).decode()}"
    return f"Bearer {secret}"


MAX_BYTES = 8 << 20  # of one response; parsed it takes about ten times that
MAX_SERIES = 20_000
_NARROW = "narrow it: --select '{job=\"…\"}'"
_NOT_IT = "use the address of a Prometheus server, such as http://HOST:9090"


class QuerySeries(Struct, frozen=True):
    """One series of a result: its labels, and its values at ascending times (unix seconds).

    `whole`: the last value was written without a fraction.
    """

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]
    whole: bool = False


class QueryResult(Struct, frozen=True):
    """The series, and the server's warnings (such as an unreachable store, so that part is missing)."""

    lines: tuple[QuerySeries, ...]
    warnings: tuple[str, ...] = ()


class _Series(Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(Struct, frozen=True):
    resultType: str  # noqa: N815 — the API's own name
    result: list[_Series] = []


class _ApiResponse(Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] = []


def parse_result(raw: bytes, where: str) -> QueryResult:
    """Return the series of a response. Raises SourceError for an invalid response or an error."""
    if len(raw) > MAX_BYTES:
        raise SourceError(
            f"a response of more than {MAX_BYTES >> 20} MiB", where=where, next_step=_NARROW, code=GapCode.TOO_LARGE
        )
    try:
        response = msgspec.json.decode(raw, type=_ApiResponse)
    except UNDECODABLE as error:
        raise SourceError("a response that is not from a Prometheus server", where=where, next_step=_NOT_IT) from error
    if response.status != "success" or response.data is None:
        raise SourceError(
            f"an error: {clean(response.error, 200) or 'no result'}",
            where=where,
            next_step=_NARROW,
            code=GapCode.REFUSED,
        )
    if len(response.data.result) > MAX_SERIES:
        reason = f"a response of {len(response.data.result)} series, more than the limit of {MAX_SERIES}"
        raise SourceError(reason, where=where, next_step=_NARROW)
    try:
        lines = tuple(_line(one) for one in response.data.result)
    except ValueError as error:
        raise SourceError("a response with a value that is not a number", where=where, next_step=_NOT_IT) from error
    return QueryResult(lines, tuple(clean(one, 200) for one in response.warnings[:5]))


def _line(one: _Series) -> QuerySeries:
    """Sort the points by time; the later of two values at the same time counts. Raises ValueError."""
    samples = one.values or ([one.value] if one.value else [])
    points = {time: text for time, text in samples if math.isfinite(time)}
    times = tuple(sorted(points))
    texts = [points[time] for time in times]
    return QuerySeries(one.metric, times, tuple(float(text) for text in texts), bool(texts) and texts[-1].isdecimal())


def error_message(raw: bytes) -> str:
    """The error message in a response; empty if there is none."""
    try:
        return clean(msgspec.json.decode(raw, type=_ApiResponse).error, 200)
    except UNDECODABLE:
        return ""


AT_ONCE = 4  # concurrent queries; during an incident the server is busy
MAX_TOTAL = 64 << 20  # of all responses together
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": "latdoctor",
}
_SLOW = "query less: --select '{job=\"…\"}', or a shorter --since"
_LOGIN = f"put `Bearer TOKEN` or `Basic USER:PASSWORD` into a file and name it in {AUTH_FILE}"
_TRUST = f"name the certificate authority's file in {CA_FILE}"
_NEXT_STEPS = {FailureCode.TIMEOUT: _SLOW, FailureCode.CERTIFICATE: _TRUST, FailureCode.CA_FILE: _TRUST}


@dataclass(frozen=True, slots=True)
class PromqlQuery:
    """One query; `start` and `step` are 0 for an instant query at `end`. Times in unix seconds."""

    expression: str
    end: float
    start: float = 0.0
    step: float = 0.0

    @property
    def path(self) -> str:
        return "/api/v1/query_range" if self.step else "/api/v1/query"

    def form(self, timeout: float) -> Mapping[str, str]:
        """The form fields. The server has the same timeout, so that it stops working on an abandoned query."""
        base = {"query": self.expression, "timeout": f"{max(1, round(timeout * 1000))}ms"}
        if self.step:
            return {**base, "start": f"{self.start:.3f}", "end": f"{self.end:.3f}", "step": f"{self.step:.3f}"}
        return {**base, "time": f"{self.end:.3f}"}


@dataclass(frozen=True, slots=True)
class QueryReply:
    """The raw response, or why there is none and the next step."""

    body: bytes | None
    why: str = ""
    next_step: str = ""
    code: GapCode = GapCode.UNSPECIFIED


def run_queries(
    access: ApiEndpoint, queries: Sequence[PromqlQuery], timeout: float, deadline: float
) -> tuple[QueryReply, ...]:
    """Run all queries; replies in their order: `timeout` seconds each, `deadline` for all."""
    ends = time.monotonic() + deadline
    left = [MAX_TOTAL]
    lock = threading.Lock()
    # Proxies of the environment are not used for this machine itself.
    with HttpClient(access.ca_file, environment_proxies=not access.loopback) as client:

        def run(query: PromqlQuery) -> QueryReply:
            patience = min(timeout, ends - time.monotonic())
            if patience <= 0:
                return QueryReply(None, f"was abandoned after {deadline:g} s in total", _SLOW, GapCode.TIMEOUT)
            reply = _reply(client.send(_request(access, query, patience, min(MAX_BYTES, left[0])), patience))
            with lock:
                left[0] -= len(reply.body or b"")
            return reply

        return run_concurrently([partial(run, query) for query in queries], AT_ONCE, "latdoctor-promql")


def _request(access: ApiEndpoint, query: PromqlQuery, patience: float, limit: int) -> HttpRequest:
    headers = {**_HEADERS, **({"Authorization": access.authorization} if access.authorization else {})}
    content = urlencode(query.form(patience)).encode()
    return HttpRequest(
        "POST", access.url + query.path, headers, content, reads=True, limit=max(0, limit), decompress=True
    )


def _reply(reply: HttpResponse | RequestFailure) -> QueryReply:
    if isinstance(reply, RequestFailure):
        next_step = _NEXT_STEPS.get(reply.code, reply.next_step)
        return QueryReply(None, reply.why, next_step, code_of_failure(reply.code))
    status = reply.status
    if status == 200:
        if reply.flaw is None:
            return QueryReply(reply.body)
        return QueryReply(None, reply.flaw.why, _SLOW, code_of_failure(reply.flaw.code))
    if reply.failure is FailureCode.REDIRECT:
        place = redact_url(reply.headers.get("location", ""))
        why = f"redirects to {place}, which is not followed"
        return QueryReply(None, why, "use that address if it is correct", GapCode.REFUSED)
    if status in (401, 403):
        return QueryReply(None, f"denied access with status {status}", _LOGIN, GapCode.PERMISSION)
    message = error_message(reply.body)
    if status in (422, 503, 504):
        why = f"gave up on a query: {message or f'status {status}'}"
        return QueryReply(None, why, _SLOW, GapCode.REFUSED)
    why = f"answered with status {status}: {message or 'no Prometheus server?'}"
    return QueryReply(None, why, _NOT_IT, GapCode.REFUSED)
