"""One exchange with what is mended: an answer, or an error of a kind, without the token in anything it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.http.address import (
    PORTS,
    Address,
    ResolveHost,
    is_plain_path,
    is_public,
    is_under,
    parse_address,
    resolve_host,
)
from latdoctor.http.client import (
    MAX_BYTES,
    HttpRequest,
    HttpResponse,
    ResolveAddress,
    Secret,
    redact_secrets,
)
from latdoctor.http.client import send_request as exchanged
from latdoctor.http.failure import RequestFailure
from latdoctor.remediation.change import Contended, Deadline, Refused, Unreachable
from latdoctor.sanitize import clean

__all__ = ["MAX_BYTES", "AdminRequest", "Answer", "ResolveAddress", "checked", "exchange", "json_object"]

MAX_TAG = 256  # characters of an ETag: a longer one, or one with others than plain characters, is none
LONGEST = 10.0  # seconds for one exchange, so that a lost one leaves time for another
_CONTENDED = 412
_NEVER = frozenset({501, 505})  # of 5xx: these will be said again; after any other it is not known what was done
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}


@dataclass(frozen=True, slots=True)
class AdminRequest:
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


def exchange(asked: AdminRequest, token: Secret, deadline: Deadline, place: ResolveAddress | None = None) -> Answer:
    """Asks once. Never follows a redirect, and uses no proxy of the environment.

    Raises what `place` raises, Contended for 412, Refused where the target will not or its answer is no use, and
    Unreachable where no answer came in time or the target failed: then it is not known whether it was done.
    """
    seconds = min(deadline.left, LONGEST)
    if seconds <= 0:
        raise Unreachable("there was no time left to ask", where=asked.url)
    came = exchanged(_request(asked, token), seconds, place)
    if isinstance(came, RequestFailure):
        why = redact_secrets(came.why, [token])
        raise Unreachable(why, where=asked.url, next_step=came.next_step)
    return _judged(asked, came, token)


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


def _request(asked: AdminRequest, token: Secret) -> HttpRequest:
    bearer = {"Authorization": f"Bearer {token.reveal()}"} if token else {}
    reads = asked.content is None and asked.method == "GET"
    return HttpRequest(asked.method, asked.url, {**asked.headers, **bearer}, asked.content, reads)


def _judged(asked: AdminRequest, came: HttpResponse, token: Secret) -> Answer:
    if 200 <= came.status < 300:
        if came.flaw:
            raise Refused(f"the answer cannot be used: it {came.flaw.why}", where=asked.url, next_step=_LOOK)
        tag = came.headers.get("etag", "")
        return Answer(came.body, tag if len(tag) <= MAX_TAG and tag.isascii() and tag.isprintable() else "")
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
        known = msgspec.json.decode(body, type=dict[str, Any]).get("detail")
    except UNDECODABLE:
        known = None
    return redact_secrets(known if isinstance(known, str) else text, [token])


def permitted(url: str, allow: Sequence[str]) -> str:
    """`url`, where it lies under one of `allow`. Raises UsageError."""
    parts = urlsplit(checked(url))
    if not url.isascii() or not is_plain_path(parts.path):
        raise UsageError("the path is written in a way that can be misread", where=clean(url, 200))
    if any(is_under(parts, urlsplit(checked(one))) for one in allow):
        return url
    raise UsageError(
        "it may not be changed: it is not under what the target allows",
        where=clean(url, 200),
        next_step=f"allowed are {', '.join(clean(one, 100) for one in allow) or 'none'}",
    )


def place(url: str, allow: Sequence[str], resolve: ResolveHost | None = None) -> str:
    """The address to connect to. Raises Refused for one that is not public and not itself in `allow`, Unreachable."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    try:
        found = (resolve or resolve_host)(host, port)
    except (OSError, UnicodeError) as error:
        raise Unreachable("its name cannot be resolved", where=clean(url, 200)) from error
    named = {urlsplit(one).hostname or "" for one in allow}
    for text in found:
        address = parse_address(text)
        if address is None or not (is_public(address) or _is_named(address, host, named)):
            raise Refused(
                f"{clean(host, 100)} leads to {clean(text, 60)}, an address that is not public",
                where=clean(url, 200),
                next_step="if it is meant, list the address itself in the target's `allow`",
            )
    if not found:
        raise Unreachable("its name has no address", where=clean(url, 200))
    return found[0]


def _is_named(address: Address, host: str, named: set[str]) -> bool:
    if host == "localhost" and address.is_loopback:  # it is in the list itself, or `permitted` had refused
        return True
    return any(parse_address(one) == address for one in named)
