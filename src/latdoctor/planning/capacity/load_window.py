"""What one replica did in one step of a history: its load and its latency. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from latdoctor.evidence.model import Series

FEWEST = 20  # requests of a step: below that its quantiles say little
_COLD = 2  # steps after a replica has appeared: caches are cold, and the samples would spoil the model
_ARRIVALS = ("arrival.rate", "completion.rate")  # the first that is known
_NEEDED = ("latency.mean", "latency.p50", "latency.p95", "latency.p99")


class LoadWindow(Struct, frozen=True):
    """`seconds` before `at` (unix seconds). Rates per second, latencies in seconds.

    `in_flight`: requests running and waiting as the page shows them, `batch`: mean size of a batch; None: not shown.
    """

    replica: str
    at: float
    seconds: float
    rate: float
    mean: float
    p50: float
    p95: float
    p99: float
    errors: float = 0.0
    in_flight: float | None = None
    batch: float | None = None

    @property
    def requests(self) -> int:
        return round(self.rate * self.seconds)

    @property
    def concurrency(self) -> float:
        """Mean number of requests in the server, by Little's law."""
        return self.rate * self.mean

    def within(self, slo: float) -> float:
        """The share of requests answered within `slo` seconds, between the known quantiles on a logarithmic scale."""
        known = ((0.5, self.p50), (0.95, self.p95), (0.99, self.p99))
        if slo >= self.p99:
            return 1.0
        if slo <= self.p50:
            return 0.5 * slo / self.p50
        for (low, faster), (high, slower) in pairwise(known):
            if slo <= slower:
                part = math.log(slo / faster) / math.log(slower / faster) if slower > faster else 1.0
                return low + (high - low) * part
        return 0.99


def load_windows(series: Iterable[Series], seconds: float) -> tuple[LoadWindow, ...]:
    """The usable steps of all replicas, in the order of time: with enough requests, and not of a cold replica."""
    replicas: dict[str, dict[str, Series]] = {}
    for one in series:
        replicas.setdefault(one.subject, {})[one.signal] = one
    begins = [one.times[0] for by_signal in replicas.values() for one in by_signal.values() if one.times]
    first = min(begins, default=0.0)
    found = [window for name, one in replicas.items() for window in _of_replica(name, one, seconds, first)]
    return tuple(sorted(found, key=lambda one: (one.at, one.replica)))


def _of_replica(name: str, by_signal: Mapping[str, Series], seconds: float, first: float) -> Iterator[LoadWindow]:
    arrivals = next((by_signal[one] for one in _ARRIVALS if one in by_signal), None)
    if arrivals is None or any(one not in by_signal for one in _NEEDED):
        return
    values = {signal: dict(zip(one.times, one.values, strict=True)) for signal, one in by_signal.items()}
    cold = _cold(arrivals.times, seconds, first)
    for at, rate in zip(arrivals.times, arrivals.values, strict=True):
        mean, p50, p95, p99 = latencies = [values[signal].get(at, math.nan) for signal in _NEEDED]
        if at in cold or not rate * seconds >= FEWEST or not all(math.isfinite(one) and one > 0 for one in latencies):
            continue
        running, waiting = (values.get(one, {}).get(at) for one in ("requests.running", "queue.depth"))
        yield LoadWindow(
            name,
            at,
            seconds,
            rate,
            mean,
            p50,
            p95,
            p99,
            errors=values.get("error.rate", {}).get(at, 0.0),
            in_flight=None if running is None else running + (waiting or 0.0),
            batch=values.get("batch.size.mean", {}).get(at),
        )


def _cold(times: Sequence[float], seconds: float, first: float) -> frozenset[float]:
    """The first steps after a pause, or after a beginning that is later than that of the history."""
    found: list[float] = []
    left = _COLD if times and times[0] > first + seconds else 0
    for place, at in enumerate(times):
        if place and at - times[place - 1] > 1.5 * seconds:
            left = _COLD
        if left:
            found.append(at)
            left -= 1
    return frozenset(found)
