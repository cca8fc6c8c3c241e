"""Runs in a process of its own, with the stub as libnvidia-ml.so.1: `watch.py STATES WINDOW PID` writes what came.

STATES is a JSON file with a list of states of the driver; each step of the clock moves on to the next one. PID is a
number, "none", or "parent" for the process that started this one (whose GPU processes are then its descendants).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.nvml import collector as nvml


class SteppingClock:
    def __init__(self, states: list[dict[str, object]]) -> None:
        self.states = states
        self.time = 1_700_000_000.0
        self.write()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if len(self.states) > 1:
            self.states.pop(0)
        self.write()

    def write(self) -> None:
        lines = [f"{key} = {str(value).replace('SELF', str(os.getpid()))}\n" for key, value in self.states[0].items()]
        Path(os.environ["NVML_STUB"]).write_text("".join(lines), errors="surrogateescape")


def main() -> None:
    states, window, pid = sys.argv[1:]
    watched = {"none": None, "parent": os.getppid()}.get(pid, pid)
    request = CollectRequest(nvml=True, window=float(window), pid=None if watched is None else int(watched))
    collected = nvml.READER.collect(request, SteppingClock(json.loads(Path(states).read_text())))
    answer = {
        "artifacts": [artifact.read().decode() for artifact in collected.artifacts],
        "gaps": collected.gaps,
        "sights": nvml.READER.preflight(),
    }
    sys.stdout.buffer.write(msgspec.json.encode(answer))


main()
