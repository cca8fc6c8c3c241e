"""What each scheduler does to the same traffic, in virtual time: no model, no server, the same answer on every machine.

    python bench/schedulers.py                      # a table for saturation and for three rates
    python bench/schedulers.py --long-share 0.02

15 % of the requests have 300–512 tokens, the others 20–60; one call costs what the reference model costs in fp32.
"""

from __future__ import annotations

import argparse

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers import build
from latdoctor.lab.server.schedulers.batch import Batch
from latdoctor.lab.server.schedulers.simulation import MEASURED_FP32, SimulationResult, quantile, simulate, traffic

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


def played(name: str, rate: float, long_share: float, seed: int) -> SimulationResult:
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
            print(row(name, played(name, rate, options.long_share, options.seed)))


if __name__ == "__main__":
    main()
