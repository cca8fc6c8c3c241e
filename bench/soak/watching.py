"""Observes a running server: its memory, threads and files from /proc, its metrics page, its output."""

from __future__ import annotations

import os
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

_SAMPLE = re.compile(r"^(ref_\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_COMMON = frozenset({"replica", "backend"})
_PATIENCE = 10.0  # seconds a metrics page may take on a busy machine


class Sample(Struct, frozen=True):
    """One sample: seconds since the first, resident bytes, threads, open files."""

    at: float
    rss: int
    threads: int
    files: int


class Page:
    """One snapshot of the metrics page; missing counters are 0."""

    def __init__(self, text: str) -> None:
        self._values: dict[tuple[str, str], float] = {}
        for name, labels, value in _SAMPLE.findall(text):
            own = [each for label, each in re.findall(r'(\w+)="([^"]*)"', labels) if label not in _COMMON]
            self._values[name, ",".join(own)] = float(value)

    def __call__(self, name: str, label: str = "") -> float:
        return self._values.get((name, label), 0.0)

    def split(self, name: str) -> dict[str, int]:
        """The counter `name` by its own label."""
        return {label: int(value) for (each, label), value in self._values.items() if each == name}


def page(url: str) -> Page:
    """Raises OSError where the server does not answer."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=_PATIENCE) as answer:  # noqa: S310 - our own server
        return Page(answer.read().decode())


def rise(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The increase of each counter that has one."""
    return {name: value - before.get(name, 0) for name, value in after.items() if value > before.get(name, 0)}


def sample(pid: int, since: float) -> Sample:
    """Sample the process. Raises OSError if it does not exist."""
    of = Path("/proc") / str(pid)
    resident = int((of / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    threads, files = (len(list((of / what).iterdir())) for what in ("task", "fd"))
    return Sample(time.monotonic() - since, resident, threads, files)


@contextmanager
def output_of(pid: int) -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns the output lines of a process so far, also after its end."""
    with (Path("/proc") / str(pid) / "fd" / "1").open("rb") as file:

        def lines() -> list[str]:
            file.seek(0)
            return file.read().decode(errors="replace").splitlines()

        yield lines


class Watch:
    """Samples a server on a thread until the context exits."""

    def __init__(self, url: str, pid: int, *, every: float, page_every: float) -> None:
        self.samples: list[Sample] = []
        self.most_sessions = 0
        self.deepest_queue = 0
        self.pages = 0
        self.unread: list[str] = []  # why a page could not be read
        self._url, self._pid, self._every, self._page_every = url, pid, every, page_every

    @contextmanager
    def running(self) -> Iterator[None]:
        since = time.monotonic()

        def sample_until(end: threading.Event) -> None:
            while not end.wait(self._every):
                self.samples.append(sample(self._pid, since))

        def read(end: threading.Event) -> None:
            while not end.wait(self._page_every):
                self._read()

        with beside(sample_until), beside(read):
            yield

    def _read(self) -> None:
        try:
            current = page(self._url)
        except OSError as error:
            self.unread.append(str(error))
            return
        self.pages += 1
        self.most_sessions = max(self.most_sessions, int(current("ref_sessions")))
        self.deepest_queue = max(self.deepest_queue, int(current("ref_queue_depth")))


@contextmanager
def beside(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `run` on a thread; leaving the context sets its event and raises its exception."""
    end = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(run, end)
        try:
            yield
        finally:
            end.set()
        done.result()
