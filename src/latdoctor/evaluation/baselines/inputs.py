"""The metric columns of a recorded run, before and during the incident, normalised for the baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

LEAST = 3  # known values before and during the incident: fewer give no spread

# The latency to explain: the first of these that is present.
LATENCIES = (
    "client.latency.p99",
    "latency.p99",
    "client.latency.p95",
    "latency.p95",
    "client.latency.mean",
    "latency.mean",
    "latency.p50",
)


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """One signal of one subject: its known values before and during the incident, scaled to ±1 by the largest."""

    name: str
    before: Values
    incident: Values

    @property
    def signal(self) -> str:
        return signal_of(self.name)


def signal_of(name: str) -> str:
    """`queue.depth server/a` → `queue.depth`."""
    return name.partition(" ")[0]


def columns(signals: Mapping[str, tuple[Values, Values]]) -> Iterator[MetricColumn]:
    """The columns with enough known values before and during the incident, in the order of `signals`."""
    import numpy as np

    for name, (before, incident) in signals.items():
        known = [values[np.isfinite(values)] for values in (before, incident)]
        if min(len(values) for values in known) < LEAST:
            continue
        largest = max(float(np.max(np.abs(values))) for values in known)
        first, second = (values / (largest or 1.0) for values in known)
        yield MetricColumn(name, first, second)


def target(signals: Mapping[str, tuple[Values, Values]]) -> str | None:
    """The latency column to explain; of several subjects the one with the most values."""
    import numpy as np

    for latency in LATENCIES:
        own = [name for name in signals if signal_of(name) == latency]
        known = {name: sum(int(np.isfinite(values).sum()) for values in signals[name]) for name in own}
        if known and max(known.values()) >= 2 * LEAST:
            return max(sorted(known), key=lambda name: known[name])
    return None


def is_latency(name: str) -> bool:
    """Whether a column is the latency of whole requests, which is to be explained and explains nothing."""
    return signal_of(name).startswith(("latency.", "client.latency."))
