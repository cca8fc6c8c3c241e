"""One HTTP exchange with what is mended: bounded in time and size, and without the token in anything it says.

The call runs on a thread of its own, because no timeout of a client bounds a server that sends a byte now and then. At
the deadline the thread is left behind; it sends nothing any more that it has not sent by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from latdoctor.beside import Beside
from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.remedy.change import Contended, Refused, Unreachable
from latdoctor.remedy.deadline import Deadline
from latdoctor.remedy.secret import Secret
from latdoctor.text import clean
from latdoctor.units import format_value

if TYPE_CHECKING:
    import httpx

MAX_BYTES = 1 << 20  # of an answer
MAX_SAID_BYTES = 64 << 10  # of an answer that says no
MAX_TAG = 256  # characters of an ETag: a longer one, or one with others than plain characters, is none
LONGEST = 10.0  # seconds for one exchange, so that a lost one leaves time for another
_CONTENDED = 412
_NEVER = frozenset({501, 505})  # of 5xx: these will be said again; after any other it is not known what was done
# Steps of httpcore (its extension "trace") by which something is sent.
_SENDING = (
    "connect_tcp.started",
    "start_tls.started",
    "send_request_headers.started",
    "send_request_body.started",
)
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is sent. `content` is JSON, and `version` the ETag that it was made for."""

    method: str
    url: str
    content: bytes | None = None
    version: str = ""

    @property
    def headers(self) -> dict[str, str]:
        also = {} if self.content is None else {"Content-Type": "application/json"}
        return {**_HEADERS, **also, **({"If-Match": self.version} if self.version else {})}


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. `body` is empty for what changes something: its status is all that counts."""

    body: bytes = field(repr=False)  # a server may repeat what it was sent, and a traceback shows its variables
    version: str  # the ETag as it came; empty without one


@dataclass(frozen=True, slots=True)
class _Came:
    status: int
    body: bytes = field(repr=False)
    version: str
    flaw: str = ""  # why the body cannot be used


@dataclass(frozen=True, slots=True)
class _Lost:
    why: str


class _Late(Exception):  # noqa: N818 - what happened; it never leaves this module
    """The deadline has passed."""


Place = Callable[[str], str]  # for a URL, the address of the host that is really asked. Raises LatdoctorError.


def exchange(asked: Asked, token: Secret, deadline: Deadline, place: Place | None = None) -> Answer:
    """Asks once. Never follows a redirect, and uses no proxy of the environment.

    Raises what `place` raises, Contended for 412, Refused where the target will not or its answer is no use, and
    Unreachable where no answer came in time or the target failed: then it is not known whether it was done.
    """
    seconds = min(deadline.left, LONGEST)
    if seconds <= 0:
        raise Unreachable("there was no time left to ask", where=asked.url)
    outcome = _within(asked, token, seconds, place)
    if isinstance(outcome, _Lost):
        raise Unreachable(outcome.why, where=asked.url, next_step="see whether the target runs and can be reached")
    return _judged(asked, outcome, token)


def json_object(answer: Answer, where: str) -> dict[str, Any]:
    """The body as a JSON object. Raises Refused for anything else."""
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except UNDECODABLE:
        raise Refused("the answer is not a JSON object", where=where, next_step=_LOOK) from None


def checked(url: str) -> str:
    """`url` without a slash at its end. Raises UsageError for what is no plain http(s) address."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        plain = False
    if not plain or any(ord(char) <= ord(" ") or char in "\\\x7f" for char in url):
        shown = clean(url.rpartition("@")[2], 200)
        raise UsageError(f"{shown!r} is no address", next_step="http://HOST:PORT")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "an address to change something at has no user, password, query or fragment",
            where=clean(f"{parts.scheme}://{parts.hostname}", 200),
            next_step="give a token apart from it",
        )
    return url.rstrip("/")


_LOOK = "see whether the address is the right one"


def _within(asked: Asked, token: Secret, seconds: float, place: Place | None) -> _Came | _Lost:
    until = time.monotonic() + seconds
    fetching = Beside(lambda: _fetched(asked, token, until, place), "latdoctor-http")
    if not fetching.wait(seconds):
        return _Lost(f"no answer within {format_value(seconds, 'time')}")
    return fetching.outcome()


