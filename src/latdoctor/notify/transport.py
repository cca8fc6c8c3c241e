"""Sends a message with the secrets of its receiver, once.

Secrets come from files or the environment, never from the command line or the configuration, and appear in no error.
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

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.http.client import HttpRequest, HttpResponse, Secret, redact_secrets, send_request
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
)
from latdoctor.notify.receiver_config import Message, Receiver, ReceiverKind
from latdoctor.regular_file import read_regular
from latdoctor.sanitize import clean

MAX_FILE = 4096  # bytes of a file with a secret
ROUTING_KEY = 32  # characters of PagerDuty's (developer.pagerduty.com, "Send an Alert Event")
SIGNED = "whsec_"  # before the base64 of a secret (Standard Webhooks), of 24 to 64 bytes
_SHORTEST_KEY, _LONGEST_KEY = 24, 64
_SHORTEST_PART = 6  # characters: shorter parts of an address are not secret, and occur in many words
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}


@dataclass(frozen=True, slots=True)
class Keys:
    """Secrets of a receiver: its address, and its signing key."""

    url: Secret
    key: Secret

    @property
    def all(self) -> tuple[Secret, ...]:
        """Texts to remove from a receiver's answer, including the parts of a secret address."""
        parts = _split(self.url.reveal())
        fields = (*parts.path.split("/"), parts.path, parts.query) if parts else ()
        return (self.url, self.key, *(Secret(part) for part in fields if len(part) >= _SHORTEST_PART))


def load_keys(receiver: Receiver) -> Keys:
    """Secrets of `receiver`. Raises UsageError where they are missing, or its address is not permitted."""
    variable = Secret(os.environ.get(receiver.variable, "").strip())
    if receiver.kind == ReceiverKind.PAGERDUTY:
        key = _read(receiver.key_file) if receiver.key_file else variable
        _check_routing_key(key, receiver)
        found = Keys(Secret(), key)
    elif receiver.kind == ReceiverKind.SLACK:
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
    _check_address(found.url or Secret(receiver.base), receiver)
    _check_certificates(receiver.authorities)
    return found


def signed_request(message: Message, receiver: Receiver, secrets: Keys, now: float) -> HttpRequest:
    """`message` as it is sent at `now` (unix seconds)."""
    content, headers = message.body, {**_HEADERS, **dict(message.headers)}
    if message.kind == ReceiverKind.PAGERDUTY:
        fields = msgspec.json.decode(content, type=dict[str, Raw])
        content = msgspec.json.encode(fields | {"routing_key": Raw(msgspec.json.encode(secrets.key.reveal()))})
    elif message.kind == ReceiverKind.WEBHOOK and secrets.key:
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
    """Raises UsageError, without any of the file's content."""
    found = _contents(path)
    if isinstance(found, Secret):
        return found
    raise UsageError(f"the secret cannot be read: {found}", where=str(path), next_step="see docs/notify.md")


def _contents(path: Path) -> Secret | str:
    """Secret in the file, or the reason why there is none."""
    try:
        raw = read_regular(path, MAX_FILE)
        text = raw.decode("ascii").strip()
    except OSError as error:
        return error.strerror or type(error).__name__
    except UnicodeDecodeError:
        return "it is no plain text"
    if len(raw) > MAX_FILE:
        return f"it has more than {MAX_FILE} bytes"
    return Secret(text) if text else "it is empty"


def _check_routing_key(key: Secret, receiver: Receiver) -> None:
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
        next_step=f'create one: echo "{SIGNED}$(openssl rand -base64 32)"',
    )


def _check_certificates(path: Path | None) -> None:
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


def _check_address(url: Secret, receiver: Receiver) -> None:
    """Raises UsageError, with no more of a secret address than its host."""
    parts = _split(url.reveal())
    why, host = _why_not(parts, url, receiver), shown_origin(url.reveal())
    del parts
    if why:
        raise UsageError(f"{host} cannot be its address: {why}", where=receiver.name, next_step=_NEXT)


_NEXT = "see `allow` and `allow_private` in docs/notify.md"


