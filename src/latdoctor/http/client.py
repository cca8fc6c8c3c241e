"""HTTP client: bounded in time and size, without redirects, and without exposing secrets.

A request runs on its own thread, because no client timeout limits a server that sends a byte now and then, and none
at all limits a name lookup. At the deadline the thread is abandoned; it sends nothing after that. A token reaches only
the address of its own request, because no redirect is followed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit, urlunsplit

from latdoctor.background import BackgroundCall
from latdoctor.errors import LatdoctorError
from latdoctor.http.failure import FailureCode, RequestFailure, connect_failure
from latdoctor.sanitize import clean
from latdoctor.units import format_value

if TYPE_CHECKING:
    import ssl

    import httpx


MAX_BYTES = 1 << 20  # of a response body
MAX_ERROR_BYTES = 64 << 10  # of the body of an error status
_KEPT = ("etag", "instance-id", "retry-after", "location")  # response headers that callers use
_SAFE = ("GET", "HEAD")  # methods whose repetition changes nothing
# Steps of httpcore (extension "trace") that send data.
_REQUEST = ("send_request_headers.started", "send_request_body.started")
_SENDING = ("connect_tcp.started", "start_tls.started", *_REQUEST)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. Everything except the method may contain a secret, and tracebacks show variables.

    `reads`: the response body is needed; otherwise it is read only for an error status. `decompress`: a compressed
    body is accepted although `identity` was requested.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(repr=False, default=None)
    reads: bool = False
    authorities: Path | None = None  # file with trusted certificates; None: those of the system
    limit: int = MAX_BYTES  # bytes of the response body
    decompress: bool = False


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response of any status. Its body is not shown, because a server may repeat what it was sent."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)  # those of _KEPT, by their names in lower case
    flaw: RequestFailure | None = None  # why the body is unusable
    framed: bool = False  # its length was stated or it was chunked, so that a complete body is known to be complete

    @property
    def failure(self) -> FailureCode | None:
        """None for a success with a usable body."""
        if 300 <= self.status < 400:
            return FailureCode.REDIRECT
        if not 200 <= self.status < 300:
            return FailureCode.STATUS
        return self.flaw.code if self.flaw else None

    @property
    def why(self) -> str:
        """The failure as a predicate, like that of RequestFailure; empty without one."""
        if self.failure in (FailureCode.REDIRECT, FailureCode.STATUS):
            return f"answered with status {self.status}"
        return self.flaw.why if self.flaw else ""


class _Late(Exception):  # noqa: N818 - internal to this module
    """The deadline has passed."""


ResolveAddress = Callable[[str], str]  # for a URL, the address to connect to. Raises LatdoctorError.


class _SendGuard:
    """Receives each step of the exchange before it is done: what has not been sent by `until` is never sent."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.until = time.monotonic() + seconds
        self.begun = False
        self.connected = False  # a connection was opened for this request; otherwise it uses one of the pool

    def __call__(self, name: str, _: Any) -> None:
        if name.endswith("connect_tcp.started"):
            self.connected = True
        if name.endswith(_REQUEST):
            self.begun = True  # before the deadline check: an abandoned thread may complete one more step
        if name.endswith(_SENDING):
            self.check_deadline()

    def check_deadline(self) -> None:
        if time.monotonic() > self.until:
            raise _Late

    def timed_out(self) -> RequestFailure:
        within = f"within {format_value(self.seconds, 'time')}"
        if self.begun:
            return RequestFailure(FailureCode.TIMEOUT, f"did not answer {within}", begun=True)
        return RequestFailure(FailureCode.CONNECT_TIMEOUT, f"accepted no connection {within}", begun=False)


