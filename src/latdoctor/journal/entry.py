"""One journal entry: event, time, and the digest that chains it to the entry before."""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from latdoctor.errors import OperationError
from latdoctor.sanitize import clean

BEGINNING = "0" * 64  # `previous` of the first entry


LARGEST_BODY = 1 << 20  # bytes of JSON: larger content goes to a file that the entry names


_LONGEST_NAME = 200  # characters of a run's name or a kind


_BOOT = Path("/proc/sys/kernel/random/boot_id")


CLOCK_TOLERANCE = 60.0  # seconds by which two wall clocks may differ


class JournalError(OperationError):
    """The journal cannot be read, trusted or written. A failed `append` is on disk completely or not at all."""


class Moment(Struct, frozen=True):
    """Now, by the clock that people read and by the one that is never set.

    `at` is RFC 3339 in UTC with microseconds; `monotonic` are seconds, to be compared within one `boot` only. An
    empty `boot` is not known.
    """

    at: str
    monotonic: float
    boot: str


class JournalEntry(Struct, frozen=True):
    """A journal entry. `digest` is SHA-256 in hexadecimal over `previous` and all other fields."""

    seq: int
    run: str
    at: str
    monotonic: float
    boot: str
    kind: str
    body: Raw
    previous: str
    digest: str

    @property
    def moment(self) -> Moment:
        return Moment(self.at, self.monotonic, self.boot)


def unix_seconds(at: str) -> float:
    """Of the time of a moment or an entry."""
    return datetime.datetime.fromisoformat(at).timestamp()


def seconds_between(earlier: Moment | JournalEntry, later: Moment | JournalEntry) -> float:
    """By the monotonic clock within one boot, else by the wall clock. Never negative: a future time counts as now.

    A moment of another boot that is far in the future was stamped by a wrong clock. It is older than the present boot,
    so at least the time since that has passed.
    """
    if earlier.boot and earlier.boot == later.boot:
        return max(0.0, later.monotonic - earlier.monotonic)
    seconds = unix_seconds(later.at) - unix_seconds(earlier.at)
    if seconds < -CLOCK_TOLERANCE and earlier.boot and later.boot:
        return max(0.0, later.monotonic)
    return max(0.0, seconds)


def now() -> Moment:
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):  # a kernel that hides it: then no two monotonic times are compared
        boot = ""
    return Moment(at, time.monotonic(), boot)


def next_entry(before: JournalEntry | None, run: str, kind: str, body: bytes, moment: Moment) -> JournalEntry:
    """Entry after `before`. `body` is from `encode_body`. Raises JournalError."""
    for what, name in (("a run", run), ("a kind", kind)):
        if clean(name, _LONGEST_NAME) != name:
            raise JournalError(
                f"{clean(name, 60)!r} is not a valid name of {what}",
                next_step=f"use at most {_LONGEST_NAME} plain characters",
            )
    if not kind:
        raise JournalError("an entry has no kind", next_step="set its kind")
    seq, previous = (before.seq + 1, before.digest) if before else (1, BEGINNING)
    unsealed = JournalEntry(seq, run, moment.at, moment.monotonic, moment.boot, kind, Raw(body), previous, "")
    return msgspec.structs.replace(unsealed, digest=digest_of(unsealed))


def digest_of(entry: JournalEntry) -> str:
    """Expected digest. JSON has no bare line break, so different entries give different bytes."""
    rest = msgspec.json.encode([entry.seq, entry.run, entry.at, entry.monotonic, entry.boot, entry.kind])
    return hashlib.sha256(b"\n".join((entry.previous.encode(), rest, bytes(entry.body)))).hexdigest()


def encode_body(body: Struct | Mapping[str, object]) -> bytes:
    """`body` as a JSON object with sorted keys. NaN and infinity become null.

    Raises JournalError for more than LARGEST_BODY bytes, and for values that are not JSON.
    """
    try:
        encoded = msgspec.json.encode(dict(body) if isinstance(body, Mapping) else body, order="deterministic")
        # A `Raw` in it is copied verbatim, so the result is checked to be JSON.
        proven = msgspec.json.decode(encoded)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        reason = clean(str(error), 200)
        raise JournalError(f"the body is not JSON: {reason}", next_step="use plain JSON values") from error
    if not isinstance(proven, dict):
        raise JournalError("the body of an entry must be an object", next_step="use named fields")
    if len(encoded) > LARGEST_BODY:
        raise JournalError(
            f"the body of an entry has {len(encoded)} bytes, more than {LARGEST_BODY}",
            next_step="save it as a file and journal the file's name",
        )
    return encoded


def chain_error(entry: JournalEntry, before: JournalEntry | None) -> str:
    """Why `entry` cannot follow `before`; empty where it can."""
    seq, previous = (before.seq + 1, before.digest) if before else (1, BEGINNING)
    if entry.seq != seq:
        return f"{entry.seq} is in its place"
    if entry.previous != previous:
        return "it follows another entry than the one before it"
    if entry.digest != digest_of(entry):
        return "its digest does not match its content"
    return ""