def _why_not(parts: SplitResult | None, url: Secret, receiver: Receiver) -> str:
    """Why the address is not permitted; empty where it is."""
    plain = url.reveal().isascii() and url.reveal().isprintable() and not set(' \\"') & set(url.reveal())
    if parts is None or not parts.hostname or parts.scheme not in ("http", "https") or not plain:
        return "it is no https address"
    if parts.scheme == "http" and not receiver.allow_private:
        return "the message could be read in transit (https only)"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "it has a user, a password or a fragment"
    if parts.query and not receiver.url_file:
        return "a query often contains a secret: put the whole address into a file (url_file)"
    if not is_plain_path(parts.path):
        return "its path is written in a way that can be misread"
    entries = (_split(one) for one in receiver.allowed)
    if not any(entry and entry.scheme in ("http", "https") and is_under(parts, entry) for entry in entries):
        allowed = ", ".join(clean(one, 100) for one in receiver.allowed)
        return f"it is not below an allowed address ({allowed or 'none'})"
    return ""


LONGEST = 10.0  # seconds for one try
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds; PagerDuty recommends "a few minutes"
LONGEST_ASKED = 900.0  # maximum Retry-After in seconds: later messages are outdated
_LATER: Final = frozenset({408, 425, 429})  # of 4xx: may be tried again
_NEVER: Final = frozenset({501, 505})  # of 5xx: a retry gets the same answer
_NOT_DONE: Final = frozenset({425, 429})  # certainly not accepted
_NEXT_STEPS: Final = {
    301: "use the new address",
    302: "use the new address",
    401: "check its key",
    403: "check its key",
}


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """`why` it was not sent; `unsure`: it may have arrived; `again_after`: seconds, None: never."""

    sent: bool
    why: str = ""
    unsure: bool = False
    again_after: float | None = None


def attempt(
    message: Message, receiver: Receiver, keys: Keys, now: float, resolve: ResolveHost, seconds: float = LONGEST
) -> AttemptResult:
    """Try once, at `now` (unix seconds). Raises UsageError for a secret that is none."""
    number = message.tries + 1
    request = signed_request(message, receiver, keys, now)
    scheme = urlsplit(request.url).scheme
    try:
        response = send_request(
            request,
            seconds,
            lambda url: connect_address(url, lambda address: _may_connect(address, receiver, scheme), resolve),
        )
    except ForbiddenAddressError as forbidden:
        hint = "" if receiver.allow_private else ": allow_private is not set"
        why = f"{shown_origin(request.url)}: {forbidden.what}, which is not permitted{hint} — see docs/notify.md"
        return AttemptResult(sent=False, why=why)
    except UnresolvedHostError as unresolved:
        why = f"{shown_origin(request.url)}: {unresolved.what}"
        return AttemptResult(sent=False, why=why, again_after=pause(number))
    if isinstance(response, RequestFailure):
        return AttemptResult(False, redact_secrets(f"it {response.why}", keys.all), response.begun, pause(number))
    return _result_of(response, keys, number, now)


def _may_connect(address: Address, receiver: Receiver, scheme: str) -> bool:
    """Whether `address` is permitted: public ones; with allow_private also this machine and private networks; never
    link-local (cloud credentials), multicast or reserved addresses. Without TLS only this machine.
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


def retry_after(text: str, now: float) -> float:
    """Seconds of a Retry-After header (number or date), at most LONGEST_ASKED; 0 without one."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:10]), LONGEST_ASKED))
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return 0.0
    return min(max(0.0, at - now), LONGEST_ASKED)


def _result_of(response: HttpResponse, keys: Keys, number: int, now: float) -> AttemptResult:
    if 200 <= response.status < 300:
        return AttemptResult(sent=True)
    text = redact_secrets(_error_text(response.body), keys.all, 200)
    if 300 <= response.status < 400:
        text = "it points elsewhere, and redirects are not followed"
    step = f" — {_NEXT_STEPS[response.status]}" if response.status in _NEXT_STEPS else ""
    why = f"it answered {response.status}{f': {text}' if text else ''}{step}"
    if response.status in _LATER or (response.status >= 500 and response.status not in _NEVER):
        wait = max(pause(number), retry_after(response.headers.get("retry-after", ""), now))
        return AttemptResult(False, why, response.status not in _NOT_DONE, wait)
    return AttemptResult(False, why)


def _error_text(body: bytes) -> str:
    """Message of an error response: `message`, `errors` (PagerDuty), `detail` or `error`, else the text."""
    text = body.decode(errors="replace")
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except UNDECODABLE:
        return text
    parts = [fields.get(name) for name in ("message", "detail", "error")]
    errors = fields.get("errors")
    parts += errors if isinstance(errors, list) else []
    return "; ".join(_texts(parts)) or text


def _texts(parts: Iterable[object]) -> list[str]:
    return [part for part in parts if isinstance(part, str)]
