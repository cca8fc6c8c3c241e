"""Requests to a target's admin interface: a response or a typed error, neither of which contains the token."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.http.client import (
    MAX_BYTES,
    HttpRequest,
    HttpResponse,
    ResolveAddress,
    Secret,
    redact_secrets,
    send_request,
)
from latdoctor.http.failure import RequestFailure
from latdoctor.http.safe_address import (
    Address,
    ForbiddenAddressError,
    ResolveHost,
    UnresolvedHostError,
    connect_address,
    is_plain_path,
    is_public,
    is_under,
    parse_address,
    resolve_host,
)
from latdoctor.remediation.change import Contended, Deadline, Receipt, Refused, Unauthorized, Unreachable
from latdoctor.sanitize import clean

__all__ = [
    "MAX_BYTES",
    "AdminRequest",
    "AdminResponse",
    "ResolveAddress",
    "curl_command",
    "decode_response",
    "json_object",
    "send",
    "validate_base_url",
]

T = TypeVar("T")
MAX_ETAG = 256  # characters; a longer ETag or instance id, or one with non-printable characters, is ignored
TIMEOUT = 10.0  # seconds for one exchange, so that time remains for a retry after a lost one
TOKEN_VARIABLE = "LATDOCTOR_ADMIN_TOKEN"  # noqa: S105 - the variable's name
ANY_VERSION = "*"  # If-Match for commands that a person runs after checking the current value
_PRECONDITION_FAILED = 412
_PERMANENT = frozenset({501, 505})  # rejections among 5xx; after any other 5xx the result is unknown
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request. `content` is JSON, `version` the ETag for If-Match, `operation` the Idempotency-Key."""

    method: str
    url: str
    content: bytes | None = None
    version: str = ""
    operation: str = ""

    @property
    def headers(self) -> dict[str, str]:
        content = "" if self.content is None else "application/json"
        also = {"Content-Type": content, "If-Match": self.version, "Idempotency-Key": self.operation}
        return {**_HEADERS, **{name: value for name, value in also.items() if value}}


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """A successful response. `body` is empty for a request that changes something: only its status matters."""

    body: bytes = field(repr=False)  # a server may echo what it was sent, and a traceback shows variables
    version: str  # the ETag as received; empty without one
    instance: str = ""  # the process that responded, if it identifies itself

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.version, self.instance)


def send(
    request: AdminRequest, token: Secret, deadline: Deadline, resolve: ResolveAddress | None = None
) -> AdminResponse:
    """Send one request. Follows no redirect and uses no proxy of the environment.

    Raises what `resolve` raises, Contended for 412, Refused for a rejection or an unusable response, and Unreachable
    without a response in time or on a server error: it is then unknown whether the request took effect.
    """
    seconds = min(deadline.left, TIMEOUT)
    if seconds <= 0:
        raise Unreachable("no time left for a request", where=request.url)
    response = send_request(_http_request(request, token), seconds, resolve)
    if isinstance(response, RequestFailure):
        why = redact_secrets(response.why, [token])
        raise Unreachable(why, where=request.url, next_step=response.next_step)
    return _checked_response(request, response, token)


def json_object(response: AdminResponse, where: str) -> dict[str, Any]:
    """Decode the body as a JSON object. Raises Refused for anything else."""
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except UNDECODABLE:
        raise Refused("the response is not a JSON object", where=where, next_step=_CHECK_ADDRESS) from None


def decode_response(response: AdminResponse, kind: type[T], where: str) -> T:
    """Decode the body as JSON of the type `kind`. Raises Refused for anything else."""
    try:
        return msgspec.json.decode(response.body, type=kind)
    except UNDECODABLE as error:
        raise Refused("unexpected response of the admin interface", where=where) from error


def curl_command(
    method: str, url: str, content: bytes | None = None, *, version: str = ANY_VERSION, token: bool = True
) -> str:
    """Return a curl command for one request. The token is read from the environment; `version` becomes If-Match."""
    parts = ["curl", "-fsS", "-X", method, shlex.quote(url)]
    if token:
        parts += ["-H", f'"Authorization: Bearer ${TOKEN_VARIABLE}"']
    if version:
        parts += ["-H", shlex.quote(f"If-Match: {version}")]
    if content is not None:
        parts += ["-H", shlex.quote("Content-Type: application/json"), "--data-raw", shlex.quote(content.decode())]
    return " ".join(parts)


