"""One try to tell a receiver something: where it goes, what came of it, and when it may be tried again."""

from __future__ import annotations

import email.utils
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import OperationError
from latdoctor.incident.notify.receiver import Message, Receiver
from latdoctor.incident.notify.sealing import Keys, sealed, shown_origin
from latdoctor.text import clean
from latdoctor.web.address import PORTS, Address, Resolve, address_of, is_public
from latdoctor.web.exchange import Came, Lost, exchange
from latdoctor.web.secret import without

LONGEST = 10.0  # seconds for one try
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds; PagerDuty asks for "a few minutes"
LONGEST_ASKED = 900.0  # seconds that a receiver may make us wait: what comes later is no news any more
_LATER: Final = frozenset({408, 425, 429})  # of 4xx: may be tried again
_NEVER: Final = frozenset({501, 505})  # of 5xx: these will be said again
_NOT_DONE: Final = frozenset({425, 429})  # what was answered so has not been taken
_NEXT: Final = {301: "give the new address", 302: "give the new address", 401: "see its key", 403: "see its key"}


@dataclass(frozen=True, slots=True)
class Outcome:
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
    message: Message, receiver: Receiver, keys: Keys, now: float, resolve: Resolve, seconds: float = LONGEST
) -> Outcome:
    """Tries once, at `now` (unix seconds). Raises UsageError for a secret that is none."""
    number = message.tries + 1
    request = sealed(message, receiver, keys, now)
    try:
        came = exchange(request, seconds, lambda url: place(url, receiver, resolve))
    except _Barred as barred:
        return Outcome(sent=False, why=str(barred))
    except _Unresolved as unresolved:
        return Outcome(sent=False, why=str(unresolved), again_after=pause(number))
    if isinstance(came, Lost):
        return Outcome(False, without(came.why, keys.all), came.begun, pause(number))
    return _judged(came, keys, number, now)


def place(url: str, receiver: Receiver, resolve: Resolve) -> str:
    """The address to connect to: all that the name leads to may be asked. Raises _Barred, _Unresolved."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    try:
        found = resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise _Unresolved("its name cannot be resolved", where=clean(host, 200)) from error
    for text in found:
        address = address_of(text)
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


def asked_pause(said: str, now: float) -> float:
    """What a Retry-After says, in seconds or as a date; 0 where it says nothing. At most LONGEST_ASKED."""
    text = said.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:10]), LONGEST_ASKED))
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return 0.0
    return min(max(0.0, at - now), LONGEST_ASKED)


def _judged(came: Came, keys: Keys, number: int, now: float) -> Outcome:
    if 200 <= came.status < 300:
        return Outcome(sent=True)
    said = without(_said(came.body), keys.all, 200)
    if 300 <= came.status < 400:
        said = "it points elsewhere, and redirects are not followed"
    step = f" — {_NEXT[came.status]}" if came.status in _NEXT else ""
    why = f"it answered {came.status}{f': {said}' if said else ''}{step}"
    if came.status in _LATER or (came.status >= 500 and came.status not in _NEVER):
        wait = max(pause(number), asked_pause(came.headers.get("retry-after", ""), now))
        return Outcome(False, why, came.status not in _NOT_DONE, wait)
    return Outcome(False, why)


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
