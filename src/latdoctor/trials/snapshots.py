"""Reads everything that a live look reads, again and again for as long as a run lasts.

A look's collectors are asked for one moment at a time (a window of nothing), so that any span of the run can be cut out
of the snapshots later. Pages are read once a second and the processes twice, as a look of ten seconds does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from latdoctor.collect import COLLECTORS
from latdoctor.collect.look import SystemClock
from latdoctor.collect.source import Clock, Collected, Collector, Request
from latdoctor.evidence.bundle import Artifact
from latdoctor.trials.truth import TimedGap

HOST = "host"
INTERVAL = 1.0  # seconds between two snapshots of a source
INTERVALS = {HOST: 0.5}


@dataclass
class Watch:
    """What is being read, and what has been read so far. `aim` may be called at any time, from any thread."""

    clock: Clock
    request: Request | None = None
    artifacts: list[Artifact] = field(default_factory=list)
    gaps: list[TimedGap] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def aim(self, servers: Sequence[str], pid: int | None) -> None:
        """From now on these pages and this process are read."""
        pages = tuple(f"{server.rstrip('/')}/metrics" for server in servers)
        self.request = Request(servers=pages, pid=pid, host=True, window=0.0)

    def snapshot(self, collector: Collector) -> None:
        """Asks `collector` once for what is aimed at."""
        request = self.request
        if request is None or not collector.asked(request):
            return
        started = self.clock.now()
        self._keep(collector.collect(request, self.clock), request, started)

    def _keep(self, collected: Collected, request: Request, started: float) -> None:
        with self._lock:
            for artifact in collected.artifacts:
                self.artifacts.append(self._named(artifact, request))
            self.gaps += [TimedGap(started, gap) for gap in collected.gaps]

    def _named(self, artifact: Artifact, request: Request) -> Artifact:
        """Of a process its number is in the group; of a page, the group is that of its server throughout the run."""
        number = len(self.artifacts)
        if artifact.collector == HOST:
            return replace(artifact, name=f"{HOST}/{number:05d}.json", group=f"{HOST}-{request.pid}")
        place = self._places.setdefault(artifact.source, len(self._places) + 1)
        group = f"{place}-{artifact.group.partition('-')[2]}"
        return replace(artifact, name=f"{artifact.collector}/{group}-{number:05d}.prom", group=group)


@contextmanager
def watching(collectors: Sequence[Collector] = COLLECTORS, clock: Clock | None = None) -> Iterator[Watch]:
    """A Watch that reads until the context is left; what breaks a reader is raised then."""
    watch = Watch(clock or SystemClock())
    ended = threading.Event()
    probe = Request(servers=("http://127.0.0.1",), host=True)
    asked = [collector for collector in collectors if collector.asked(probe)]
    with ThreadPoolExecutor(max(1, len(asked))) as beside:
        readers: list[Future[None]] = [beside.submit(_read, watch, collector, ended) for collector in asked]
        try:
            yield watch
        finally:
            ended.set()
    for reader in readers:
        reader.result()


def _read(watch: Watch, collector: Collector, ended: threading.Event) -> None:
    """One snapshot at each turn; a source that is slow misses turns."""
    interval = INTERVALS.get(collector.name, INTERVAL)
    due = time.monotonic()
    while not ended.wait(max(0.0, due - time.monotonic())):
        watch.snapshot(collector)
        due = max(due + interval, time.monotonic())
