"""The state of one server as its metrics page shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from latdoctor.lab.server import vitals
from latdoctor.lab.server.memory.pool import MemoryStats
from latdoctor.lab.server.worker import Usage

if TYPE_CHECKING:
    from latdoctor.lab.server.parts import Parts


class ServerState:
    """Read on the page's own thread: takes no lock that requests hold for long."""

    def __init__(self, parts: Parts, version: str, clock: Callable[[], float]) -> None:
        self._parts = parts
        self._version = version
        self._clock = clock
        self._began = clock()
        self._began_unix = time.time()

    def info(self) -> dict[str, str]:
        model = self._parts.models.main
        return {
            "version": self._version,
            "dtype": model.precision,
            "attention": model.settings.attention,
            "model_version": model.settings.version,
        }

    def memory(self) -> MemoryStats:
        return self._parts.brain.pool.stats()

    def usage(self) -> Usage:
        return self._parts.engine.usage

    def figures(self) -> dict[str, float | None]:
        parts, now = self._parts, self._clock()
        book = parts.engine.book
        compiles, compile_seconds = parts.brain.compiles()
        return {
            "ref_start_time_seconds": self._began_unix,
            "ref_uptime_seconds": now - self._began,
            "ref_queue_depth": book.depth,
            "ref_queue_tokens": book.tokens,
            "ref_queue_oldest_age_seconds": book.oldest_age(now),
            "ref_breaker_open": parts.governance.breaker.is_open(now),
            "ref_process_threads": vitals.threads(),
            "ref_torch_threads": parts.counts.torch_threads or None,
            "ref_rss_bytes": vitals.resident_bytes(),
            "ref_sessions": len(parts.sessions),
            "ref_compiles_total": compiles,
            "ref_compile_seconds_total": compile_seconds,
            "ref_process_cpu_seconds_total": time.process_time(),
            "ref_worker_restarts_total": parts.engine.restarts,
        }
