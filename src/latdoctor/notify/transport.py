"""Puts the secrets of a receiver into a message, just before it is sent. Nobody else knows them.

They come from files or the environment, never from the command line or the configuration, and are in no error.
"""

from __future__ import annotations

import base64
import binascii
import email.utils
import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Raw

from latdoctor.errors import UNDECODABLE, OperationError, UsageError
from latdoctor.http.address import PORTS, Address, ResolveHost, is_plain_path, is_public, is_under, parse_address
from latdoctor.http.client import HttpRequest, HttpResponse, RequestFailure, Secret, redact_secrets, send_request
from latdoctor.notify.receiver import PAGERDUTY, SLACK, WEBHOOK, Message, Receiver
from latdoctor.sanitize import clean

MAX_FILE = 4096  # bytes of a file with a secret
ROUTING_KEY = 32  # characters of PagerDuty's (developer.pagerduty.com, "Send an Alert Event")
SIGNED = "whsec_"  # before the base64 of a secret (Standard Webhooks), of 24 to 64 bytes
_SHORTEST_KEY, _LONGEST_KEY = 24, 64
_SHORTEST_PART = 6  # characters: a shorter part of an address is no secret, and stands in many words
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}


@dataclass(frozen=True, slots=True)
class Keys:
    """What a receiver has that is secret: its address, and what the message is proved by."""

    url: Secret
    key: Secret

    @property
    def all(self) -> tuple[Secret, ...]:
        """Whatever must not be seen in what a receiver says: also the parts of a secret address."""
        parts = _split(self.url.reveal())
        told = (*parts.path.split("/"), parts.path, parts.query) if parts else ()
        return (self.url, self.key, *(Secret(part) for part in told if len(part) >= _SHORTEST_PART))


def load_keys(receiver: Receiver) -> Keys:
    """The secrets of `receiver`. Raises UsageError where they are missing, or its address may not be asked."""
    variable = Secret(os.environ.get(receiver.variable, "").strip())
    if receiver.kind == PAGERDUTY:
        key = _read(receiver.key_file) if receiver.key_file else variable
        _must_be_routing_key(key, receiver)
        found = Keys(Secret(), key)
    elif receiver.kind == SLACK:
        found = Keys(_read(receiver.url_file) if receiver.url_file else variable, Secret())
        if not found.url:
            raise UsageError(
                "its address, which is a secret, is not there",
                where=receiver.name,
                next_step=f"write it into a file that `url_file` names, or into {receiver.variable}",
            )
    else:
        key = _read(receiver.key_file) if receiver.key_file else variable
        if key:
            _signing_key(key, receiver)
        found = Keys(_read(receiver.url_file) if receiver.url_file else Secret(), key)
    _must_be_allowed(found.url or Secret(receiver.base), receiver)
    _must_be_certificates(receiver.authorities)
    return found


def signed_request(message: Message, receiver: Receiver, secrets: Keys, now: float) -> HttpRequest:
    """`message` as it is sent at `now` (unix seconds)."""
    content, headers = message.body, {**_HEADERS, **dict(message.headers)}
    if message.kind == PAGERDUTY:
        fields = msgspec.json.decode(content, type=dict[str, Raw])
        content = msgspec.json.encode(fields | {"routing_key": Raw(msgspec.json.encode(secrets.key.reveal()))})
    elif message.kind == WEBHOOK and secrets.key:
        at = str(int(now))
        headers |= {"webhook-timestamp": at, "webhook-signature": signature(receiver, secrets.key, message, at)}
    url = secrets.url.reveal() or message.url
    return HttpRequest("POST", url, headers, content, authorities=receiver.authorities)


