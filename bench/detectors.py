"""How often the detectors speak falsely on healthy data, and how often truly on sick data.

Usage: python bench/detectors.py [--runs 200] [--seed 0] [--page docs/detectors.md]
Healthy latencies of single requests come from four makers: lognormal, rounded to a millisecond, with a heavy tail
(Pareto, shape 1.5), and those of a queue (an M/G/1 queue at 80 %, by Lindley's recursion: neighbours are alike). Each
detector is asked as it is asked in a diagnosis; a rate is told with its 95 % Wilson interval.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latdoctor.detectors.arrival_change import arrival_changes
from latdoctor.detectors.effect_size import compare_latencies
from latdoctor.detectors.latency_modes import SMALLEST, find_peaks
from latdoctor.detectors.periodicity import find_pulse
from latdoctor.evidence.model import Evidence, Origin, Series

Numbers = NDArray[np.float64]
Random = np.random.Generator
Maker = Callable[[Random], tuple[Numbers, Numbers]]  # times and latencies, both in seconds

SECONDS, RATE = 30.0, 100.0

PAGE = """
# Detectors, and how often they speak falsely

A detector (`src/latdoctor/detect/`) derives readings that no source gives. Each states its method, its limits and their
source at the head of its module. Here is what they do with data that is known to be healthy or sick: 3000 requests in
30 s, made anew for each of the runs. Rates with their 95 % Wilson intervals.

* *pulse*: a period in the latencies of single requests (`latency.pulse_period`). The sick ones stop for 60 ms every
  500 ms.
* *two peaks*: a second group of latencies (`latency.modes`), told by the dip test or by its valley.
* *dip p < 1 %*: Hartigan's dip test alone, blind to small groups.
* *before/after*: the first half against the second, by Cliff's delta and the means of blocks.
* *arrivals change*: `arrival.jump` or `arrival.drop`. The requests of all these samples come evenly.

The onset of a slow time (`latency.onset`) is measured in `tests/detectors/test_onset.py`.
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
    """Every half second everything stops for 60 ms: who comes then waits for its end."""
    times, values = lognormal(random)
    phase = times % 0.5
    return times, values + np.where(phase < 0.06, 0.06 - phase, 0.0)


def two_groups(share: float) -> Maker:
    def made(random: Random) -> tuple[Numbers, Numbers]:
        times, values = lognormal(random)
        return times, np.where(random.random(len(times)) < share, values * 30, values)

    return made


HEALTHY: Mapping[str, Maker] = {
    "lognormal": lognormal,
    "rounded": rounded,
    "heavy tail": heavy,
    "queue at 80 %": queued,
}
SICK: Mapping[str, Maker] = {
    "pulse of 500 ms": pulsing,
    "20 % of them 30 x slower": two_groups(0.2),
    "5 % of them 30 x slower": two_groups(0.05),
    "2 % of them 30 x slower": two_groups(0.02),
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
        "arrival.rate", "replica/0", tuple(float(n + 1) for n in range(len(counts))), tuple(counts), Origin("made")
    )
    return any(one.value != 1.0 for one in arrival_changes(Evidence(series=(series,))).readings)  # jump or drop


DETECTORS: Mapping[str, Callable[[Numbers, Numbers, Random], bool]] = {
    "pulse": has_pulse,
    "two peaks": has_two_peaks,
    "dip p < 1 %": dip_fires,
    "before/after": differs,
    "arrivals change": arrivals_change,
}


def rate(maker: Maker, detector: Callable[[Numbers, Numbers, Random], bool], runs: int, seed: int) -> str:
    fired = sum(detector(*maker(random), random) for random in map(np.random.default_rng, range(seed, seed + runs)))
    low, high = wilson(fired, runs)
    return f"{fired / runs:5.1%} ({low:.1%} to {high:.1%})"


def wilson(hits: int, runs: int) -> tuple[float, float]:
    share, z2 = hits / runs, 1.96**2
    middle, half = share + z2 / (2 * runs), 1.96 * math.sqrt(share * (1 - share) / runs + z2 / (4 * runs**2))
    return (max(0.0, (middle - half) / (1 + z2 / runs)), min(1.0, (middle + half) / (1 + z2 / runs)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, help="write it as a page, with what the detectors are")
    chosen = parser.parse_args()
    lines = list(table(chosen.runs, chosen.seed))
    print("\n".join(lines))
    if chosen.page:
        made = f"`python bench/detectors.py --runs {chosen.runs} --page {chosen.page}` made this page."
        chosen.page.write_text("\n".join((PAGE.strip(), "", made, "", *lines)).rstrip() + "\n")


def table(runs: int, seed: int) -> Iterator[str]:
    for title, makers in (("healthy: how often falsely", HEALTHY), ("sick: how often at all", SICK)):
        yield f"| {title} | " + " | ".join(DETECTORS) + " |"
        yield "|---|" + "---|" * len(DETECTORS)
        for name, maker in makers.items():
            cells = (rate(maker, detector, runs, seed) for detector in DETECTORS.values())
            yield f"| {name} | " + " | ".join(cells) + " |"
        yield ""


if __name__ == "__main__":
    main()
