"""One line of an access log as typed values, whatever its form."""

from __future__ import annotations

import re
from dataclasses import dataclass

# What asks whether a server is alive, or for its metrics: answered without the model, so it is no request of a client.
_PROBE = re.compile(
    r"/(?:-/)?(?:healthz?|livez?|readyz?|ready|live|alive|ping|metrics|version|favicon\.ico"
    r"|health_check|health[-_]generate|v2/health/(?:live|ready))/?(?:\?.*)?"
)

# Statuses of requests that the server or what is behind it failed: the same ones that the metrics pages count.
_TOO_MANY = 429
_TIMED_OUT = frozenset({408, 504})
_CLIENT_LEFT = 499  # nginx's own


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time as a line tells it. `fine`: to less than a second; `zoned`: with its zone, else UTC was assumed."""

    time: float  # unix seconds UTC
    fine: bool
    zoned: bool


@dataclass(frozen=True, slots=True)
class Duration:
    """How long a request took, seconds, and how finely that is told (1e-3: to the millisecond)."""

    seconds: float
    step: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A request. `came` and `went` are its entry and exit; None for what the line does not tell."""

    came: Stamp | None = None
    went: Stamp | None = None
    took: Duration | None = None
    status: int | None = None
    path: str = ""
    request_id: str = ""
    replica: str = ""
    stages: tuple[tuple[str, float], ...] = ()  # seconds of its time in each part of the way, where the line tells
    unit_untold: bool = False  # a number that may be its duration stands there without a unit

    @property
    def is_probe(self) -> bool:
        return bool(self.path) and _PROBE.fullmatch(self.path) is not None

    @property
    def failed(self) -> bool:
        """The service did not answer it: shed, failed, timed out, or (status 0) never answered at all."""
        return self.status is not None and (self.status in (0, _TOO_MANY) or self.status >= 500)

    @property
    def left(self) -> bool:
        """Its client went away before the answer."""
        return self.status == _CLIENT_LEFT

    @property
    def counts_as_latency(self) -> bool:
        """Answered, or waited for in vain: how long a refusal took tells nothing of how long an answer takes."""
        return self.status is None or 100 <= self.status < 400 or self.status in _TIMED_OUT