def signature(receiver: Receiver, key: Secret, message: Message, at: str) -> str:
    """HMAC-SHA256 over id, time and body, as Standard Webhooks writes it. Raises UsageError."""
    identity = dict(message.headers).get("webhook-id", "")
    signed = b".".join((identity.encode(), at.encode(), message.body))
    digest = hmac.new(_signing_key(key, receiver).reveal().encode("latin-1"), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def shown_origin(url: str) -> str:
    """Scheme and host alone: the rest may be a secret."""
    parts = _split(url)
    return clean(f"{parts.scheme}://{parts.hostname}", 200) if parts and parts.hostname else "that"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname
    except ValueError:
        return None
    return parts


def _read(path: Path) -> Secret:
    """Raises UsageError, without a word of what stands in it."""
    found = _contents(path)
    if isinstance(found, Secret):
        return found
    raise UsageError(f"the secret cannot be read: {found}", where=str(path), next_step="see docs/notify.md")


def _contents(path: Path) -> Secret | str:
    """What stands in the file, or why that is no secret."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
        text = raw.decode("ascii").strip()
    except OSError as error:
        return error.strerror or type(error).__name__
    except UnicodeDecodeError:
        return "it is no plain text"
    if len(raw) > MAX_FILE:
        return f"it has more than {MAX_FILE} bytes"
    return Secret(text) if text else "it is empty"


def _must_be_routing_key(key: Secret, receiver: Receiver) -> None:
    fits = len(key.reveal()) == ROUTING_KEY and key.reveal().isascii() and key.reveal().isalnum()
    if not fits:
        what = f"its routing key has not {ROUTING_KEY} letters and digits" if key else "it has no routing key"
        raise UsageError(
            what,
            where=receiver.name,
            next_step=f"write the integration key into a file that `key_file` names, or into {receiver.variable}",
        )


def _signing_key(key: Secret, receiver: Receiver) -> Secret:
    """The bytes behind a `whsec_…`, as a text of the characters 0 to 255. Raises UsageError."""
    try:
        raw = base64.b64decode(key.reveal().removeprefix(SIGNED), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if key.reveal().startswith(SIGNED) and _SHORTEST_KEY <= len(raw) <= _LONGEST_KEY:
        return Secret(raw.decode("latin-1"))
    del raw
    raise UsageError(
        f"its secret is not {SIGNED} and the base64 of {_SHORTEST_KEY} to {_LONGEST_KEY} bytes",
        where=receiver.name,
        next_step=f'make one: echo "{SIGNED}$(openssl rand -base64 32)"',
    )


def _must_be_certificates(path: Path | None) -> None:
    """Raises UsageError."""
    if path is None:
        return
    import ssl  # here, as few receivers need it

    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"no certificates can be read there: {clean(str(error.strerror or error), 100)}",
            where=str(path),
            next_step="name a file of PEM certificates in `ca`",
        ) from None


def _must_be_allowed(url: Secret, receiver: Receiver) -> None:
    """Raises UsageError, with no more of a secret address than its host."""
    parts = _split(url.reveal())
    why, host = _why_not(parts, url, receiver), shown_origin(url.reveal())
    del parts
    if why:
        raise UsageError(f"{host} cannot be its address: {why}", where=receiver.name, next_step=_NEXT)


_NEXT = "see `allow` and `allow_private` in docs/notify.md"


def _why_not(parts: SplitResult | None, url: Secret, receiver: Receiver) -> str:
    """Why nothing may be sent there; empty where it may."""
    plain = url.reveal().isascii() and url.reveal().isprintable() and not set(' \\"') & set(url.reveal())
    if parts is None or not parts.hostname or parts.scheme not in ("http", "https") or not plain:
        return "it is no https address"
    if parts.scheme == "http" and not receiver.allow_private:
        return "what is told could be read on the way (https only)"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "it has a user, a password or a fragment"
    if parts.query and not receiver.url_file:
        return "what stands behind a question mark is often a secret: put all of it into a file (url_file)"
    if not is_plain_path(parts.path):
        return "its path is written in a way that can be misread"
    entries = (_split(one) for one in receiver.allowed)
    if not any(entry and entry.scheme in ("http", "https") and is_under(parts, entry) for entry in entries):
        allowed = ", ".join(clean(one, 100) for one in receiver.allowed)
        return f"it is not under what is allowed ({allowed or 'nothing'})"
    return ""


LONGEST = 10.0  # seconds for one try
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds; PagerDuty asks for "a few minutes"
LONGEST_ASKED = 900.0  # seconds that a receiver may make us wait: what comes later is no news any more
_LATER: Final = frozenset({408, 425, 429})  # of 4xx: may be tried again
_NEVER: Final = frozenset({501, 505})  # of 5xx: these will be said again
_NOT_DONE: Final = frozenset({425, 429})  # what was answered so has not been taken
_NEXT_STEPS: Final = {301: "give the new address", 302: "give the new address", 401: "see its key", 403: "see its key"}


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """`why` it was not sent; `unsure`: it may have arrived; `again_after`: seconds, None: never."""

    sent: bool
    why: str = ""
    unsure: bool = False
    again_after: float | None = None


class _Barred(OperationError):  # noqa: N818 - what happened; neither leaves this module
    """It may not be asked at all."""


class _Unresolved(OperationError):  # noqa: N818
    """Its name leads nowhere just now."""


def attempt(
    message: Message, receiver: Receiver, load_keys: Keys, now: float, resolve: ResolveHost, seconds: float = LONGEST
) -> AttemptResult:
    """Tries once, at `now` (unix seconds). Raises UsageError for a secret that is none."""
    number = message.tries + 1
    request = signed_request(message, receiver, load_keys, now)
    try:
        came = send_request(request, seconds, lambda url: connect_address(url, receiver, resolve))
    except _Barred as barred:
        return AttemptResult(sent=False, why=str(barred))
    except _Unresolved as unresolved:
        return AttemptResult(sent=False, why=str(unresolved), again_after=pause(number))
    if isinstance(came, RequestFailure):
        return AttemptResult(False, redact_secrets(came.why, load_keys.all), came.begun, pause(number))
    return _judged(came, load_keys, number, now)


def connect_address(url: str, receiver: Receiver, resolve: ResolveHost) -> str:
    """The address to connect to: all that the name leads to may be asked. Raises _Barred, _Unresolved."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    try:
        found = resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise _Unresolved("its name cannot be resolved", where=clean(host, 200)) from error
    for text in found:
        address = parse_address(text)
        if address is None or not _may_be_asked(address, receiver, parts.scheme):
            hint = "" if receiver.allow_private else ": allow_private is not set"
            raise _Barred(
                f"it leads to {clean(text, 60)}, which may not be asked{hint}",
                where=shown_origin(url),
                next_step="see docs/notify.md",
            )
    if not found:
        raise _Unresolved("its name has no address", where=clean(host, 200))
    return found[0]


def _may_be_asked(address: Address, receiver: Receiver, scheme: str) -> bool:
    """Of what is not public, with leave, this machine and private networks: never link-local (where clouds keep their
    machines' credentials), multicast or reserved addresses. Without TLS this machine alone.
    """
    if address.is_loopback:
        return receiver.allow_private
    if scheme != "https":
        return False
    if is_public(address):
        return True
    forbidden = address.is_link_local or address.is_multicast or address.is_reserved or address.is_unspecified
    return receiver.allow_private and not forbidden


def pause(number: int) -> float:
    """Seconds to wait after the `number`th try."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(number - 1, 30))


def retry_after(said: str, now: float) -> float:
    """What a Retry-After says, in seconds or as a date; 0 where it says nothing. At most LONGEST_ASKED."""
    text = said.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:10]), LONGEST_ASKED))
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return 0.0
    return min(max(0.0, at - now), LONGEST_ASKED)


def _judged(came: HttpResponse, load_keys: Keys, number: int, now: float) -> AttemptResult:
    if 200 <= came.status < 300:
        return AttemptResult(sent=True)
    said = redact_secrets(_said(came.body), load_keys.all, 200)
    if 300 <= came.status < 400:
        said = "it points elsewhere, and redirects are not followed"
    step = f" — {_NEXT_STEPS[came.status]}" if came.status in _NEXT_STEPS else ""
    why = f"it answered {came.status}{f': {said}' if said else ''}{step}"
    if came.status in _LATER or (came.status >= 500 and came.status not in _NEVER):
        wait = max(pause(number), retry_after(came.headers.get("retry-after", ""), now))
        return AttemptResult(False, why, came.status not in _NOT_DONE, wait)
    return AttemptResult(False, why)


def _said(body: bytes) -> str:
    """What a refusal says: PagerDuty's `message` and `errors`, another's `detail` or `error`, else its text."""
    text = body.decode(errors="replace")
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
    except UNDECODABLE:
        return text
    parts = [told.get(name) for name in ("message", "detail", "error")]
    errors = told.get("errors")
    parts += errors if isinstance(errors, list) else []
    return "; ".join(_texts(parts)) or text


def _texts(parts: Iterable[object]) -> list[str]:
    return [part for part in parts if isinstance(part, str)]
