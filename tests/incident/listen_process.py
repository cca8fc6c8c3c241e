"""`latdoctor listen` as a process, and a metrics page that tests can change."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.store import Journal

PATIENCE = 60.0  # seconds; what is waited for comes within a few


@dataclass
class Listener:
    """A running listener. `said` are the lines of its stderr so far; `heard` is told of each, and of their `end`."""

    process: subprocess.Popen[str]
    state: Path
    url: str = ""
    said: list[str] = field(default_factory=list)
    end: bool = False
    heard: threading.Condition = field(default_factory=threading.Condition)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return incidents_in(Journal.reading(self.state / "journal.sqlite").entries())


@contextmanager
def listener(folder: Path, *options: str, **environment: str) -> Iterator[Listener]:
    """Ends it by SIGTERM; whoever killed it before has its code in `process.returncode`."""
    state = folder / "state"
    process = subprocess.Popen(
        [sys.executable, "-m", "latdoctor", "listen", "--listen", "127.0.0.1:0", *options],
        env={**os.environ, "LATDOCTOR_STATE": str(state), "XDG_CONFIG_HOME": str(folder / "none"), **environment},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Listener(process, state)
    hearing = threading.Thread(target=_hear, args=(running,))
    hearing.start()
    try:
        with running.heard:
            assert running.heard.wait_for(lambda: bool(running.url) or running.end, PATIENCE)
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE)
        hearing.join()
        assert process.stdout
        process.stdout.close()


def _hear(running: Listener) -> None:
    assert running.process.stderr
    with running.process.stderr as lines:
        for line in lines:
            with running.heard:
                running.said.append(line.rstrip("\n"))
                found = re.search(r"listening for alerts at (http://\S+);", line)
                if found:
                    running.url = found[1]
                running.heard.notify_all()
    with running.heard:
        running.end = True
        running.heard.notify_all()


def until(holds: Callable[[], bool], running: Listener) -> None:
    """For what the listener says once it has journaled it: asks with each line that it says."""
    with running.heard:
        running.heard.wait_for(lambda: holds() or running.end, PATIENCE)
        assert holds(), f"it did not come about: {running.said}"


def comes_about(holds: Callable[[], bool], every: float = 0.2) -> bool:
    """For samples, of which nothing is said: asks every so many seconds, for as long as PATIENCE."""
    ends = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(every)
    return True


def until_journaled(holds: Callable[[], bool], running: Listener) -> None:
    assert comes_about(holds), f"it did not come about: {running.said}"


@dataclass
class Page:
    """A reference server's page that counts on with each look: so many answers fast and slow between two of them."""

    fast: int = 0
    slow: int = 0
    waiting: int = 0
    each: tuple[int, int] = (400, 0)
    url: str = ""

    def content(self) -> bytes:
        self.fast += self.each[0]
        self.slow += self.each[1]
        counts = (self.fast, self.fast, self.fast + self.slow, self.fast + self.slow)
        labels = 'replica="0",backend="cpu"'
        lines = [
            f'ref_request_seconds_bucket{{{labels},le="{bound}"}} {count}'
            for bound, count in zip(("0.1", "0.5", "2", "+Inf"), counts, strict=True)
        ]
        lines += [
            f"ref_request_seconds_count{{{labels}}} {counts[-1]}",
            f"ref_request_seconds_sum{{{labels}}} {self.fast * 0.05 + self.slow * 1.5}",
            f"ref_arrivals_total{{{labels}}} {counts[-1]}",
            f'ref_requests_total{{{labels},status="200"}} {counts[-1]}',
            f'ref_requests_total{{{labels},status="503"}} 0',
            f"ref_queue_depth{{{labels}}} {self.waiting}",
        ]
        return ("\n".join(lines) + "\n").encode()


@contextmanager
def paged(page: Page) -> Iterator[Page]:
    """Serves the page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = page.content()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        page.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        try:
            yield page
        finally:
            server.shutdown()
            serving.join()
