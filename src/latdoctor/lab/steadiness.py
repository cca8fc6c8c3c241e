"""The state of a server under its present load, and whether it has come back to an earlier one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from latdoctor.lab.pages import Between, look

# As for a whole run (see `outcome`): within twice the time of before, or of no account to anybody.
BACK = 2.0
NEGLIGIBLE = 0.05  # seconds
QUEUE = 8.0  # requests more than before


class State(Struct, frozen=True):
    """Means over one look: requests per second, seconds per request, requests that wait at its end."""

    rate: float
    latency: float | None
    queue: float

    @property
    def told(self) -> str:
        latency = "no request" if self.latency is None else f"{self.latency * 1000:.0f} ms a request"
        return f"{self.rate:.1f} requests/s, {latency}, {self.queue:.0f} waiting"


def state_of(addresses: Sequence[str], seconds: float) -> State:
    """The state of the servers at `addresses`, watched for so long. Raises OperationError where none answers."""
    bases = [address.rstrip("/").removesuffix("/metrics") for address in addresses]
    first = look(bases)
    time.sleep(seconds)
    between = Between(first, look(bases))
    return State(
        rate=between.rise("ref_requests_total") / seconds,
        latency=between.mean("ref_request_seconds"),
        queue=between.now("ref_queue_depth") or 0.0,
    )


def is_back(before: State, after: State) -> bool:
    """Whether `after` is as good as `before`; without any request nothing is slow."""
    if after.queue > before.queue + QUEUE:
        return False
    if after.latency is None or before.latency is None:
        return True
    return after.latency <= max(NEGLIGIBLE, BACK * before.latency)
