"""The router's feedback in virtual time: a standby replica drawn in by the rise of the latency, and a slow replica.

    python -m bench.control_routes [--seeds 3] [--output json]

Three replicas with the server's own scheduler behind the router's own pool and balancing, all in virtual time. In the
first part two serve, and the third is a standby for a rush; in the second part one of three takes three times as long
for half a minute. A violation is a request that was answered later than the objective.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from statistics import fmean

from msgspec import Struct

from bench.control_patterns import LoadPattern, requests_of
from bench.control_simulation import VirtualServer
from bench.harness import arguments, markdown, print_result
from bench.schedulers import MEASURED_FP32
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.control.load_window import nearest_rank
from latdoctor.lab.server.control.replica_latency import ReplicaLatencies
from latdoctor.lab.server.control.route_feedback import AHEAD, TREND, WINDOW, RouteFeedback
from latdoctor.lab.server.load_balancing import RouterConfig, patched_router_config
from latdoctor.lab.server.replica_pool import Replica, ReplicaPool

SLO = 0.3  # seconds
TICK = 0.5
NAMES = ("0", "1", "2")
RUSH = LoadPattern(rate=((0, 120), (40, 120), (80, 380), (130, 380), (150, 120), (220, 120)))
STEADY = LoadPattern(rate=((0, 300), (90, 300)))


class RoutedRun(Struct, frozen=True):
    """One row, mean over the seeds. `p99` in seconds; `third`: share of the time in which the third replica served."""

    row: str
    violations: float
    p99: float
    third: float
    steps: float


class RoutedServers:
    """Three simulated servers behind a pool; `slow(name, now)` multiplies what a batch takes."""

    def __init__(self, config: RouterConfig, seed: int, slow: Callable[[str, float], float], ahead: float) -> None:
        self.now = 0.0
        self.pool = ReplicaPool({name: f"http://{name}" for name in NAMES}, config, now=lambda: self.now)
        self.latencies: list[float] = []
        self.third = 0.0
        self.feedback = RouteFeedback(lambda: self.now, ahead=ahead)
        self._measured = ReplicaLatencies()
        self._at: dict[int, Replica] = {}
        self._servers: dict[str, VirtualServer] = {}
        for place, name in enumerate(NAMES):
            self.pool.ready(name)
            self._servers[name] = VirtualServer(
                ServerConfig(), MEASURED_FP32, seed * 10 + place, lambda now, name=name: slow(name, now), self._done
            )

    def _done(self, number: int, latency: float | None) -> None:
        replica = self._at.pop(number)
        replica.in_flight -= 1
        self.latencies.append(math.inf if latency is None else latency)
        self._measured.answered(self.now, replica.name, latency or 0.0, good=latency is not None)

    def run(self, pattern: LoadPattern, seed: int) -> None:
        coming, tick = list(reversed(requests_of(pattern, seed))), TICK
        while coming or self._at:
            due = min(one.next_event() for one in self._servers.values())
            self.now = min(coming[-1].arrived if coming else math.inf, due, tick)
            for one in self._servers.values():
                one.advance(self.now)
            while coming and coming[-1].arrived <= self.now:
                work = coming.pop()
                replica = self.pool.choose()
                assert replica is not None
                self._at[work.id] = replica
                replica.in_flight += 1
                self._servers[replica.name].arrive(work)
            if self.now >= tick:
                tick += TICK
                self._decide()
            for one in self._servers.values():
                one.start()

    def _decide(self) -> None:
        statuses = self.pool.statuses()
        self.third += TICK * (statuses[-1].weight > 0)
        found = self._measured.measure(self.now, WINDOW, SLO, TREND)
        change = self.feedback.decide(self.now, self.pool.config, statuses, found)
        if change is not None:
            self.pool.configure(patched_router_config(self.pool.config, {"weights": {change.replica: change.weight}}))


def measured(
    row: str,
    pattern: LoadPattern,
    seeds: Sequence[int],
    config: RouterConfig,
    *,
    ahead: float = AHEAD,
    slow: float = 1.0,
) -> RoutedRun:
    """One row; `slow`: what replica 1 takes from second 30 to 60, times the others."""
    violations, p99, third, steps = [], [], [], []
    for seed in seeds:
        servers = RoutedServers(config, seed, lambda name, now: slow if name == "1" and 30 <= now < 60 else 1.0, ahead)
        servers.run(pattern, seed)
        violations.append(sum(one > SLO for one in servers.latencies) / len(servers.latencies))
        p99.append(nearest_rank(sorted(servers.latencies), 0.99))
        third.append(servers.third / servers.now)
        steps.append(len(servers.feedback.steps))
    return RoutedRun(row, fmean(violations), fmean(p99), fmean(third), fmean(steps))


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    options = parser.parse_args(given)
    seeds = range(1, options.seeds + 1)
    usual = RouterConfig(slow_start_ms=0, control_slo_ms=SLO * 1000)
    aside = patched_router_config(usual, {"weights": {"2": 0.0}})
    standby = patched_router_config(aside, {"control": "on", "standby_replicas": 1})
    on = patched_router_config(usual, {"control": "on"})
    rows = [
        measured("rush: two replicas", RUSH, seeds, aside),
        measured("rush: standby near the objective", RUSH, seeds, standby, ahead=0.0),
        measured("rush: standby by the rise", RUSH, seeds, standby),
        measured("rush: three replicas", RUSH, seeds, usual),
        measured("slow replica: least-loaded", STEADY, seeds, usual, slow=3.0),
        measured("slow replica: with feedback", STEADY, seeds, on, slow=3.0),
    ]
    table = markdown(
        ("row", "violations", "P99 s", "third serves", "steps"),
        [(one.row, f"{one.violations:.2%}", f"{one.p99:.3f}", f"{one.third:.0%}", f"{one.steps:.0f}") for one in rows],
    )
    print_result({"rows": rows}, options.output, "\n".join(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
