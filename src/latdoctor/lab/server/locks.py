"""The one lock that request threads and the worker share, and how long each waited for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from types import TracebackType


class TimedLock:
    """A mutual exclusion lock that reports every wait in seconds, zero where it was free."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._lock = threading.Lock()
        self._observe = observe

    def __enter__(self) -> None:
        if self._lock.acquire(blocking=False):
            self._observe(0.0)
            return
        started = perf_counter()
        self._lock.acquire()
        self._observe(perf_counter() - started)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