class HttpClient:
    """Connections that requests share, also those of several threads; closed at the end of a `with` block.

    `environment_proxies`: use the proxies of the environment, which are off by default.
    """

    def __init__(self, authorities: Path | None = None, *, environment_proxies: bool = False) -> None:
        self._authorities = authorities
        self._proxies = environment_proxies
        self._transports: dict[tuple[str, str], httpx.HTTPTransport] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transport in self._transports.values():
            transport.close()

    def send(
        self, request: HttpRequest, seconds: float, resolve: ResolveAddress | None = None
    ) -> HttpResponse | RequestFailure:
        """Send one request and wait for at most `seconds`. Raises what `resolve` raises."""
        guard = _SendGuard(seconds)
        call = BackgroundCall(lambda: self._send_without_traceback(request, guard, resolve), "latdoctor-http")
        return call.outcome() if call.wait(seconds) else guard.timed_out()

    def _send_without_traceback(
        self, request: HttpRequest, guard: _SendGuard, resolve: ResolveAddress | None
    ) -> HttpResponse | RequestFailure:
        """Drop the traceback of an error of `resolve`, because its frames contain the address."""
        try:
            return self._send_or_fail(request, guard, resolve)
        except LatdoctorError as error:
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None)  # noqa: B904 - so that no cause is kept

    def _send_or_fail(
        self, request: HttpRequest, guard: _SendGuard, resolve: ResolveAddress | None
    ) -> HttpResponse | RequestFailure:
        """Map exceptions to failures. Only their type is reported, because some of httpx's quote headers."""
        import httpx

        try:
            return self._exchange(request, guard, resolve)
        except (_Late, httpx.TimeoutException):
            return guard.timed_out()
        except httpx.ConnectError as error:
            return RequestFailure(*connect_failure(error), guard.begun)
        except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError):
            why = "cannot be sent this request: the token or the address has characters that HTTP forbids"
            return RequestFailure(FailureCode.INVALID_REQUEST, why, guard.begun)
        except httpx.ProxyError as error:
            return RequestFailure(FailureCode.UNREACHABLE, f"cannot be reached by the proxy ({error})", guard.begun)
        except _UnusableAuthoritiesError as error:
            return RequestFailure(FailureCode.CA_FILE, str(error), guard.begun)
        except (httpx.HTTPError, OSError) as error:
            return RequestFailure(FailureCode.PROTOCOL, f"broke off ({type(error).__name__})", guard.begun)

    def _exchange(self, request: HttpRequest, guard: _SendGuard, resolve: ResolveAddress | None) -> HttpResponse:
        """By a transport alone: a client would log the address, and has redirects and cookies to turn off."""
        import httpx

        url, host, extensions = _pinned(request.url, resolve)
        timeout = httpx.Timeout(max(0.001, guard.until - time.monotonic()))
        sent = httpx.Request(
            request.method,
            url,
            headers={**request.headers, **host},
            content=request.content,
            extensions={"timeout": timeout.as_dict(), "trace": guard, **extensions},
        )
        response = _send_by(self._transport(request.url), sent, guard)
        try:
            return _read(response, guard, request)
        finally:
            response.close()

    def _transport(self, url: str) -> httpx.HTTPTransport:
        import httpx

        parts = urlsplit(url)
        proxy = _environment_proxy(parts.scheme, parts.hostname or "") if self._proxies else ""
        with self._lock:
            found = self._transports.get((parts.scheme, proxy))
            if found is None:
                uses_tls = "https" in (parts.scheme, urlsplit(proxy).scheme)
                trusted = _ssl_context(self._authorities) if uses_tls else _without_authorities()
                try:
                    found = httpx.HTTPTransport(verify=trusted, trust_env=False, proxy=proxy or None)
                except (ValueError, ImportError) as error:  # a scheme of proxies that is not supported
                    raise httpx.ProxyError(f"{urlsplit(proxy).scheme} is not supported") from error
                self._transports[parts.scheme, proxy] = found
            return found


def send_request(
    request: HttpRequest, seconds: float, resolve: ResolveAddress | None = None
) -> HttpResponse | RequestFailure:
    """Send one request by a connection of its own, without a proxy. Raises what `resolve` raises."""
    with HttpClient(request.authorities) as client:
        return client.send(request, seconds, resolve)


class _UnusableAuthoritiesError(Exception):
    """The file of trusted certificates cannot be read or has no certificate."""


@cache
def _without_authorities() -> ssl.SSLContext:
    """A context for http, quick to create; it trusts no certificate."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _system_authorities() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def _ssl_context(authorities: Path | None) -> ssl.SSLContext:
    if authorities is None:
        return _system_authorities()
    import ssl

    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:  # ssl.SSLError is one
        reason = clean(str(error.strerror or type(error).__name__), 100)
        raise _UnusableAuthoritiesError(f"{authorities} is not a certificate file ({reason})") from None


def _environment_proxy(scheme: str, host: str) -> str:
    """The proxy of the environment for this host; empty without one."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all") or ""
    if not proxy or proxy_bypass(host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _pinned(url: str, resolve: ResolveAddress | None) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the URL with the host's address in place of its name, and the Host header and SNI that keep the name."""
    if resolve is None:
        return url, {}, {}
    parts = urlsplit(url)
    address = resolve(url)
    host = f"[{address}]" if ":" in address else address
    netloc = host if parts.port is None else f"{host}:{parts.port}"
    return urlunsplit(parts._replace(netloc=netloc)), {"Host": parts.netloc}, {"sni_hostname": parts.hostname or ""}


def _send_by(transport: httpx.HTTPTransport, sent: httpx.Request, guard: _SendGuard) -> httpx.Response:
    """Send again where a server closed an idle connection just as it was used once more.

    A request that changes something is not repeated, because the server may have done it.
    """
    import httpx

    while True:
        try:
            return transport.handle_request(sent)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            if guard.connected or sent.method not in _SAFE:
                raise


def _read(response: httpx.Response, guard: _SendGuard, request: HttpRequest) -> HttpResponse:
    """Read the body if it is needed or of an error status."""
    kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
    if response.is_success and not request.reads:
        return HttpResponse(response.status_code, b"", kept)
    if not request.decompress and response.headers.get("content-encoding", "identity") not in ("", "identity"):
        flaw = RequestFailure(FailureCode.PROTOCOL, "compressed its response although that was not requested", True)
        return HttpResponse(response.status_code, b"", kept, flaw)
    limit = request.limit if response.is_success else min(request.limit, MAX_ERROR_BYTES)
    body = bytearray()
    for chunk in response.iter_bytes() if request.decompress else response.iter_raw():
        guard.check_deadline()
        body += chunk
        if len(body) > limit:
            flaw = RequestFailure(FailureCode.TOO_LARGE, f"sent more than {_size(limit)}", True)
            return HttpResponse(response.status_code, bytes(body[:limit]), kept, flaw)
    framed = "content-length" in response.headers or "transfer-encoding" in response.headers
    return HttpResponse(response.status_code, bytes(body), kept, framed=framed)


def _size(limit: int) -> str:
    return f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit} bytes"


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
