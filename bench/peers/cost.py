"""The server's own cost of a request: everything but the model, which is replaced by one that answers immediately.

Each server gets the same open-loop load of the same mix, so it parses the same bodies, makes the same tokens and
frames, and queues and batches by its own rules. The cost is the processor time of all its processes during that load,
less what they use in as many seconds without any, over the requests.
"""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import Struct

from bench.peers.servers import Running, Setting
from bench.peers.trials import loaded

RATE = 50.0  # a second: below what any of them sustains with the model


class Cost(Struct, frozen=True):
    """`cpu_per_request` and `p50` in seconds: the processor time and the latency that it adds.
    `idle` is the share of a processor that the server uses without requests."""

    setting: Setting
    cpu_per_request: float
    p50: float
    idle: float


def cost(setting: Setting, programs: Path, seconds: float) -> Cost:
    """The cost of `setting` with the null model. Raises OperationError if the server or the generator fails."""
    with Running(setting, programs) as server:
        server.wait_ready()
        loaded(server, RATE, 2.0, seed=1)
        before, since = server.cpu_seconds(), time.monotonic()
        time.sleep(seconds / 2)
        idle = (server.cpu_seconds() - before) / (time.monotonic() - since)
        run = loaded(server, RATE, seconds, seed=2)
        spare = idle * (seconds + 2.0) / max(1.0, RATE * (seconds + 2.0))
        return Cost(setting, max(0.0, run.cpu_per_request - spare), run.p50 or 0.0, idle)
