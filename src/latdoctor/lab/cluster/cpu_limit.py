"""A CPU limit that is really enforced, as the kernel's CFS bandwidth control does: the processes of a container stand
still from the moment in which they have used their quota until the period of 100 ms is over.

It stops and continues them by signals, which needs no control group and no privilege.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from threading import Event, Thread

from latdoctor.lab.cluster.container_process import ContainerProcess

PERIOD = 0.1  # seconds, the kernel's default
_TICK = 0.004  # seconds between two looks at what was used


@dataclass(slots=True)
class CpuCounters:
    """As in cpu.stat: periods in which it ran, those in which it was throttled, and seconds of standing still."""

    periods: int = 0
    throttled_periods: int = 0
    throttled: float = 0.0


class CpuLimit:
    """Limits a container's processes to `cpus` processors until `close`."""

    def __init__(self, process: ContainerProcess, cpus: float) -> None:
        self._process, self._quota = process, cpus * PERIOD
        self.counters = CpuCounters()
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"CPU limit of {process.pid}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The processes go on without a limit, where they still run."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        debt = 0.0  # used beyond the quota of a period, which the kernel takes from the next
        before = self._process.processor_time()
        while not self._stop.is_set():
            debt = max(0.0, debt - self._quota)
            ends = time.monotonic() + PERIOD
            ran, stopped_at = False, 0.0
            while (now := time.monotonic()) < ends:
                if not stopped_at:
                    used = self._process.processor_time()
                    ran, debt, before = ran or used > before, debt + max(0.0, used - before), used
                    if debt >= self._quota:
                        stopped_at = now
                        self._process.send(signal.SIGSTOP)
                if self._stop.wait(min(_TICK, ends - now) if not stopped_at else ends - now):
                    break
            if stopped_at:
                self._process.send(signal.SIGCONT)
                self.counters.throttled_periods += 1
                self.counters.throttled += time.monotonic() - stopped_at
            self.counters.periods += ran or bool(stopped_at)
