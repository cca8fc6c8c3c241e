"""Counters of session state: where the history of requests came from, and calls to the shared store."""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.lab.server.metrics import ServerMetrics
from latdoctor.lab.server.sessions.redis_store import StoreFailure, StoreFigures
from latdoctor.lab.server.sessions.session_levels import OpenSession, SessionLevel
from latdoctor.load.mix import SECONDS

LEVELS = tuple(SessionLevel)
STORED = (SessionLevel.PROCESS, SessionLevel.REDIS)

# Of the store itself, by the fields of StoreFigures; absent where there is no store or it does not answer.
STORE_GAUGES: Mapping[str, str] = {
    "ref_session_store_up": "1: the shared store of sessions answers, 0: it does not",
    "ref_session_store_used_bytes": "Memory that the store uses",
    "ref_session_store_limit_bytes": "Memory that the store may use; 0: no limit",
    "ref_session_store_keys": "Keys in the store",
    "ref_session_store_uptime_seconds": "Since the store started",
    "ref_session_store_replica": "1: the store is a replica that was not promoted",
}
STORE_COUNTERS: Mapping[str, str] = {
    "ref_session_store_evicted_total": "Keys that the store evicted to stay below its limit",
    "ref_session_store_expired_total": "Keys of the store whose time to live ended",
    "ref_session_store_failovers_total": "Times a promoted replica took the store's place",
}


class SessionMetrics:
    """The SessionObserver of a server. Safe from every thread."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        split, counter = metrics.split_counter, metrics.counter
        self._lookups = split("ref_session_lookups", "Requests of a conversation, by the level its history came from",
                              "level", LEVELS)  # fmt: skip
        self._stale = split(
            "ref_session_stale", "States that lacked turns of the conversation or were not of it", "level", STORED
        )
        self._failures = split(
            "ref_session_store_errors", "Calls to the shared store that failed", "reason", tuple(StoreFailure)
        )
        self._lost_writes = counter(
            "ref_session_store_lost_writes", "States that the store confirmed and gave an older one for"
        )
        self._skipped = counter("ref_session_store_skipped", "Calls to the store that its breaker kept back")
        self._superseded = counter("ref_session_superseded", "Turns that were written after a later one")
        self._seconds = metrics.histogram("ref_session_store_seconds", "One call to the shared store", SECONDS)
        self._read = counter("ref_session_store_read_bytes", "State read from the store")
        self._written = counter("ref_session_store_written_bytes", "State sent to the store")
        self._whole = counter("ref_session_store_whole_bytes", "What sending the whole state each time would have sent")
        self._reused = counter("ref_session_reused_tokens", "Tokens of history that a store had")
        self._recomputed = counter("ref_session_recomputed_tokens", "Tokens of history made again from transcripts")

    def opened(self, session: OpenSession) -> None:
        self._lookups.of(session.level).inc()
        hit = session.level in STORED
        (self._metrics.session_hits if hit else self._metrics.session_misses).inc()
        self._recomputed.inc(session.recomputed_tokens)
        self._reused.inc(len(session.tokens) - session.recomputed_tokens)

    def stale(self, level: SessionLevel) -> None:
        self._stale.of(level).inc()

    def skipped(self) -> None:
        self._skipped.inc()

    def superseded(self) -> None:
        self._superseded.inc()

    def called(self, seconds: float, failure: StoreFailure | None) -> None:
        self._seconds.observe(seconds)
        if failure is not None:
            self._failures.of(failure).inc()

    def lost_write(self) -> None:
        self._lost_writes.inc()

    def moved(self, *, read: int = 0, written: int = 0, whole: int = 0) -> None:
        self._read.inc(read)
        self._written.inc(written)
        self._whole.inc(whole)


def store_values(figures: StoreFigures | None) -> dict[str, float]:
    """Samples of a store that answers; None: it does not."""
    if figures is None:
        return {"ref_session_store_up": 0}
    return {
        "ref_session_store_up": 1,
        "ref_session_store_used_bytes": figures.used_bytes,
        "ref_session_store_limit_bytes": figures.limit_bytes,
        "ref_session_store_keys": figures.keys,
        "ref_session_store_uptime_seconds": figures.uptime_seconds,
        "ref_session_store_replica": figures.is_replica,
        "ref_session_store_evicted_total": figures.evicted,
        "ref_session_store_expired_total": figures.expired,
        "ref_session_store_failovers_total": figures.failovers,
    }
