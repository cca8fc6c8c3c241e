"""The measured limit, how well it repeats, and the queueing model beside it, for settings of the reference server.

    python -m bench.capacity [--repeats 5] [--only NAME] [--record FILE | --score FILE]

The model of these servers sleeps instead of computing, so that one machine can be asked repeatedly. Each setting is
measured, then loaded seven times at 80 % of its limit; the first setting is measured `--repeats` times.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.lab.child_process import ChildProcess
from latdoctor.lab.server.supervisor import free_ports
from latdoctor.load import machine_state
from latdoctor.load.arrivals import Poisson
from latdoctor.load.latencies import quantile
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import run_load
from latdoctor.load.target import Target, TargetKind
from latdoctor.planning.capacity.measure import MeasureSettings, Measuring
from latdoctor.planning.capacity.measurement import CapacityMeasurement
from latdoctor.planning.capacity.queue_model import QueueModel, fit_model

SLO = 0.3
RUNS, SECONDS, SHARE = 7, 16.0, 0.8
# Arguments of the server, and the share of long requests.
SETTINGS = {
    "token-budget": (("--batch-ms=2", "--token-ms=0.1"), 0.15),
    "short-only": (("--batch-ms=4", "--token-ms=0.1"), 0.0),
    "costly-batches": (("--batch-ms=20", "--token-ms=0.05"), 0.15),
    "one-by-one": (("--batch-ms=4", "--token-ms=0.05", "--set=batching.scheduler=single"), 0.15),
    "long-alone": (("--batch-ms=2", "--token-ms=0.1", "--set=batching.scheduler=long-alone"), 0.15),
}


@contextmanager
def served(arguments: tuple[str, ...]) -> Iterator[str]:
    """The address of a reference server."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    process = ChildProcess(
        "the server", "latdoctor.lab.cluster.reference_pod", [f"--port={port}", *arguments], {"POD_IP": "127.0.0.1"}
    )
    with process:
        process.wait_answers(f"{address}/readyz")
        yield address


def measured(name: str, seed: int) -> CapacityMeasurement:
    arguments, long_share = SETTINGS[name]
    with served(arguments) as address:
        settings = MeasureSettings(slo=SLO, mix=Mix(long_share=long_share, audio_share=0), seed=seed)
        return Measuring(Target(address, TargetKind.REFERENCE), settings, lambda _: {}, lambda _: None).run()


def p99_at(name: str, rate: float) -> list[float]:
    """P99 of several runs at this rate, in seconds."""
    arguments, long_share = SETTINGS[name]
    found = []
    for seed in range(RUNS):
        with served(arguments) as address:
            phase = LoadPhase("load", SECONDS, Poisson(rate), Mix(long_share=long_share, audio_share=0))
            found.append(run_load(LoadPlan((phase,), seed=seed, warm_up_s=2.0), address).total.p99 or 0.0)
    return sorted(found)


class Recorded(Struct, frozen=True):
    """A setting as it was measured. `runs`: P99 of each run at `SHARE` of the limit, ascending, in seconds."""

    setting: str
    measurement: CapacityMeasurement
    runs: tuple[float, ...]


class Recording(Struct, frozen=True):
    """All that was measured, so that a changed model is scored on it again. `repeated`: limits of the first setting."""

    machine: dict[str, object]
    repeated: tuple[float, ...]
    settings: tuple[Recorded, ...]


def recorded(name: str) -> Recorded:
    """The limit of one setting, and P99 at 80 % of it."""
    one = measured(name, 0)
    return Recorded(name, one, tuple(p99_at(name, one.limit * SHARE)))


def _p99_of_runs(model: QueueModel, rate: float) -> float:
    """The median of P99 over simulated runs as long as the measured ones: a short run seldom has a rare burst."""
    requests = int(rate * SECONDS)
    return statistics.median(quantile(model.latencies(rate, seed, requests), 0.99) or 0.0 for seed in range(41))


def row(recorded: Recorded) -> dict[str, object]:
    """The limit of one setting beside the model's, and P99 at 80 % of it likewise."""
    one = recorded.measurement
    p99 = statistics.median(recorded.runs)
    model = fit_model(one.closed, one.model.sizes) if one.model else None
    limit = model.limit(one.slo, one.attainment) if model else None
    said = _p99_of_runs(model, one.limit * SHARE) if model else None
    return {
        "setting": recorded.setting,
        "limit": one.limit,
        "interval": one.interval,
        "first_failing": one.first_failing,
        "levels": len(one.levels),
        "seconds": one.lasted,
        "width": model.width if model else None,
        "model_limit": limit,
        "model_error": limit / one.limit - 1 if limit else None,
        "p99_at_80": p99,
        "p99_lowest": recorded.runs[0],
        "p99_highest": recorded.runs[-1],
        "p99_model": said,
        "p99_error": said / p99 - 1 if said else None,
        "problems": one.problems,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=SETTINGS)
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep what was measured")
    parser.add_argument("--score", type=Path, metavar="FILE", help="measure nothing: score what was kept")
    options = parser.parse_args()
    if options.score:
        recording = msgspec.json.decode(options.score.read_bytes(), type=Recording)
    else:
        state = machine_state.state()
        names = [options.only] if options.only else list(SETTINGS)
        repeated = [measured(names[0], seed).limit for seed in range(1, options.repeats + 1)]
        recording = Recording(state, tuple(repeated), tuple(recorded(name) for name in names))
    if options.record:
        options.record.write_bytes(msgspec.json.encode(recording))
    limits = recording.repeated
    if limits:
        middle = statistics.median(limits)
        away = max(abs(one / middle - 1) for one in limits)
        print(f"repeated {len(limits)} times: {', '.join(f'{one:.1f}' for one in limits)} (at most {away:.1%} off)")
    for one in map(row, recording.settings):
        print(
            f"{one['setting']:15} limit {one['limit']:.1f}/s, model {one['model_limit']:.1f} "
            f"({one['model_error']:+.1%}); "
            f"P99 at 80 % {one['p99_at_80']:.3f} s ({one['p99_lowest']:.3f}–{one['p99_highest']:.3f}), "
            f"model {one['p99_model']:.3f} ({one['p99_error']:+.1%}); {one['seconds']:.0f} s {one['problems'] or ''}"
        )


if __name__ == "__main__":
    main()
