"""Waiting for what another process does and does not report: checked again until a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_EVERY = 0.05  # seconds


def comes_about(holds: Callable[[], bool], within: float, every: float = _EVERY) -> bool:
    """Whether `holds` becomes true within so many seconds."""
    pause = threading.Event()
    ends = time.monotonic() + within
    while not holds():
        if time.monotonic() > ends:
            return False
        pause.wait(every)
    return True
