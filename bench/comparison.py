"""How often `latdoctor compare` calls equal servers different, and how often it finds a P99 that is 25 % higher.

    python -m bench.comparison [--equal 60] [--different 20] [--seconds 5] [--streams 3]

Two reference servers whose model sleeps instead of computing, at a load of 0.6: the second computes as fast as the
first, or so much slower that its P99 is about 25 % higher.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from bench.capacity import served
from latdoctor.evaluation.statistics import proportion
from latdoctor.load import machine_state
from latdoctor.load.arrivals import Poisson
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import run_load, saturate
from latdoctor.planning.comparison.comparison import Comparison
from latdoctor.planning.comparison.effect import ComparisonVerdict
from latdoctor.planning.comparison.live import LiveComparison, LiveSettings
from latdoctor.planning.comparison.run_figures import RunFigures, figures

ARGUMENTS = ("--batch-ms=2", "--token-ms=0.1")
MIX = Mix(audio_share=0)
LOAD = 0.6
SLOWER = 1.12  # times: at this load P99 rises by about a quarter
MARGIN = 0.25
MOST = 30


def runner(addresses: tuple[str, str], rate: float, seconds: float) -> Callable[[int, int], RunFigures]:
    def run(side: int, seed: int) -> RunFigures:
        phase = LoadPhase("load", seconds, Poisson(rate), MIX)
        return figures(run_load(LoadPlan((phase,), seed=seed, warm_up_s=seconds / 5), addresses[side]))

    return run


def compared(seeds: Sequence[int], slower: float, seconds: float) -> list[Comparison]:
    """A comparison for each seed, of two servers that run all the time."""
    with ExitStack() as ends:
        a = ends.enter_context(served(ARGUMENTS))
        b = ends.enter_context(served((*ARGUMENTS, f"--slower={slower}")))
        plan = LoadPlan((LoadPhase("load", 1.0, Poisson(1.0), MIX),))
        rate = LOAD * saturate(plan, a, 5.0).rate
        run = runner((a, b), rate, seconds)
        settings = [LiveSettings(margin=MARGIN, most=MOST, seed=seed) for seed in seeds]
        return [LiveComparison(("A", "B"), one, run, lambda _: None).compare() for one in settings]


def all_compared(count: int, slower: float, seconds: float, streams: int) -> list[Comparison]:
    """`count` comparisons, `streams` at a time: while one loads A the others load theirs."""
    shares = [range(1 + stream, count + 1, streams) for stream in range(streams)]
    with ThreadPoolExecutor(streams) as threads:
        parts = threads.map(lambda seeds: compared(seeds, slower, seconds), shares)
        return [one for part in parts for one in part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--equal", type=int, default=60)
    parser.add_argument("--different", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--streams", type=int, default=3, help="comparisons at a time, with servers of their own")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    state = machine_state.state()
    equal = all_compared(options.equal, 1.0, options.seconds, options.streams)
    different = all_compared(options.different, SLOWER, options.seconds, options.streams)
    alarms = proportion(sum(one.verdict.is_difference for one in equal), len(equal))
    found = proportion(sum(one.verdict is ComparisonVerdict.WORSE for one in different), len(different))
    if options.output == "json":
        rows = [
            {"verdict": one.verdict, "ratio": one.ratio, "interval": one.interval, "pairs": one.pairs}
            for one in (*equal, *different)
        ]
        print(
            json.dumps({"machine": state, "false_alarms": alarms.right, "found": found.right, "rows": rows}, indent=2)
        )
        return
    print(f"called different of {alarms.of} equal: {alarms.right:.0f} (95 % upper bound {alarms.high or 0:.1%})")
    inconclusive = sum(one.verdict is ComparisonVerdict.INCONCLUSIVE for one in equal)
    print(f"  inconclusive {inconclusive}, pairs {sum(one.pairs for one in equal)}")
    ratios = sorted(one.ratio or 0.0 for one in different)
    print(
        f"worse found: {found.right:.0f} of {found.of}; P99 × {ratios[len(ratios) // 2]:.2f} (median), "
        f"pairs {sorted(one.pairs for one in different)}"
    )


if __name__ == "__main__":
    main()
