"""The instant server as a process on its own processor, and what it served."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from bench.harness import ROOT, SOURCE


class ServerLog(Struct, frozen=True):
    """What the server counted: bytes of the application, processor seconds."""

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    connections: int = 0
    cpu_s: float = 0.0


class InstantServer:
    """A running server; `log` is filled when it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.address, self.log = process, f"http://127.0.0.1:{port}", ServerLog()


@contextmanager
def serving(processor: int | None) -> Iterator[InstantServer]:
    """The server, on `processor` alone unless it is None."""
    pinned = [] if processor is None else ["--processor", str(processor)]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.load_rate.instant_server", *pinned],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}"},
    )
    assert process.stdout is not None
    with process:
        server = InstantServer(process, int(process.stdout.readline()))
        try:
            yield server
        finally:
            process.terminate()
            server.log = msgspec.json.decode(process.stdout.readline(), type=ServerLog)
