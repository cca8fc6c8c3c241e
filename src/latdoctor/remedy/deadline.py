"""A moment by which something must have ended, and pauses between tries that keep to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

PAUSE = 0.2  # seconds between two tries


@dataclass(frozen=True, slots=True)
class Deadline:
    """`at` by `clock`, monotonic seconds. `sleep` is what a test replaces. Where `stop` says why, no time is left."""

    at: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    stop: Callable[[], str] = lambda: ""

    @classmethod
    def after(
        cls, seconds: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> Deadline:
        return cls(clock() + seconds, clock, sleep)

    @property
    def left(self) -> float:
        """Seconds; 0 where it has passed."""
        return 0.0 if self.stop() else max(0.0, self.at - self.clock())

    def pause(self, seconds: float = PAUSE) -> bool:
        """Waits before another try; False at once where there is no time for one."""
        if self.left <= seconds:
            return False
        self.sleep(seconds)
        return True
