"""HTTP client: one request, limited in time and size, without redirects, and without exposing secrets.

The request runs on its own thread, because no client timeout limits a server that sends a byte now and then, and none
at all limits a name lookup. At the deadline the thread is abandoned; it sends nothing after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from latdoctor.background import Beside
from latdoctor.errors import LatdoctorError
from latdoctor.sanitize import clean
from latdoctor.units import format_value

if TYPE_CHECKING:
    import ssl

    import httpx


MAX_BYTES = 1 << 20  # of a response body
MAX_ERROR_BYTES = 64 << 10  # of the body of an error status
_KEPT = ("etag", "retry-after")  # response headers that callers use
# Steps of httpcore (extension "trace") that send data.
_REQUEST = ("send_request_headers.started", "send_request_body.started")
_SENDING = ("connect_tcp.started", "start_tls.started", *_REQUEST)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. Everything except the method may contain a secret, and tracebacks show variables.

    `reads`: the response body is needed; otherwise it is read only for an error status.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(repr=False, default=None)
    reads: bool = False
    authorities: Path | None = None  # file with trusted certificates; None: those of the system


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response of any status. Its body is not shown, because a server may repeat what it was sent."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)  # those of _KEPT, by their names in lower case
    flaw: str = ""  # why the body is unusable


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """No response. `begun`: part of the request may have arrived and may have been processed."""

    why: str
    begun: bool


class _Late(Exception):  # noqa: N818 - internal to this module
    """The deadline has passed."""


ResolveAddress = Callable[[str], str]  # for a URL, the address of the host that is really asked. Raises LatdoctorError.


class _SendGuard:
    """Hears each step of the exchange before it is done: what has not been sent by `until` is never sent."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.begun = False

    def __call__(self, name: str, _: Any) -> None:
        if name.endswith(_REQUEST):
            self.begun = True  # before the deadline check: an abandoned thread may complete one more step
        if name.endswith(_SENDING):
            self.check_deadline()

    def check_deadline(self) -> None:
        if time.monotonic() > self.until:
            raise _Late


def send_request(
    request: HttpRequest, seconds: float, place: ResolveAddress | None = None
) -> HttpResponse | RequestFailure:
    """Send one request: no redirects, no proxy from the environment, no logging. Raises what `place` raises."""
    guard = _SendGuard(time.monotonic() + seconds)
    fetching = Beside(lambda: _bare(request, guard, place), "latdoctor-http")
    if not fetching.wait(seconds):
        return RequestFailure(f"no answer within {format_value(seconds, 'time')}", guard.begun)
    return fetching.outcome()


def _bare(request: HttpRequest, guard: _SendGuard, place: ResolveAddress | None) -> HttpResponse | RequestFailure:
    """Drop the traceback of an error of `place`, because its frames contain the address."""
    try:
        return _fetched(request, guard, place)
    except LatdoctorError as error:
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None)  # noqa: B904 - so that no cause is kept


def _fetched(request: HttpRequest, guard: _SendGuard, place: ResolveAddress | None) -> HttpResponse | RequestFailure:
    """Map exceptions to failures. Only their type is reported, because some of httpx's quote headers."""
    import httpx

    try:
        return _exchange(request, guard, place)
    except (_Late, httpx.TimeoutException):
        return RequestFailure("no answer in time", guard.begun)
    except httpx.ConnectError as error:
        return RequestFailure(f"unreachable: {error}", guard.begun)
    except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError):
        return RequestFailure(
            "the request cannot be sent as it is: the token or the address has characters that HTTP forbids",
            guard.begun,
        )
    except (httpx.HTTPError, OSError) as error:
        return RequestFailure(f"the exchange broke off ({type(error).__name__})", guard.begun)


def _exchange(request: HttpRequest, guard: _SendGuard, place: ResolveAddress | None) -> HttpResponse:
    """By a transport alone: a client would log the address, and has redirects, cookies and proxies to turn off."""
    import httpx

    url, named, extensions = _pinned(request.url, place)
    timeout = httpx.Timeout(max(0.001, guard.until - time.monotonic()))
    sent = httpx.Request(
        request.method,
        url,
        headers={**request.headers, **named},
        content=request.content,
        extensions={"timeout": timeout.as_dict(), "trace": guard, **extensions},
    )
    with httpx.HTTPTransport(verify=_trusted(request.authorities), trust_env=False) as transport:
        response = transport.handle_request(sent)
        try:
            return _read(response, guard, reads=request.reads)
        finally:
            response.close()


def _trusted(authorities: Path | None) -> ssl.SSLContext | bool:
    """Raises OSError (including ssl.SSLError) for a file that cannot be read or has no certificate."""
    if authorities is None:
        return True
    import ssl

    return ssl.create_default_context(cafile=authorities)


def _pinned(url: str, place: ResolveAddress | None) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the URL with the host's address in place of its name, and the Host header and SNI that keep the name."""
    if place is None:
        return url, {}, {}
    parts = urlsplit(url)
    address = place(url)
    host = f"[{address}]" if ":" in address else address
    netloc = host if parts.port is None else f"{host}:{parts.port}"
    return urlunsplit(parts._replace(netloc=netloc)), {"Host": parts.netloc}, {"sni_hostname": parts.hostname or ""}


def _read(response: httpx.Response, guard: _SendGuard, *, reads: bool) -> HttpResponse:
    """Read the body if it is needed or of an error status."""
    kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
    if response.is_success and not reads:
        return HttpResponse(response.status_code, b"", kept)
    if response.headers.get("content-encoding", "identity") not in ("", "identity"):
        return HttpResponse(response.status_code, b"", kept, "it is compressed although that was not requested")
    limit = MAX_BYTES if response.is_success else MAX_ERROR_BYTES
    body = bytearray()
    for chunk in response.iter_raw():
        guard.check_deadline()
        body += chunk
        if len(body) > limit:
            return HttpResponse(response.status_code, bytes(body[:limit]), kept, f"it has more than {limit} bytes")
    return HttpResponse(response.status_code, bytes(body), kept)


class Secret:
    """Wraps a token. Only the sender calls `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(…)" if self._text else "Secret()"


def redact_secrets(text: str, secrets: Iterable[Secret], limit: int = 300) -> str:
    """Return `text`, which may repeat a request, with all `secrets` replaced by `…`.

    It is cleaned first, because invisible characters could hide a secret from the search. The longest secret is
    replaced first, as one may be part of another.
    """
    safe = clean(text, len(text) + 1)
    for secret in sorted((one.reveal() for one in secrets if one), key=len, reverse=True):
        safe = safe.replace(secret, "…")
    return clean(safe, limit)
