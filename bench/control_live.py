"""The feedback controller on the real reference server: an overload on and off, with real requests.

    python -m bench.control_live [--rounds 2] [--output json]

The server's capacity is measured first; the load then changes between half of it and 1.8 times of it. The rows are the
default, admission by a fixed deadline, observing only, and the controller; the same requests for each, one after the
other. A violation is a request that was answered late, refused or not answered.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from msgspec import Struct

from bench.harness import arguments, log, markdown, print_result
from latdoctor.lab.processes import ServerProcess
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.load.arrivals import Poisson
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import run_load, saturate

SLO = 0.5  # seconds
LOW, HIGH = 0.5, 1.8  # times the capacity
_SATURATION_SECONDS = 4.0
_MIX = Mix(audio_share=0.0)
ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {},
    "fixed deadline": {"queue": {"deadline_ms": 0.85 * SLO * 1000}},
    "observe": {"control": {"mode": "observe", "slo_ms": SLO * 1000}},
    "controller": {"control": {"mode": "on", "slo_ms": SLO * 1000}},
}


class LiveRun(Struct, frozen=True):
    """One row and round. `p99` in seconds, of answered and timed out requests; `steps` as applied or observed."""

    row: str
    violations: float
    p99: float | None
    goodput: float
    steps: int
    rolled_back: int
    trusted: bool


def plan(capacity: float, seed: int) -> LoadPlan:
    """Low, high, low, high, low."""
    phases = [
        LoadPhase(f"{name}-{number}", seconds, Poisson(factor * capacity), _MIX)
        for number in (1, 2)
        for name, seconds, factor in (("low", 6.0, LOW), ("high", 8.0, HIGH))
    ]
    return LoadPlan(
        (*phases, LoadPhase("low-3", 6.0, Poisson(LOW * capacity), _MIX)), seed=seed, slo_s=SLO, timeout_s=5.0
    )


def run(row: str, capacity: float, seed: int) -> LiveRun:
    with ServerProcess(patched(ServerConfig(), ROWS[row]), faults=False) as server:
        server.wait_ready()
        found = run_load(plan(capacity, seed), server.url)
        _, body = server.admin.ask("GET", "/admin/control")
        steps = json.loads(body)["steps"]
    total = found.total
    return LiveRun(
        row,
        1 - total.counts.good / total.counts.requests,
        total.p99,
        total.goodput,
        len(steps),
        sum(step["reason"] == "rollback" for step in steps),
        not found.problems,
    )


def capacity() -> float:
    """Requests a second that the server completes of this mix."""
    with ServerProcess(ServerConfig(), faults=False) as server:
        server.wait_ready()
        found = saturate(plan(1.0, 1), server.url, seconds=_SATURATION_SECONDS, phase="low-1")
    return found.rate


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    options = parser.parse_args(given)
    measured = capacity()
    log(f"capacity {measured:.0f} requests/s")
    runs = [run(row, measured, seed) for seed in range(1, options.rounds + 1) for row in ROWS]
    rows = []
    for row in ROWS:
        own = [one for one in runs if one.row == row]
        rows.append(
            (
                row,
                f"{fmean(one.violations for one in own):.1%}",
                f"{fmean(one.p99 or 0 for one in own):.2f}",
                f"{fmean(one.goodput for one in own):.1f}",
                f"{fmean(one.steps for one in own):.0f}",
                sum(one.rolled_back for one in own),
            )
        )
    table = markdown(("row", "violations", "P99 s", "goodput/s", "steps", "rolled back"), rows)
    found = {"capacity": measured, "runs": runs}
    untrusted = sum(not one.trusted for one in runs)
    print_result(found, options.output, "\n".join([*table, f"capacity {measured:.0f}/s; {untrusted} runs not trusted"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
