"""The false alarm rates of the detectors on healthy data, and their detection rates on faulty data.

Usage: python -m bench.detectors [--runs 200] [--seed 0] [--page docs/detectors.md]
Healthy request latencies have four distributions: lognormal, rounded to a millisecond, with a heavy tail (Pareto, shape
1.5), and those of a queue (M/G/1 at 80 %, by Lindley's recursion: successive ones are correlated). Each detector is
called as in a diagnosis. Rates have 95 % Wilson intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.harness import arguments, markdown, print_result
from latdoctor.detectors.arrival_change import arrival_changes
from latdoctor.detectors.effect_size import compare_latencies
from latdoctor.detectors.latency_modes import SMALLEST, find_peaks
from latdoctor.detectors.periodicity import find_pulse
from latdoctor.evaluation.statistics import proportion
from latdoctor.evidence.model import Evidence, Origin, Series

Numbers = NDArray[np.float64]
Random = np.random.Generator
Generator = Callable[[Random], tuple[Numbers, Numbers]]  # times and latencies, both in seconds

SECONDS, RATE = 30.0, 100.0

PAGE = """
# Detectors and their error rates

A detector (`src/latdoctor/detectors/`) derives readings that no source provides. The docstring of its module has its
method, its limits and their references. The tables have the rates at which each detector fires on data that is known to
be healthy or faulty: 3000 requests in 30 s, generated anew for each run. Rates have 95 % Wilson intervals.

* *pulse*: a period in request latencies (`latency.pulse_period`). The faulty service stops for 60 ms every 500 ms.
* *two peaks*: a second group of latencies (`latency.modes`), detected by the dip test or by its valley.
* *dip p < 1 %*: Hartigan's dip test alone, which does not detect small groups.
* *before/after*: the first half against the second, by Cliff's delta and the means of blocks.
* *arrivals change*: `arrival.jump` or `arrival.drop`. The arrivals of all these samples are uniform.

The onset of a slowdown (`latency.onset`) is measured in `tests/detectors/test_onset.py`.
"""


def arrivals(random: Random) -> Numbers:
    return np.sort(random.uniform(0, SECONDS, random.poisson(SECONDS * RATE)))


def lognormal(random: Random) -> tuple[Numbers, Numbers]:
    times = arrivals(random)
    return times, random.lognormal(math.log(0.05), 0.6, len(times))


def rounded(random: Random) -> tuple[Numbers, Numbers]:
    times, values = lognormal(random)
    return np.round(times, 3), np.maximum(np.round(values, 3), 0.001)


def heavy(random: Random) -> tuple[Numbers, Numbers]:
    times = arrivals(random)
    return times, 0.02 * (1 + random.pareto(1.5, len(times)))


def queued(random: Random) -> tuple[Numbers, Numbers]:
    times = arrivals(random)
    service = random.gamma(2, 0.8 / RATE / 2, len(times))
    waits = np.zeros(len(times))
    for n in range(1, len(times)):
        waits[n] = max(0.0, waits[n - 1] + service[n - 1] - (times[n] - times[n - 1]))
    return times, waits + service


def pulsing(random: Random) -> tuple[Numbers, Numbers]:
    """The service stops for 60 ms every 500 ms; requests that arrive meanwhile wait for its end."""
    times, values = lognormal(random)
    phase = times % 0.5
    return times, values + np.where(phase < 0.06, 0.06 - phase, 0.0)


def two_groups(share: float) -> Generator:
    def generate(random: Random) -> tuple[Numbers, Numbers]:
        times, values = lognormal(random)
        return times, np.where(random.random(len(times)) < share, values * 30, values)

    return generate


HEALTHY: Mapping[str, Generator] = {
    "lognormal": lognormal,
    "rounded": rounded,
    "heavy tail": heavy,
    "queue at 80 %": queued,
}
FAULTY: Mapping[str, Generator] = {
    "pulse of 500 ms": pulsing,
    "20 % of requests 30 x slower": two_groups(0.2),
    "5 % of requests 30 x slower": two_groups(0.05),
    "2 % of requests 30 x slower": two_groups(0.02),
}


def has_pulse(times: Numbers, values: Numbers, _: Random) -> bool:
    return find_pulse(times, values) is not None


def has_two_peaks(_times: Numbers, values: Numbers, _: Random) -> bool:
    return find_peaks(values)[1].high_share >= SMALLEST


def dip_fires(_times: Numbers, values: Numbers, _: Random) -> bool:
    return find_peaks(values)[0] < 0.01


def differs(times: Numbers, values: Numbers, _: Random) -> bool:
    """The first half against the second."""
    half = times < SECONDS / 2
    return compare_latencies(values[half], values[~half]).differs


def arrivals_change(times: Numbers, _values: Numbers, _: Random) -> bool:
    counts = np.bincount(times.astype(int), minlength=int(SECONDS)).astype(float)[: int(SECONDS)]
    series = Series(
        "arrival.rate", "replica/0", tuple(float(n + 1) for n in range(len(counts))), tuple(counts), Origin("synthetic")
    )
    return any(one.value != 1.0 for one in arrival_changes(Evidence(series=(series,))).readings)  # jump or drop


DETECTORS: Mapping[str, Callable[[Numbers, Numbers, Random], bool]] = {
    "pulse": has_pulse,
    "two peaks": has_two_peaks,
    "dip p < 1 %": dip_fires,
    "before/after": differs,
    "arrivals change": arrivals_change,
}


def rate(generator: Generator, detector: Callable[[Numbers, Numbers, Random], bool], runs: int, seed: int) -> str:
    fired = sum(detector(*generator(random), random) for random in map(np.random.default_rng, range(seed, seed + runs)))
    share = proportion(fired, runs)
    return f"{share.value:5.1%} ({share.low:.1%} to {share.high:.1%})"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, help="write the tables and their explanation to this file")
    options = parser.parse_args()
    found = {
        title: {
            name: {
                detector: rate(generator, fires, options.runs, options.seed) for detector, fires in DETECTORS.items()
            }
            for name, generator in generators.items()
        }
        for title, generators in (("healthy: false alarms", HEALTHY), ("faulty: detected", FAULTY))
    }
    tables = list(_tables(found))
    print_result(found, options.output, "\n".join(tables))
    if options.page:
        origin = f"`python -m bench.detectors --runs {options.runs} --page {options.page}` wrote this page."
        options.page.write_text("\n".join((PAGE.strip(), "", origin, *tables)) + "\n")


def _tables(found: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Iterator[str]:
    for title, rows in found.items():
        yield ""
        yield from markdown((title, *DETECTORS), [(name, *rates.values()) for name, rates in rows.items()])


if __name__ == "__main__":
    main()
