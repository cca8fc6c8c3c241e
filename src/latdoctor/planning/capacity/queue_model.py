"""A queueing model of a server whose speed depends on how many requests it works on at a time.

Measured with a closed loop: with n requests in flight the server answers X(n) per second, by batching or by several
processors. The model works on at most `width` requests at a time, either sharing that speed among them or in batches,
and lets the others wait in order of arrival. Sharing with a width of 1 is a plain queue, with an infinite one processor
sharing. Discipline and width are those that reproduce the latencies of the closed loops best. Open arrivals are then
simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from random import Random

import numpy as np
from msgspec import Struct

from latdoctor.load.latencies import quantile
from latdoctor.planning.capacity.simulated_server import BatchServer, SharedServer, SimulatedServer

_REQUESTS = 10_000  # of a simulation: a hundred are beyond P99
_WARM_UP = 0.1  # share of them that fills the queue
_CLOSED = 3_000
_ALIKE = 0.02  # models whose misfits differ by less fit equally well; the narrowest of them is taken
_STEPS = 14  # halvings of a search for a rate: to 0.01 % of the highest


SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


class ClosedLevel(Struct, frozen=True):
    """A closed loop with `in_flight` requests: answers per second, and the latency quantiles of `SHARES` in seconds."""

    in_flight: int
    rate: float
    quantiles: tuple[float, ...]


class Discipline(StrEnum):
    """How a server works on several requests at a time."""

    SHARING = "sharing"
    BATCHES = "batches"


class LimitSearch(Struct, frozen=True):
    """How a limit is searched for: by `steps` halvings up to `highest` times the capacity, with so many requests."""

    seed: int = 0
    requests: int = _REQUESTS
    steps: int = _STEPS
    highest: float = 1.05  # a short simulation may end before the queue is long


LIMIT_SEARCH = LimitSearch()


class QueueModel(Struct, frozen=True):
    """`speeds`: X(n) at each measured n, between which it is interpolated; it stays the same above the last.

    `sizes`: work of requests relative to their mean. `width`: requests that the server works on at a time;
    None: all of them, for which JSON has no number.
    """

    speeds: tuple[tuple[int, float], ...]
    sizes: tuple[float, ...]
    width: float | None
    discipline: Discipline = Discipline.SHARING

    @property
    def capacity(self) -> float:
        """Requests per second that the server answers at most."""
        return max(rate for _, rate in self.speeds)

    @property
    def most(self) -> float:
        """The width as a number."""
        return math.inf if self.width is None else self.width

    def speed(self, working: int) -> float:
        counts, rates = zip(*self.speeds, strict=True)
        return float(np.interp(working, counts, rates))

    def server(self) -> SimulatedServer:
        """The simulated server, with nothing to do."""
        kind = BatchServer if self.discipline is Discipline.BATCHES else SharedServer
        return kind(self.most, self.speed)

    def latencies(self, rate: float, seed: int = 0, requests: int = _REQUESTS) -> list[float]:
        """Latencies in ascending order with Poisson arrivals of `rate` per second. Seconds."""
        rng = Random(seed)  # noqa: S311  # a repeatable simulation, no secret
        server = self.server()
        took: list[float] = []
        at = 0.0
        for _ in range(requests):
            at += rng.expovariate(rate)
            took += server.advance(at)
            server.arrive(rng.choice(self.sizes))
        took += server.advance(math.inf)
        return sorted(took[int(requests * _WARM_UP) :])

    def attainment(self, rate: float, slo: float, seed: int = 0, requests: int = _REQUESTS) -> float:
        """The share of requests within `slo` seconds."""
        took = self.latencies(rate, seed, requests)
        return sum(one <= slo for one in took) / len(took)

    def limit(self, slo: float, wanted: float, search: LimitSearch = LIMIT_SEARCH) -> float:
        """The highest rate at which the share `wanted` of requests is within `slo` seconds; 0: no rate."""
        low, high = 0.0, self.capacity * search.highest
        for _ in range(search.steps):
            middle = (low + high) / 2
            if self.attainment(middle, slo, search.seed, search.requests) >= wanted:
                low = middle
            else:
                high = middle
        return low


def fit_model(closed: Sequence[ClosedLevel], sizes: Sequence[float]) -> QueueModel:
    """The model of a server with these closed loops. `sizes`: latencies of requests alone, in any unit.

    Raises ValueError where nothing was measured.
    """
    if not closed or not sizes:
        raise ValueError("a model needs a closed loop and the latencies of single requests")
    mean = sum(sizes) / len(sizes)
    relative = tuple(one / mean for one in sizes)
    speeds = tuple((one.in_flight, one.rate) for one in sorted(closed, key=lambda one: one.in_flight))
    widths = [*(float(one) for one, _ in speeds), None]
    models = [QueueModel(speeds, relative, width, discipline) for discipline in Discipline for width in widths]
    misfits = [_misfit(model, closed) for model in models]
    alike = min(misfits) * (1 + _ALIKE)
    return min((model for model, found in zip(models, misfits, strict=True) if found <= alike), key=lambda m: m.most)


def _misfit(model: QueueModel, closed: Sequence[ClosedLevel]) -> float:
    """How far the model's closed loops are from the measured ones: squared logarithms of the quantiles."""
    total = 0.0
    for one in closed:
        took = sorted(closed_latencies(model, one.in_flight))
        for share, measured in zip(SHARES, one.quantiles, strict=True):
            total += math.log((quantile(took, share) or measured) / measured) ** 2
    return total


def closed_latencies(model: QueueModel, in_flight: int) -> list[float]:
    """Latencies of a closed loop: each answer is followed by the next request."""
    rng = Random(in_flight)  # noqa: S311  # a repeatable simulation, no secret
    server = model.server()
    for _ in range(in_flight):
        server.arrive(rng.choice(model.sizes))
    took: list[float] = []
    while len(took) < _CLOSED:
        done = server.complete()
        took += done
        for _ in done:
            server.arrive(rng.choice(model.sizes))
    return took[int(_CLOSED * _WARM_UP) :]