def _fetched(asked: Asked, token: Secret, until: float, place: Place | None) -> _Came | _Lost:
    """What came. An error is told by its kind alone: some of httpx's quote the headers that they stumble over."""
    import httpx

    try:
        url, named, extensions = _pinned(asked.url, place)
        timeout = httpx.Timeout(max(0.001, until - time.monotonic()))
        with (
            httpx.Client(timeout=timeout, follow_redirects=False, trust_env=False, auth=_bearer(token)) as client,
            client.stream(
                asked.method,
                url,
                content=asked.content,
                headers={**asked.headers, **named},
                extensions={"trace": _until(until), **extensions},
            ) as response,
        ):
            return _read(response, until, reading=asked.content is None and asked.method == "GET")
    except (_Late, httpx.TimeoutException):
        return _Lost("no answer in time")
    except httpx.ConnectError as error:
        return _Lost(_without(f"it cannot be reached: {error}", token))
    except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError):
        return _Lost("the request cannot be sent as it is: the token or the address has characters that HTTP forbids")
    except (httpx.HTTPError, OSError) as error:
        return _Lost(f"the exchange broke off ({type(error).__name__})")


def _pinned(url: str, place: Place | None) -> tuple[str, dict[str, str], dict[str, str]]:
    """The URL with the address of its host in place of the name, and what keeps the name: Host, and TLS's own (SNI)."""
    if place is None:
        return url, {}, {}
    parts = urlsplit(url)
    address = place(url)
    host = f"[{address}]" if ":" in address else address
    netloc = host if parts.port is None else f"{host}:{parts.port}"
    return urlunsplit(parts._replace(netloc=netloc)), {"Host": parts.netloc}, {"sni_hostname": parts.hostname or ""}


def _bearer(token: Secret) -> Callable[[httpx.Request], httpx.Request]:
    def let_in(request: httpx.Request) -> httpx.Request:
        if token:
            request.headers["Authorization"] = f"Bearer {token.reveal()}"
        return request

    return let_in


def _until(until: float) -> Callable[[str, Any], None]:
    """Heard before each step of the exchange: what has not been sent by then is never sent."""

    def heard(name: str, _: Any) -> None:
        if name.endswith(_SENDING) and time.monotonic() > until:
            raise _Late

    return heard


def _read(response: httpx.Response, until: float, *, reading: bool) -> _Came:
    """The body of what was read, or of a refusal; of a change that was made nobody waits for it."""
    tag = response.headers.get("etag", "")
    version = tag if len(tag) <= MAX_TAG and tag.isascii() and tag.isprintable() else ""
    if response.is_success and not reading:
        return _Came(response.status_code, b"", version)
    if response.headers.get("content-encoding", "identity") not in ("", "identity"):
        return _Came(response.status_code, b"", version, "it is compressed, though that was not asked for")
    limit = MAX_BYTES if response.is_success else MAX_SAID_BYTES
    body = bytearray()
    for chunk in response.iter_raw():
        if time.monotonic() > until:
            raise _Late
        body += chunk
        if len(body) > limit:
            return _Came(response.status_code, bytes(body[:limit]), version, f"it has more than {limit} bytes")
    return _Came(response.status_code, bytes(body), version)


def _judged(asked: Asked, came: _Came, token: Secret) -> Answer:
    if 200 <= came.status < 300:
        if came.flaw:
            raise Refused(f"the answer cannot be used: {came.flaw}", where=asked.url, next_step=_LOOK)
        return Answer(came.body, came.version)
    said = _said(came.body, token)
    what = f"{asked.method} was answered {came.status}{f': {said}' if said else ''}"
    if came.status == _CONTENDED:
        raise Contended(what, where=asked.url)
    if came.status < 500 or came.status in _NEVER:
        raise Refused(what, where=asked.url, next_step=_NEXT.get(came.status, ""))
    raise Unreachable(what, where=asked.url)


_NEXT = {
    401: "give the target's token: LATDOCTOR_ADMIN_TOKEN, or admin_token of latdoctor.yaml",
    403: "see who may change it: its token was not enough",
    404: _LOOK,
}


def _said(body: bytes, token: Secret) -> str:
    """What a refusal says, for people: the `detail` of our own servers, else the beginning of the text."""
    text = body.decode(errors="replace")
    try:
        told = msgspec.json.decode(body, type=dict[str, Any]).get("detail")
    except UNDECODABLE:
        told = None
    return _without(told if isinstance(told, str) else text, token)


def _without(text: str, token: Secret) -> str:
    """`text` as it may be shown, where the target, or a proxy before it, repeats what it was sent.

    Cleaned before: characters that are not seen could otherwise hide a token from the search for it.
    """
    safe = clean(text, len(text) + 1)
    return clean(safe.replace(token.reveal(), "…") if token else safe, 300)
