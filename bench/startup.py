"""How long `latdoctor --help` and `latdoctor diagnose BUNDLE` take, warm, beside a bare interpreter in the same run.

Usage: python bench/startup.py [--runs 15] [--bundle fixtures/incidents/gpu-thermal]
Prints JSON: medians in milliseconds, the ratios to the bare interpreter, and the state of the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from latdoctor.evaluation.machine_state import state

ROOT = Path(__file__).parents[1]
HELP_LIMIT_MS = 150
DIAGNOSE_LIMIT_MS = 1000


def _milliseconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--bundle", default="fixtures/incidents/gpu-thermal")
    chosen = parser.parse_args()
    latdoctor = str(Path(sys.executable).with_name("latdoctor"))
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "help": [latdoctor, "--help"],
        "diagnose": [latdoctor, "diagnose", chosen.bundle],
    }
    for command in commands.values():  # warm the page cache and the byte code
        _milliseconds(command)
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(chosen.runs):  # interleaved, so that a noisy moment hits all of them
        for name, command in commands.items():
            taken[name].append(_milliseconds(command))
    medians = {name: round(statistics.median(values), 1) for name, values in taken.items()}
    report = {
        "median_ms": medians,
        "ratio_to_bare": {name: round(value / medians["bare"], 1) for name, value in medians.items()},
        "within_limits": medians["help"] < HELP_LIMIT_MS and medians["diagnose"] < DIAGNOSE_LIMIT_MS,
        "machine": state(),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
