"""One HTTP exchange: bounded in time and size, never redirected, and silent about what it carries.

The call runs on a thread of its own, because no timeout of a client bounds a server that sends a byte now and then, and
none at all bounds a look-up of a name. At the deadline the thread is left behind; it sends nothing any more that it has
not sent by then.
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


MAX_BYTES = 1 << 20  # of an answer that is read
MAX_SAID_BYTES = 64 << 10  # of one that says no
_KEPT = ("etag", "retry-after")  # headers of an answer that somebody asks for
# Steps of httpcore (its extension "trace") by which something is sent.
_REQUEST = ("send_request_headers.started", "send_request_body.started")
_SENDING = ("connect_tcp.started", "start_tls.started", *_REQUEST)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent. All of it but the method may hold a secret, and a traceback shows its variables.

    `reads`: the answer's body is wanted; else it is read only where it says no.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(repr=False, default=None)
    reads: bool = False
    authorities: Path | None = None  # a file with the certificates that are trusted; None: those of the system


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer, of any status. A server may repeat what it was sent, so its body is not shown."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)  # those of _KEPT, by their names in lower case
    flaw: str = ""  # why the body cannot be used


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """No answer. `begun`: some of the request may have arrived, and then it may have been done."""

    why: str
    begun: bool


class _Late(Exception):  # noqa: N818 - what happened; it never leaves this module
    """The deadline has passed."""


ResolveAddress = Callable[[str], str]  # for a URL, the address of the host that is really asked. Raises LatdoctorError.


class _Heard:
    """Hears each step of the exchange before it is done: what has not been sent by `until` is never sent."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.begun = False

    def __call__(self, name: str, _: Any) -> None:
        if name.endswith(_REQUEST):
            self.begun = True  # before the clock is read: who is left behind just now may go on by one step
        if name.endswith(_SENDING):
            self.must_go_on()

    def must_go_on(self) -> None:
        if time.monotonic() > self.until:
            raise _Late


def send_request(
    request: HttpRequest, seconds: float, place: ResolveAddress | None = None
) -> HttpResponse | RequestFailure:
    """Asks once: follows no redirect, uses no proxy of the environment, logs nothing. Raises what `place` raises."""
    heard = _Heard(time.monotonic() + seconds)
    fetching = Beside(lambda: _bare(request, heard, place), "latdoctor-http")
    if not fetching.wait(seconds):
        return RequestFailure(f"no answer within {format_value(seconds, 'time')}", heard.begun)
    return fetching.outcome()


def _bare(request: HttpRequest, heard: _Heard, place: ResolveAddress | None) -> HttpResponse | RequestFailure:
    """What came; an error of `place` without where it came from, for those frames hold the address."""
    try:
        return _fetched(request, heard, place)
    except LatdoctorError as error:
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None)  # noqa: B904 - so that no cause is kept


def _fetched(request: HttpRequest, heard: _Heard, place: ResolveAddress | None) -> HttpResponse | RequestFailure:
    """What came. An error is told by its kind alone: some of httpx's quote the headers that they stumble over."""
    import httpx

    try:
        return _asked(request, heard, place)
    except (_Late, httpx.TimeoutException):
        return RequestFailure("no answer in time", heard.begun)
    except httpx.ConnectError as error:
        return RequestFailure(f"it cannot be reached: {error}", heard.begun)
    except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError):
        return RequestFailure(
            "the request cannot be sent as it is: the token or the address has characters that HTTP forbids",
            heard.begun,
        )
    except (httpx.HTTPError, OSError) as error:
        return RequestFailure(f"the exchange broke off ({type(error).__name__})", heard.begun)


def _asked(request: HttpRequest, heard: _Heard, place: ResolveAddress | None) -> HttpResponse:
    """By a transport alone: a client would log the address, and has redirects, cookies and proxies to turn off."""
    import httpx

    url, named, extensions = _pinned(request.url, place)
    timeout = httpx.Timeout(max(0.001, heard.until - time.monotonic()))
    sent = httpx.Request(
        request.method,
        url,
        headers={**request.headers, **named},
        content=request.content,
        extensions={"timeout": timeout.as_dict(), "trace": heard, **extensions},
    )
    with httpx.HTTPTransport(verify=_trusted(request.authorities), trust_env=False) as transport:
        response = transport.handle_request(sent)
        try:
            return _read(response, heard, reads=request.reads)
        finally:
            response.close()


def _trusted(authorities: Path | None) -> ssl.SSLContext | bool:
    """Raises OSError (ssl.SSLError is one) for a file that cannot be read or holds no certificate."""
    if authorities is None:
        return True
    import ssl

    return ssl.create_default_context(cafile=authorities)


def _pinned(url: str, place: ResolveAddress | None) -> tuple[str, dict[str, str], dict[str, str]]:
    """The URL with the address of its host in place of the name, and what keeps the name: Host, and TLS's own (SNI)."""
    if place is None:
        return url, {}, {}
    parts = urlsplit(url)
    address = place(url)
    host = f"[{address}]" if ":" in address else address
    netloc = host if parts.port is None else f"{host}:{parts.port}"
    return urlunsplit(parts._replace(netloc=netloc)), {"Host": parts.netloc}, {"sni_hostname": parts.hostname or ""}


def _read(response: httpx.Response, heard: _Heard, *, reads: bool) -> HttpResponse:
    """The body of what was read, or of a refusal; of something that was taken nobody waits for it."""
    kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
    if response.is_success and not reads:
        return HttpResponse(response.status_code, b"", kept)
    if response.headers.get("content-encoding", "identity") not in ("", "identity"):
        return HttpResponse(response.status_code, b"", kept, "it is compressed, though that was not asked for")
    limit = MAX_BYTES if response.is_success else MAX_SAID_BYTES
    body = bytearray()
    for chunk in response.iter_raw():
        heard.must_go_on()
        body += chunk
        if len(body) > limit:
            return HttpResponse(response.status_code, bytes(body[:limit]), kept, f"it has more than {limit} bytes")
    return HttpResponse(response.status_code, bytes(body), kept)


class Secret:
    """Holds a token. Only `reveal` gives it away, and only what sends it calls that."""

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
    """`text` as it may be shown, where a server, or a proxy before it, repeats what it was sent.

    Cleaned before: characters that are not seen could otherwise hide a secret from the search for it. The longest goes
    first, as one may be a part of another.
    """
    safe = clean(text, len(text) + 1)
    for secret in sorted((one.reveal() for one in secrets if one), key=len, reverse=True):
        safe = safe.replace(secret, "…")
    return clean(safe, limit)
