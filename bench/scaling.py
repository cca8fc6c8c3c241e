"""A fluid simulation of a service that is scaled: requests that are late, and the replica-hours that it took.

Requests arrive at the rate of each step and are served in order at `per_replica` a second and replica. One is late
where the queue before it takes longer than LATE seconds. A started replica serves after the lead time; one that is
stopped ends at once. The reactive controller computes as the Kubernetes HorizontalPodAutoscaler does by default: a
tolerance of 10 %, and down only to the highest need of the last five minutes; it sees the rate of a step from its
beginning, without delay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Controller = Callable[[float], Sequence[int]]  # the share kept free → replicas in each step

LATE = 1.0  # seconds
MOST_FREE = 0.8
_PARTS = 30  # of a step, so that a queue builds up and drains within it
_TOLERANCE, _STABILISATION = 0.1, 300.0


@dataclass(frozen=True, slots=True)
class Service:
    """Rates a second of each step of `step` seconds; a started replica serves `lead` steps later."""

    rates: FloatArray
    step: float
    lead: int
    per_replica: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The share of requests that were late, the share of steps with a late request, and the replica-hours."""

    late: float
    late_steps: float
    replica_hours: float


def simulate(service: Service, replicas: Sequence[int]) -> Cost:
    """What `replicas` in each step lead to."""
    part = service.step / _PARTS
    queue = late = 0.0
    steps = 0
    for rate, count in zip(service.rates, replicas, strict=True):
        capacity, late_here = count * service.per_replica, 0.0
        for _ in range(_PARTS):
            if queue > LATE * capacity:
                late_here += float(rate) * part
            queue = max(0.0, queue + (float(rate) - capacity) * part)
        late += late_here
        steps += late_here > 0
    total = float(service.rates.sum()) * service.step
    return Cost(late / total, steps / len(service.rates), sum(replicas) * service.step / 3600)


def needed(rates: FloatArray, per_replica: float, free: float) -> list[int]:
    """Replicas that carry each rate with the share `free` of their capacity left; one at least."""
    return [max(1, math.ceil(rate / (per_replica * (1 - free)) - 1e-9)) for rate in rates]


def reactive(service: Service, free: float) -> list[int]:
    """Replicas that serve in each step under a reactive controller with the target utilisation 1 − `free`."""
    usable = service.per_replica * (1 - free)
    window = max(1, round(_STABILISATION / service.step)) + 1
    ordered = max(1, math.ceil(service.rates[0] / usable))
    orders = [ordered] * service.lead  # of the last `lead` steps: what is not yet started of them does not serve
    wanted: list[int] = []
    serving = []
    for rate in service.rates:
        ratio = rate / (ordered * usable)
        wanted.append(max(1, math.ceil(rate / usable - 1e-9)) if abs(ratio - 1) > _TOLERANCE else ordered)
        ordered = max(wanted[-1], min(ordered, max(wanted[-window:])))
        orders.append(ordered)
        serving.append(min(orders[-service.lead - 1 :]))
    return serving


def least_free(service: Service, controller: Controller, most_late: float) -> float | None:
    """The smallest share kept free with which no more than the share `most_late` of the requests are late.

    By bisection, to half a percent of the capacity; None where not even MOST_FREE suffices.
    """
    low, high = 0.0, MOST_FREE
    if simulate(service, controller(high)).late > most_late:
        return None
    if simulate(service, controller(low)).late <= most_late:
        return low
    while high - low > 0.005:
        middle = (low + high) / 2
        if simulate(service, controller(middle)).late <= most_late:
            high = middle
        else:
            low = middle
    return high
