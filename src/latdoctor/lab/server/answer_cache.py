"""Cache of the answers to frequent questions: by their exact or normalised text, for a time, and for one model version.

Requests of a conversation are not cached: their answer depends on its history. A share of the hits is computed as well
and compared, so that wrong answers show.
"""

from __future__ import annotations

import random
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec import Struct

from latdoctor.lab.server.config import AnswerCacheConfig

if TYPE_CHECKING:
    from latdoctor.lab.server.metrics import ServerMetrics  # which knows requests, and they know cached answers

_KEY_BYTES = 16
_ENTRY_BYTES = 200  # of an entry beside its texts, about
_SIGNS = re.compile(r"[\W_]+")


class Lookup(StrEnum):
    """How a look-up ended."""

    HIT = "hit"
    MISS = "miss"
    EXPIRED = "expired"
    OTHER_VERSION = "other-version"  # the entry is of another model version


class CachedAnswer(Struct, frozen=True):
    """An answer; `seconds` is what it took to compute, `stored` when: seconds of the server's monotonic clock."""

    intent: str
    score: float
    version: str
    seconds: float
    stored: float


def normalised(text: str) -> str:
    """`text` without case, signs, double spaces and compatibility forms: what does not change a question."""
    return _SIGNS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


class AnswerCache:
    """The least recently used answers are dropped first. Safe from every thread.

    `version` returns the model version in service, `clock` seconds of a monotonic clock.
    """

    def __init__(
        self,
        settings: AnswerCacheConfig,
        metrics: ServerMetrics,
        version: Callable[[], str],
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._version = version
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        self._bytes = 0
        counter = metrics.counter
        self._lookups = metrics.split_counter(
            "ref_answer_cache_lookups", "Questions looked up in the cache of answers", "result", tuple(Lookup)
        )
        self._checked = counter("ref_answer_cache_checked", "Answers of the cache that were computed as well")
        self._wrong = counter("ref_answer_cache_wrong", "Those of them that were another answer")
        self._saved = counter("ref_answer_cache_saved_seconds", "What the answers of hits took to compute before")

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """What the entries take, about."""
        return self._bytes

    def configure(self, settings: AnswerCacheConfig) -> None:
        with self._lock:
            if settings.mode != self._settings.mode:  # keys are of another kind, and `off` forgets
                self._entries.clear()
                self._bytes = 0
            self._settings = settings
            self._shrink()

    def look_up(self, text: str) -> CachedAnswer | None:
        """The answer to send; None where there is none, or where it is to be computed for a check."""
        settings = self._settings
        if settings.mode == "off":
            return None
        key = self._key(text)
        with self._lock:
            found, lookup = self._found(key)
        self._lookups.of(lookup).inc()
        if found is None or self._chance() < settings.check_share:
            return None
        self._saved.inc(found.seconds)
        return found

    def keep(self, text: str, answer: CachedAnswer) -> None:
        """Keeps a computed answer, and compares it with that of the cache, if there is one."""
        if self._settings.mode == "off" or answer.version != self._version():
            return
        key = self._key(text)
        with self._lock:
            before, _ = self._found(key)
            self._drop(key)
            self._entries[key] = answer
            self._bytes += _entry_bytes(answer)
            self._shrink()
        if before is not None:
            self._checked.inc()
            if before.intent != answer.intent:
                self._wrong.inc()

    def rewrite(self, change: Callable[[CachedAnswer], CachedAnswer]) -> None:
        """Changes every entry: for fault injection."""
        with self._lock:
            for key, answer in self._entries.items():
                self._entries[key] = change(answer)

    def _found(self, key: bytes) -> tuple[CachedAnswer | None, Lookup]:
        """Callers hold the lock."""
        entry = self._entries.get(key)
        if entry is None:
            return None, Lookup.MISS
        if self._clock() - entry.stored >= self._settings.ttl_s:
            self._drop(key)
            return None, Lookup.EXPIRED
        if self._settings.by_version and entry.version != self._version():
            self._drop(key)
            return None, Lookup.OTHER_VERSION
        self._entries.move_to_end(key)
        return entry, Lookup.HIT

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= _entry_bytes(entry)

    def _shrink(self) -> None:
        while len(self._entries) > self._settings.max_entries:
            self._drop(next(iter(self._entries)))

    def _key(self, text: str) -> bytes:
        kind = normalised(text) if self._settings.mode == "normalised" else text
        return blake2b(kind.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


def _entry_bytes(answer: CachedAnswer) -> int:
    return _ENTRY_BYTES + len(answer.intent) + len(answer.version)
