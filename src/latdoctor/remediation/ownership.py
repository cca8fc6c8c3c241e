"""Whether a value that equals ours is ours: the write that set it, compared with what the target shows now.

A write of ours is journaled with the snapshots of its resource before and after it. The versions of all writes of ours
to a resource form a chain. A version that continues the chain was not touched by another client. A gap in the chain is
a write of another client, or one of ours whose response was never journaled; docs/remediation.md, "Whose value it is",
has the table of decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct


class Snapshot(Struct, frozen=True, omit_defaults=True):
    """A resource at one moment. An empty text is unknown."""

    version: str = ""  # the ETag
    document: str = ""  # digest of the whole document
    instance: str = ""  # the process that served it; another one after a restart


class Write(Struct, frozen=True):
    """A write of ours. After a lost response, `after` is what the next read showed."""

    before: Snapshot
    after: Snapshot


class NotOurs(StrEnum):
    """Why a value that equals ours is left as it is; or why there is none any more."""

    SET_AGAIN = "set-again"
    RESTARTED = "restarted"
    ENDED = "ended"

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    NotOurs.SET_AGAIN: "another client has set the same value since",
    NotOurs.RESTARTED: "the server was restarted since, so the value is from its configuration",
    NotOurs.ENDED: "the process has ended since",
}


def not_ours(write: Write | None, later: Sequence[Write | None], now: Snapshot) -> NotOurs | None:
    """Why the values that `write` set, and that the resource still has, are no longer ours; None if they may be.

    `later`: the writes of ours to the same resource after it, in their order. A write is None if what it did is not
    known: then it may explain any new version.
    """
    if write is None:
        return None
    if write.after.instance and now.instance and write.after.instance != now.instance:
        return NotOurs.RESTARTED
    last: Snapshot | None = write.after
    for one in [*later, Write(now, now)]:
        if one is None:
            last = None
            continue
        if last is not None and _is_same_document_written_again(last, one.before):
            return NotOurs.SET_AGAIN
        last = one.after
    return None


def _is_same_document_written_again(one: Snapshot, other: Snapshot) -> bool:
    """Whether another client has written between the two, and nothing has changed: it has set a value once more.

    If the documents differ, it has set another field. Whether it has set ours too is not visible in one version for
    the whole document.
    """
    versions, documents = (one.version, other.version), (one.document, other.document)
    return all((*versions, *documents)) and versions[0] != versions[1] and documents[0] == documents[1]


def document_digest(values: Mapping[str, object], rest: str = "") -> str:
    """The digest of a document with these fields, 250 being 250.0. `rest` stands for what is not among them."""
    normal = {name: int(one) if isinstance(one, float) and one.is_integer() else one for name, one in values.items()}
    return hashlib.sha256(msgspec.json.encode((normal, rest), order="sorted")).hexdigest()[:32]
