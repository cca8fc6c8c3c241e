"""One entry: what happened, when, and the digest by which it holds fast to the entry before it."""

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

BEGINNING = "0" * 64  # what the first entry has as the digest of the one before


LARGEST_BODY = 1 << 20  # bytes of JSON: what is larger is a file, and the entry names it


_LONGEST_NAME = 200  # characters of a run's name or a kind


_BOOT = Path("/proc/sys/kernel/random/boot_id")


class JournalError(OperationError):
    """The journal cannot be read, trusted or written. What a failed `append` was given is there whole or not at all."""


class Moment(Struct, frozen=True):
    """Now, by the clock that people read and by the one that is never set.

    `at` is RFC 3339 in UTC with microseconds; `monotonic` are seconds, to be compared within one `boot` only. An
    empty `boot` is not known.
    """

    at: str
    monotonic: float
    boot: str


class JournalEntry(Struct, frozen=True):
    """What was journaled. `digest` is SHA-256 in hexadecimal over `previous` and all the rest."""

    seq: int
    run: str
    at: str
    monotonic: float
    boot: str
    kind: str
    body: Raw
    previous: str
    digest: str


def unix_seconds(at: str) -> float:
    """Of the time of a moment or an entry."""
    return datetime.datetime.fromisoformat(at).timestamp()


def now() -> Moment:
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):  # a kernel that hides it: then no two monotonic times are compared
        boot = ""
    return Moment(at, time.monotonic(), boot)


def next_entry(before: JournalEntry | None, run: str, kind: str, body: bytes, moment: Moment) -> JournalEntry:
    """The entry that comes after `before`. `body` is what `encode_body` gave. Raises JournalError."""
    for what, name in (("a run", run), ("a kind", kind)):
        if clean(name, _LONGEST_NAME) != name:
            raise JournalError(
                f"{clean(name, 60)!r} cannot name {what}",
                next_step=f"use at most {_LONGEST_NAME} plain characters",
            )
    if not kind:
        raise JournalError("an entry has no kind", next_step="name what happened")
    seq, previous = (before.seq + 1, before.digest) if before else (1, BEGINNING)
    unsealed = JournalEntry(seq, run, moment.at, moment.monotonic, moment.boot, kind, Raw(body), previous, "")
    return msgspec.structs.replace(unsealed, digest=digest_of(unsealed))


def digest_of(entry: JournalEntry) -> str:
    """What `entry.digest` has to be. JSON has no bare line break, so that no two entries give the same bytes."""
    rest = msgspec.json.encode([entry.seq, entry.run, entry.at, entry.monotonic, entry.boot, entry.kind])
    return hashlib.sha256(b"\n".join((entry.previous.encode(), rest, bytes(entry.body)))).hexdigest()


def encode_body(body: Struct | Mapping[str, object]) -> bytes:
    """`body` as a JSON object with sorted keys. NaN and infinity, which JSON does not have, become null: not known.

    Raises JournalError where it is larger than LARGEST_BODY or holds what is no JSON.
    """
    try:
        encoded = msgspec.json.encode(dict(body) if isinstance(body, Mapping) else body, order="deterministic")
        # A `Raw` inside of it is taken as it is, so what came out is proven to be JSON.
        proven = msgspec.json.decode(encoded)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        reason = clean(str(error), 200)
        raise JournalError(f"this cannot be journaled: {reason}", next_step="give plain JSON") from error
    if not isinstance(proven, dict):
        raise JournalError("the body of an entry has to be an object", next_step="give fields with names")
    if len(encoded) > LARGEST_BODY:
        raise JournalError(
            f"the body of an entry has {len(encoded)} bytes, more than {LARGEST_BODY}",
            next_step="keep it as a file and journal the file's name",
        )
    return encoded


def chain_error(entry: JournalEntry, before: JournalEntry | None) -> str:
    """Why `entry` cannot stand after `before`; empty where it can."""
    seq, previous = (before.seq + 1, before.digest) if before else (1, BEGINNING)
    if entry.seq != seq:
        return f"{entry.seq} stands in its place"
    if entry.previous != previous:
        return "it follows another entry than the one before it"
    if entry.digest != digest_of(entry):
        return "its digest is not that of what it says"
    return ""
