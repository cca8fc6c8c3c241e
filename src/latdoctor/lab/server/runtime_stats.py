"""Garbage collector pauses, event loop lag, memory and threads of this process."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

BEAT = 0.05  # seconds between two heartbeats


_STATM = Path("/proc/self/statm")


_TASKS = Path("/proc/self/task")


class GcPauses:
    """Reports each pause of the collector in seconds; it stops every thread that runs Python."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._began: float | None = None

    def start(self) -> None:
        gc.callbacks.append(self._on_gc)

    def stop(self) -> None:
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _on_gc(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._began = perf_counter()
        elif self._began is not None:
            self._observe(perf_counter() - self._began)
            self._began = None


async def heartbeat(observe_lag: Callable[[float], None], beat: Callable[[], None]) -> None:
    """Beats for ever, and reports how late the event loop woke it. `beat` must not block."""
    while True:
        began = perf_counter()  # not the loop's own clock: uvloop's has whole milliseconds
        await asyncio.sleep(BEAT)
        observe_lag(max(0.0, perf_counter() - began - BEAT))
        beat()


def resident_bytes() -> float | None:
    """Resident memory of this process (proc(5), statm); None where there is no /proc."""
    try:
        return float(int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return None


def threads() -> float | None:
    """Threads of this process, those of C libraries included; None where there is no /proc."""
    try:
        return float(len(list(_TASKS.iterdir())))
    except OSError:
        return None
