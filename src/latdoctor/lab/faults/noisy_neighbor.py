"""Noisy neighbor: processes that use the machine's CPUs or disk for a limited time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from latdoctor.lab.faults.types import NeighborFault

_BLOCK = b"\0" * (1 << 20)
_CHECK_EVERY = 10_000  # turns of the burner between two readings of the clock
_MOST_WRITTEN = 64 << 20  # the file starts anew after this much, so that the disk does not fill


@contextmanager
def neighbours(fault: NeighborFault) -> Iterator[None]:
    """`fault.processes` of them for as long as the context, and never longer than their lifetime."""
    command = [sys.executable, "-m", "latdoctor.lab.faults.noisy_neighbor", fault.takes, str(fault.lifetime)]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(fault.processes)]  # noqa: S603 — our own interpreter and module
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def burn(seconds: float) -> None:
    """Takes one processor."""
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        for turn in range(_CHECK_EVERY):
            total += turn * turn


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