def validate_base_url(url: str) -> str:
    """Return `url` without a trailing slash. Raises UsageError unless it is a plain http(s) URL."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        plain = False
    if not plain or any(ord(char) <= ord(" ") or char in "\\\x7f" for char in url):
        shown = clean(url.rpartition("@")[2], 200)
        raise UsageError(f"{shown!r} is not a URL", next_step="give it as http://HOST:PORT")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "the URL of an admin interface must not contain a user, password, query or fragment",
            where=clean(f"{parts.scheme}://{parts.hostname}", 200),
            next_step="give the token separately: LATDOCTOR_ADMIN_TOKEN, or admin_token of latdoctor.yaml",
        )
    return url.rstrip("/")


_CHECK_ADDRESS = "check that the address is the right one"


def _http_request(request: AdminRequest, token: Secret) -> HttpRequest:
    bearer = {"Authorization": f"Bearer {token.reveal()}"} if token else {}
    reads = request.content is None and request.method == "GET"
    return HttpRequest(request.method, request.url, {**request.headers, **bearer}, request.content, reads)


def _checked_response(request: AdminRequest, response: HttpResponse, token: Secret) -> AdminResponse:
    if 200 <= response.status < 300:
        if response.flaw:
            raise Refused(
                f"the response cannot be used: it {response.flaw.why}", where=request.url, next_step=_CHECK_ADDRESS
            )
        return AdminResponse(response.body, _plain_header(response, "etag"), _plain_header(response, "instance-id"))
    detail = _error_detail(response.body, token)
    what = f"{request.method} failed with status {response.status}{f': {detail}' if detail else ''}"
    if response.status == _PRECONDITION_FAILED:
        raise Contended(what, where=request.url)
    if response.status < 500 or response.status in _PERMANENT:
        kind = Unauthorized if response.status in _UNAUTHORIZED else Refused
        raise kind(what, where=request.url, next_step=_NEXT_STEP.get(response.status, ""))
    raise Unreachable(what, where=request.url)


def _plain_header(response: HttpResponse, name: str) -> str:
    value = response.headers.get(name, "")
    return value if len(value) <= MAX_ETAG and value.isascii() and value.isprintable() else ""


_UNAUTHORIZED = (401, 403)
_NEXT_STEP = {
    401: "set the target's token: LATDOCTOR_ADMIN_TOKEN, or admin_token of latdoctor.yaml",
    403: "use a token that may change this target",
    404: _CHECK_ADDRESS,
}


def _error_detail(body: bytes, token: Secret) -> str:
    """The error message for people: `detail` of our own servers, else the beginning of the text."""
    text = body.decode(errors="replace")
    try:
        known = msgspec.json.decode(body, type=dict[str, Any]).get("detail")
    except UNDECODABLE:
        known = None
    return redact_secrets(known if isinstance(known, str) else text, [token])


def require_allowed(url: str, allow: Sequence[str]) -> str:
    """Return `url` if it is below one of the `allow` prefixes. Raises UsageError otherwise."""
    parts = urlsplit(validate_base_url(url))
    if not url.isascii() or not is_plain_path(parts.path):
        raise UsageError("the path is ambiguous: use plain ASCII without dot segments", where=clean(url, 200))
    if any(is_under(parts, urlsplit(validate_base_url(one))) for one in allow):
        return url
    raise UsageError(
        "this URL may not be changed: it is not below the target's `allow` list",
        where=clean(url, 200),
        next_step=f"allowed are {', '.join(clean(one, 100) for one in allow) or 'none'}",
    )


def resolve_allowed(url: str, allow: Sequence[str], resolve: ResolveHost | None = None) -> str:
    """Return the IP address to connect to.

    Raises Refused for an address that is neither public nor itself in `allow`, Unreachable if the name has none.
    """
    host = urlsplit(url).hostname or ""
    listed = {urlsplit(one).hostname or "" for one in allow}
    try:
        return connect_address(
            url, lambda address: is_public(address) or _is_listed(address, host, listed), resolve or resolve_host
        )
    except UnresolvedHostError as error:
        raise Unreachable(error.what, where=clean(url, 200)) from None
    except ForbiddenAddressError as error:
        raise Refused(
            f"{clean(host, 100)} resolves to {error.address}, which is not public",
            where=clean(url, 200),
            next_step="if that is intended, add the address itself to the target's `allow`",
        ) from None


def _is_listed(address: Address, host: str, listed: set[str]) -> bool:
    if host == "localhost" and address.is_loopback:  # the list contains it, otherwise `require_allowed` had refused
        return True
    return any(parse_address(one) == address for one in listed)
