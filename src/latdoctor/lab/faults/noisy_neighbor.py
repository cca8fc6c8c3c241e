"""Noisy neighbor: processes that use the machine's CPUs or disk for a limited time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

_BLOCK = b"\0" * (1 << 20)
_CHECK_EVERY = 10_000  # iterations between two readings of the clock
_MOST_WRITTEN = 64 << 20  # bytes after which the file is overwritten, so that the disk does not fill


@contextmanager
def noisy_neighbors(resource: str, processes: int, lifetime: float) -> Iterator[None]:
    """Runs `processes` that use `resource` (cpu or io) for as long as the context, at most `lifetime` seconds."""
    command = [sys.executable, "-m", "latdoctor.lab.faults.noisy_neighbor", resource, str(lifetime)]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]  # noqa: S603 — our own interpreter and module
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def burn(seconds: float) -> None:
    """Uses one CPU."""
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        for number in range(_CHECK_EVERY):
            total += number * number


def write_and_sync(seconds: float) -> None:
    """Writes to a temporary file and waits for the disk after each block."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < end:
            if file.tell() >= _MOST_WRITTEN:
                file.seek(0)
            file.write(_BLOCK)
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    {"cpu": burn, "io": write_and_sync}[sys.argv[1]](float(sys.argv[2]))
