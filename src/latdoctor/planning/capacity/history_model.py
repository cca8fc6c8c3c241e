"""The queueing model of a replica from its ordinary operation: how fast it is with n requests, from latency by load.

With n requests in service a replica answers X(n) = n / (a + b n) a second: a batch takes a time of its own, and so much
more for each request; 1/b is what it answers at most, a + b what one request alone takes. Ordinary load shows none of
them directly, because arrivals come by chance, and so does the number in service. So the model is simulated with
Poisson arrivals at the rates of the history, and a, b and the width are those whose latencies are like the observed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from random import Random

from msgspec import Struct

from latdoctor.load.latencies import quantile
from latdoctor.planning.capacity.load_window import LoadWindow
from latdoctor.planning.capacity.queue_model import Discipline, LimitSearch, QueueModel

_REQUESTS = 1200  # of a simulation
_LIMIT_REQUESTS, _LIMIT_STEPS = 3000, 9  # of the search for a limit: to 0.2 % of the capacity
_ALONE = (0.85, 1.0)  # of the mean latency at the lowest load: a little of that is waiting
_CAPACITIES, _BEYOND, _CLOSEST = 12, 8.0, 1.03  # how many are tried, from the highest rate seen to so many times that
_FINE = 5  # more between two of them
# A queue, sharing among all, and batches of all that waits.
_KINDS: tuple[tuple[float | None, Discipline], ...] = (
    (1.0, Discipline.SHARING),
    (None, Discipline.SHARING),
    (None, Discipline.BATCHES),
)
_P99_WEIGHT = 0.25  # of the squared logarithm of P99: buckets show it roughly, the mean is exact
_RESAMPLES = 100
_COUNTS = tuple(2**power for power in range(10))
_PERCENTS = tuple((2 * index + 1) / 2 for index in range(100))  # of the sizes of requests
Latencies = tuple[tuple[float, float], ...]  # mean and P99 in seconds, of each rate


class LoadBin(Struct, frozen=True):
    """Windows of about the same load. Rates per second, latencies in seconds."""

    rate: float
    mean: float
    p99: float
    windows: tuple[LoadWindow, ...]


class FittedModel(Struct, frozen=True):
    """`limit` with its 95 % `interval`, in requests per second. `alone`: seconds of one request, as fitted."""

    model: QueueModel
    alone: float
    limit: float
    interval: tuple[float, float]
    misfit: float  # typical relative error of the mean latency


class _Shape(Struct, frozen=True):
    """A candidate: seconds of a request alone, the most requests a second, and the width with the discipline."""

    alone: float
    capacity: float
    kind: tuple[float | None, Discipline]

    def model(self, sizes: tuple[float, ...]) -> QueueModel:
        each = 1 / self.capacity
        fixed = self.alone - each
        return QueueModel(tuple((n, n / (fixed + each * n)) for n in _COUNTS), sizes, *self.kind)


def bins_of(windows: Sequence[LoadWindow], most: int = 6) -> tuple[LoadBin, ...]:
    """Windows in ascending order of load, in at most so many parts of equal steps of the rate."""
    low, high = min(one.rate for one in windows), max(one.rate for one in windows)
    width = (high - low) / most or 1.0
    parts: dict[int, list[LoadWindow]] = {}
    for one in windows:
        parts.setdefault(min(most - 1, int((one.rate - low) / width)), []).append(one)
    return tuple(_bin(parts[place]) for place in sorted(parts))


def _bin(windows: Sequence[LoadWindow]) -> LoadBin:
    requests = sum(one.requests for one in windows)
    rate = math.fsum(one.rate for one in windows) / len(windows)
    mean = math.fsum(one.mean * one.requests for one in windows) / requests
    p99 = sorted(one.p99 for one in windows)[len(windows) // 2]
    return LoadBin(rate, mean, p99, tuple(windows))


def sizes_of(windows: Sequence[LoadWindow]) -> tuple[float, ...]:
    """Work of requests relative to their mean, from the latencies where the load was lowest."""
    calm = sorted(windows, key=lambda one: one.rate)[: max(3, len(windows) // 5)]
    middle = [sorted(getattr(one, name) for one in calm)[len(calm) // 2] for name in ("p50", "p95", "p99")]
    p50, p95, p99 = middle
    points = ((0.0, p50 * p50 / max(p95, p50)), (50.0, p50), (95.0, p95), (99.0, p99), (100.0, p99 * p99 / p95))
    found = [_between(points, percent) for percent in _PERCENTS]
    mean = math.fsum(found) / len(found)
    return tuple(one / mean for one in found)


def _between(points: Sequence[tuple[float, float]], percent: float) -> float:
    for (low, one), (high, other) in pairwise(points):
        if percent <= high:
            part = (percent - low) / (high - low)
            return math.exp(math.log(one) * (1 - part) + math.log(max(other, one)) * part)
    return points[-1][1]


def fit_history(bins: Sequence[LoadBin], slo: float, attainment: float, seed: int = 0) -> FittedModel:
    """The model whose latencies are most like those of the bins, and its limit. Needs at least two bins."""
    sizes = sizes_of([window for one in bins for window in one.windows])
    simulate = _simulation(sizes, tuple(one.rate for one in bins))
    shapes = list(_shapes(bins))
    best = min(shapes, key=lambda shape: _misfit(simulate(shape), bins))
    shapes += _finer(best)
    predicted = {shape: simulate(shape) for shape in shapes}

    def closest(observed: Sequence[LoadBin]) -> _Shape:
        return min(predicted, key=lambda shape: _misfit(predicted[shape], observed))

    search = LimitSearch(seed, _LIMIT_REQUESTS, _LIMIT_STEPS, highest=1.0)

    @lru_cache(None)
    def limit(shape: _Shape) -> float:
        return shape.model(sizes).limit(slo, attainment, search)

    chosen, rng = closest(bins), Random(seed)  # noqa: S311 - repeatable, no secret
    drawn = sorted(limit(closest([_resampled(one, rng) for one in bins])) for _ in range(_RESAMPLES))
    found = limit(chosen)
    low, high = drawn[round(0.025 * len(drawn))], drawn[round(0.975 * len(drawn)) - 1]
    error = math.sqrt(_misfit(predicted[chosen], bins) / len(bins))
    return FittedModel(chosen.model(sizes), chosen.alone, found, (min(low, found), max(high, found)), error)


def _resampled(one: LoadBin, rng: Random) -> LoadBin:
    return _bin(rng.choices(one.windows, k=len(one.windows)))


def _shapes(bins: Sequence[LoadBin]) -> Sequence[_Shape]:
    lowest, highest = bins[0].mean, bins[-1].rate
    steps = [_CLOSEST * (_BEYOND / _CLOSEST) ** (place / (_CAPACITIES - 1)) for place in range(_CAPACITIES)]
    return [
        _Shape(lowest * share, highest * step, kind)
        for share in _ALONE
        for step in steps
        for kind in _KINDS
        if highest * step * lowest * share >= 1  # fewer than one request in service is no server
    ] or [_Shape(lowest, max(highest * _BEYOND, 1 / lowest), _KINDS[1])]


def _finer(best: _Shape) -> list[_Shape]:
    """More between the candidates beside the best one."""
    ratio = (_BEYOND / _CLOSEST) ** (1 / (_CAPACITIES - 1))
    steps = [ratio ** (place / (_FINE + 1) - 1) for place in range(1, 2 * _FINE + 2) if place != _FINE + 1]
    shapes = [_Shape(best.alone, best.capacity * step, best.kind) for step in steps]
    return [one for one in shapes if one.capacity * one.alone >= 1]


def _simulation(sizes: tuple[float, ...], rates: tuple[float, ...]) -> Callable[[_Shape], Latencies]:
    """A function of a shape: mean and P99 at each rate; infinite where it cannot take that rate."""

    @lru_cache(None)
    def simulate(shape: _Shape) -> Latencies:
        model = shape.model(sizes)
        return tuple(_latency(model, rate) for rate in rates)

    return simulate


def _latency(model: QueueModel, rate: float) -> tuple[float, float]:
    if rate >= model.capacity:
        return math.inf, math.inf
    took = model.latencies(rate, requests=_REQUESTS)
    return math.fsum(took) / len(took), quantile(took, 0.99) or math.inf


def _misfit(predicted: Latencies, bins: Sequence[LoadBin]) -> float:
    """Squared logarithms of mean and P99 against those observed."""
    total = 0.0
    for (mean, p99), one in zip(predicted, bins, strict=True):
        if not math.isfinite(mean):
            return math.inf
        total += math.log(mean / one.mean) ** 2 + _P99_WEIGHT * math.log(p99 / one.p99) ** 2
    return total
