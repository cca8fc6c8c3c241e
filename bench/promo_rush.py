"""Checks the promo-rush scenario over several seeds: P99, forward calls, padding and page faults.

Usage: python -m bench.promo_rush [--seeds 3] [--report FILE]
Every ratio is computed within one run; its median over the seeds is checked:

* incident P99 / before P99 ≥ 5, and after P99 / incident P99 ≤ 0.3;
* forward calls per answer, after / incident, below 1: long requests no longer run alone. Without a queue afterwards a
  call starts with few requests: draining / incident, while the queue is processed, is printed beside it;
* padding waste afterwards at most the limit of the new scheduler (`max_waste`, 0.3);
* page faults per call, incident / after, at least 10: buffers no longer go back to the kernel.

A spoiled run is reported and not counted. Exits 1 where a check fails.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.harness import arguments, log, print_result
from latdoctor.lab.run_report import RunReport
from latdoctor.lab.runner import RunObserver, run_scenario
from latdoctor.lab.scenario import INCIDENT, find

LEAST_RISE, MOST_LEFT, LEAST_FAULTS, MOST_WASTE = 5.0, 0.3, 10.0, 0.3


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--report", type=Path, help="write the report of each run to this file")
    options = parser.parse_args()
    scenario = find("promo-rush")
    reports = []
    for seed in range(1, options.seeds + 1):
        report = run_scenario(scenario, seed, RunObserver(log=lambda text, seed=seed: log(f"seed {seed}: {text}")))
        reports.append(report)
        figures = ", ".join(f"{name} {value:.3g}" for name, value in _ratios(report).items())
        spoiled = "; ".join(problem.text for problem in report.problems)
        log(f"seed {seed}, {report.rate:.1f} requests/s: {figures}{f'; spoiled: {spoiled}' if spoiled else ''}")
    if options.report:
        options.report.write_bytes(msgspec.json.format(msgspec.json.encode(reports), indent=1) + b"\n")
    whole = [_ratios(report) for report in reports if not report.problems]
    if not whole:
        sys.exit("every run was spoiled")
    medians = {name: statistics.median(ratios[name] for ratios in whole) for name in whole[0]}
    failed = _failures(medians)
    print_result({"runs": len(whole), **medians, "failed": "; ".join(failed)}, options.output)
    sys.exit(bool(failed))


def _ratios(report: RunReport) -> Mapping[str, float]:
    before, incident, draining, after = (report.phase(name) for name in ("before", INCIDENT, "draining", "after"))
    return {
        "P99 incident/before": _over(incident.p99, before.p99),
        "P99 after/incident": _over(after.p99, incident.p99),
        "calls per answer draining/incident": _over(draining.calls_per_answer, incident.calls_per_answer),
        "calls per answer after/incident": _over(after.calls_per_answer, incident.calls_per_answer),
        "padding waste before": before.padding_waste or 0.0,
        "padding waste incident": incident.padding_waste or 0.0,
        "padding waste after": after.padding_waste or 0.0,
        "page faults per call incident/after": _over(incident.page_faults_per_call, after.page_faults_per_call),
    }


def _over(one: float | None, other: float | None) -> float:
    """The ratio; NaN, which passes no check, where a value was not measured."""
    return one / other if one is not None and other else float("nan")


def _failures(medians: Mapping[str, float]) -> Sequence[str]:
    holds = {
        "P99 incident/before": medians["P99 incident/before"] >= LEAST_RISE,
        "P99 after/incident": medians["P99 after/incident"] <= MOST_LEFT,
        "calls per answer after/incident": medians["calls per answer after/incident"] < 1,
        "padding waste after": medians["padding waste after"] <= MOST_WASTE,
        "page faults per call incident/after": medians["page faults per call incident/after"] >= LEAST_FAULTS,
    }
    return [f"{name} = {medians[name]:.3g}" for name, held in holds.items() if not held]


if __name__ == "__main__":
    main()
