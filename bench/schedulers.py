"""What each scheduler does to the same traffic, in virtual time: no model, no server, the same answer on every machine.

    python -m bench.schedulers                      # a table for saturation and for three rates
    python -m bench.schedulers --long-share 0.02

15 % of the requests have 300–512 tokens, the others 20–60; one call costs what the reference model costs in fp32.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, pstdev

from msgspec import Struct

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers import build
from latdoctor.lab.server.schedulers.batch import Batch, Scheduler, Work
from latdoctor.lab.server.schedulers.cost_model import Cost, CostModel

# The reference model in fp32 on one core of a server processor, fitted to measured calls of 1×40 to 4×512 tokens.
MEASURED_FP32 = Cost(fixed=1.8e-3, per_token=5.8e-5, per_token_pair=4.3e-8)


class SimulatedCall(Struct, frozen=True):
    """One batch on the worker, in seconds of virtual time."""

    batch: Batch
    started: float
    finished: float


class SimulationResult(Struct, frozen=True):
    """All that was computed, and what still waited when nothing could happen any more."""

    calls: tuple[SimulatedCall, ...]
    left: tuple[Work, ...]

    @property
    def waste(self) -> float:
        """The share of the computed tokens that is padding."""
        return 1 - sum(call.batch.tokens for call in self.calls) / sum(call.batch.padded_tokens for call in self.calls)

    @property
    def rate(self) -> float:
        """Requests answered a second, from the first start to the last end."""
        return sum(call.batch.size for call in self.calls) / (self.calls[-1].finished - self.calls[0].started)

    def spread(self, what: Callable[[Batch], int]) -> tuple[float, float]:
        """Mean and standard deviation over the calls."""
        values = [what(call.batch) for call in self.calls]
        return fmean(values), pstdev(values)

    def latencies(self, longest: int | None = None) -> Iterator[float]:
        """Seconds from arrival to answer; of requests up to `longest` tokens where that is given."""
        for call in self.calls:
            for work in call.batch.works:
                if longest is None or work.tokens <= longest:
                    yield call.finished - work.arrived


def quantile(values: Iterator[float], share: float) -> float:
    """The value below which `share` of them lie (nearest rank). Raises IndexError where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def simulate(
    scheduler: Scheduler, works: Sequence[Work], seconds: Callable[[Batch], float], model: CostModel | None = None
) -> SimulationResult:
    """Lets one worker serve `works` (in order of arrival), a batch taking `seconds(batch)`; `model` learns from it.

    Raises RuntimeError if the scheduler wakes an idle worker and then releases nothing: a busy loop.
    """
    coming = list(reversed(works))
    calls: list[SimulatedCall] = []
    now = 0.0
    while True:
        while coming and coming[-1].arrived <= now:
            scheduler.add(coming.pop())
        batch = scheduler.take(now)
        if batch is not None:
            started, now = now, now + seconds(batch)
            calls.append(SimulatedCall(batch, started, now))
            if model is not None:
                model.observe(batch, now - started)
            continue
        wake = scheduler.wake_at(now)
        if wake is not None and wake <= now:
            raise RuntimeError(f"nothing to take at {now}, though to be asked again at {wake}")
        times = [time for time in (wake, coming[-1].arrived if coming else None) if time is not None]
        if not times:
            return SimulationResult(tuple(calls), tuple(scheduler.pending))
        now = min(times)


def traffic(rate: float, number: int, long_share: float, seed: int) -> list[Work]:
    """Poisson arrivals of 20–60 tokens, and of 300–512 for `long_share` of them; `rate` 0: all at the start."""
    chance = random.Random(seed)
    works, now = [], 0.0
    for id_ in range(number):
        now += chance.expovariate(rate) if rate else 0.0
        tokens = chance.randint(300, 512) if chance.random() < long_share else chance.randint(20, 60)
        works.append(Work(id_, tokens, now))
    return works


# The incident's own settings (at most five, all of the long class alone) next to the defaults of the others.
RULES = {
    "single": BatchingConfig(scheduler="single"),
    "long-alone 5": BatchingConfig(scheduler="long-alone", max_batch_requests=5, long_seconds=11.9),
    "count-only 5": BatchingConfig(scheduler="count-only", max_batch_requests=5),
    "count-only 32": BatchingConfig(scheduler="count-only"),
    "duration-bounded": BatchingConfig(scheduler="duration-bounded"),
    "length-buckets": BatchingConfig(scheduler="length-buckets"),
    "no-timer": BatchingConfig(scheduler="no-timer"),
    "token-budget": BatchingConfig(),
    "token-budget, lanes": BatchingConfig(),
    "token-budget, by complexity": BatchingConfig(size_by_complexity=True, max_batch_tokens=8192),
}

COLUMNS = ("req/s", "calls", "waste", "batch size", "batch tokens", "p99 ms", "short")
HEADER = "{:28} {:>7} {:>6} {:>6} {:>14} {:>15} {:>9} {:>9}".format("", *COLUMNS)


def seconds(batch: Batch) -> float:
    return MEASURED_FP32.seconds(batch.size, batch.padded_tokens // batch.size)


def simulated(name: str, rate: float, long_share: float, seed: int) -> SimulationResult:
    scheduler = build(RULES[name], lane_boundary=200 if "lanes" in name else None)
    return simulate(scheduler, traffic(rate, 1000 if rate == 0 else 6000, long_share, seed), seconds)


def row(name: str, outcome: SimulationResult) -> str:
    sizes, tokens = outcome.spread(lambda batch: batch.size), outcome.spread(lambda batch: batch.padded_tokens)
    p99, short = (quantile(outcome.latencies(longest), 0.99) * 1000 for longest in (None, 60))
    return (
        f"{name:28} {outcome.rate:7.1f} {len(outcome.calls):6} {outcome.waste:6.2f} "
        f"{sizes[0]:6.1f} ± {sizes[1]:<5.1f} {tokens[0]:6.0f} ± {tokens[1]:<6.0f} {p99:9.0f} {short:9.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long-share", type=float, default=0.15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rates", type=float, nargs="*", default=[0, 80, 120, 150])
    options = parser.parse_args()
    for rate in options.rates:
        print(f"\n{f'{rate:g} requests/s offered' if rate else 'all queued at the start'}")
        print(HEADER)
        for name in RULES:
            print(row(name, simulated(name, rate, options.long_share, options.seed)))


if __name__ == "__main__":
    main()
