"""What a method gets that knows nothing of latdoctor: the series as they were scraped, under their own names.

A counter as its growth per second, a histogram as its mean and how many it counted per second, a gauge as it stands;
beside them what the other sources say (the host's files). Nothing is joined with anything else: the ratios, quantiles,
slopes and comparisons of replicas that latdoctor makes of these series are its own work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

LEAST = 3  # known values on either side: of fewer no spread can be told

# Which column is the latency that people suffer from: the first of these that is shown.
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
    """One signal of one subject: its known values before the incident and in it, over the largest of them all.

    So no value is beyond ±1, and no unit decides anything.
    """

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
    """The columns of which enough is known before and in the incident, in the order of `signals`."""
    import numpy as np

    for name, (before, incident) in signals.items():
        known = [values[np.isfinite(values)] for values in (before, incident)]
        if min(len(values) for values in known) < LEAST:
            continue
        largest = max(float(np.max(np.abs(values))) for values in known)
        first, second = (values / (largest or 1.0) for values in known)
        yield MetricColumn(name, first, second)


def target(signals: Mapping[str, tuple[Values, Values]]) -> str | None:
    """The column of the latency that is to be explained; of several subjects the one that is known longest."""
    import numpy as np

    for wanted in LATENCIES:
        own = [name for name in signals if signal_of(name) == wanted]
        known = {name: sum(int(np.isfinite(values).sum()) for values in signals[name]) for name in own}
        if known and max(known.values()) >= 2 * LEAST:
            return max(sorted(known), key=lambda name: known[name])
    return None


def is_latency(name: str) -> bool:
    """Whether a column is a latency of requests as a whole: what is to be explained, and no explanation."""
    return signal_of(name).startswith(("latency.", "client.latency."))
