"""One open-loop run against one server."""

from __future__ import annotations

import os
import time
from pathlib import Path

from msgspec import Struct

from bench.peers.servers import Running, Setting
from latdoctor.errors import OperationError
from latdoctor.load import machine_state
from latdoctor.load.arrivals import Poisson
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import run_load, saturate
from latdoctor.load.summary import LoadResult

MIX = Mix()  # 15 % long (300–500 tokens), 85 % short (20–60); 30 % of each as audio
WARM_UP = 2.0  # seconds of load that are not measured
QUIET = 0.15  # of a processor: a run with more use by other processes is repeated
TRIES, PAUSE = 3, 5.0  # seconds


class Trial(Struct, frozen=True):
    """An open-loop run at `rate` a second. Times in seconds; `spoiled` as the generator says it. `neighbours`: what all
    but server, generator and this program took of one processor meanwhile; stolen time is theirs."""

    setting: Setting
    rate: float
    seed: int
    seconds: float
    requests: int
    answered: int
    p50: float | None
    p99: float | None
    late_p99: float | None
    cpu_per_request: float
    neighbours: float
    spoiled: tuple[str, ...]

    def worst(self) -> float:
        """The P99 where all were answered, else infinity."""
        if self.p99 is None or self.answered < self.requests:
            return float("inf")
        return self.p99


def trial(setting: Setting, programs: Path, rate: float, seconds: float, seed: int) -> Trial:
    """A fresh server under Poisson arrivals. Raises OperationError if the server or the generator fails."""
    with Running(setting, programs) as server:
        server.wait_ready()
        return loaded(server, rate, seconds, seed)


def loaded(server: Running, rate: float, seconds: float, seed: int) -> Trial:
    """A run against a server that is up; `cpu_per_request` counts the warm-up's requests too.

    Where neighbours took much of the machine it is run again, and the least disturbed of the runs counts.
    """
    runs: list[Trial] = []
    while len(runs) < TRIES:
        runs.append(_once(server, rate, seconds, seed))
        if runs[-1].neighbours <= QUIET:
            break
        time.sleep(PAUSE)
    return min(runs, key=lambda run: run.neighbours)


def _once(server: Running, rate: float, seconds: float, seed: int) -> Trial:
    since, before = machine_state.usage(time.time()), server.cpu_seconds()
    result = run_load(_plan(rate, seconds, seed), server.url)
    used = server.cpu_seconds() - before
    neighbours = _of_neighbours(since, machine_state.usage(time.time()))
    sent = result.total.counts.requests + result.warm_up_requests
    return _trial(server.setting, rate, seed, result, used / max(1, sent), neighbours)


def _of_neighbours(first: machine_state.Usage | None, last: machine_state.Usage | None) -> float:
    """The share of one processor that other processes used; server and generator are children of this process.

    Raises OperationError if it cannot be measured.
    """
    processors = os.cpu_count() or 1
    share = machine_state.others(first, last, processors)
    if share is None:
        raise OperationError(
            "the processor use of other processes cannot be measured", where="/proc", next_step="run it on Linux"
        )
    return round(share * processors, 3)


def screened(
    setting: Setting,
    programs: Path,
    shares: tuple[float, ...],
    seconds: tuple[float, float],
    slo: float,
    *,
    least: float,
) -> tuple[float, tuple[Trial, ...]]:
    """The rate that the server completes when it is never idle, and trials at `shares` of it until one is good.

    `seconds` are those of the two kinds. A server that completes less than `least` gets no trial: another is better.
    """
    with Running(setting, programs) as server:
        server.wait_ready()
        capacity = saturate(_plan(10.0, 10.0, 1), server.url, seconds[0]).rate
        trials: list[Trial] = []
        for share in shares:
            if capacity <= least:
                break
            trials.append(loaded(server, capacity * share, seconds[1], seed=1))
            if trials[-1].worst() <= slo:
                break
        return capacity, tuple(trials)


def _plan(rate: float, seconds: float, seed: int) -> LoadPlan:
    return LoadPlan(
        phases=(LoadPhase("load", seconds + WARM_UP, Poisson(rate), MIX),), seed=seed, warm_up_s=WARM_UP, timeout_s=10.0
    )


def _trial(setting: Setting, rate: float, seed: int, result: LoadResult, cpu: float, neighbours: float) -> Trial:
    total = result.total
    return Trial(
        setting=setting,
        rate=rate,
        seed=seed,
        seconds=total.seconds,
        requests=total.counts.requests,
        answered=total.counts.answered,
        p50=total.p50,
        p99=total.p99,
        late_p99=total.late_p99,
        cpu_per_request=cpu,
        neighbours=neighbours,
        spoiled=tuple(problem.text for problem in result.problems),
    )
