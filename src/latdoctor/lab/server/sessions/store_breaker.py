"""Circuit breaker of the session store: after failures in a row it is not called for a while."""

from __future__ import annotations

import threading


class StoreBreaker:
    """Opens after so many failures in a row; then one call at a time tries whether the store answers again.

    Seconds of a monotonic clock. Safe from every thread. `failures` 0 switches it off.
    """

    def __init__(self, failures: int, open_seconds: float) -> None:
        self._lock = threading.Lock()
        self._failures = failures
        self._open_seconds = open_seconds
        self._in_a_row = 0
        self._open_until = float("-inf")
        self._opened = False

    def configure(self, failures: int, open_seconds: float) -> None:
        with self._lock:
            self._failures, self._open_seconds = failures, open_seconds

    def allows(self, now: float) -> bool:
        """Whether to call the store; while it is open, True for one probe each `open_seconds`."""
        with self._lock:
            if not self._opened or not self._failures:
                return True
            if now < self._open_until:
                return False
            self._open_until = now + self._open_seconds  # the next probe, should this one fail
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._in_a_row, self._opened = 0, False

    def failed(self, now: float) -> None:
        with self._lock:
            self._in_a_row += 1
            if self._failures and self._in_a_row >= self._failures:
                self._opened, self._open_until = True, now + self._open_seconds

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._opened and self._failures > 0
