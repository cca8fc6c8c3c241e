"""How long `latdoctor --help` and `latdoctor diagnose BUNDLE` take beside a process that only imports typer and rich.

Usage: python -m bench.startup [--runs 15] [--bundle fixtures/incidents/promo-rush.tar.zst]
Wall time of whole processes, warm and interleaved, with byte code cached as pip leaves it. Prints medians in
milliseconds, their ratios to the imports alone with 95 % intervals, the targets, and the state of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from msgspec import structs

from bench.harness import ROOT, arguments, print_result
from latdoctor.evaluation.statistics import bootstrap
from latdoctor.load.machine_state import state

REFERENCE = "imports"
TARGETS = {"help": 1.7, "diagnose": 8.0}  # times the reference


def _milliseconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    taken = (time.perf_counter() - started) * 1000
    if done.returncode in (1, 2):  # diagnose exits with 3 or 4 for what it found
        sys.exit(done.stderr.decode())
    return taken


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return round(median(taken for taken, _ in pairs) / median(reference for _, reference in pairs), 2)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--bundle", default="fixtures/incidents/promo-rush.tar.zst")
    options = parser.parse_args()
    latdoctor = str(Path(sys.executable).with_name("latdoctor"))
    commands = {
        REFERENCE: [sys.executable, "-c", "import typer, rich.console"],
        "help": [latdoctor, "--help"],
        "diagnose": [latdoctor, "diagnose", options.bundle],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as cached:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": cached, "LATDOCTOR_STATE": f"{cached}/state"}
        for command in commands.values():  # warm the page cache and write the byte code
            _milliseconds(command, environment)
        for _ in range(options.runs):  # interleaved, so that a noisy moment affects all of them
            for name, command in commands.items():
                taken[name].append(_milliseconds(command, environment))
    ratios = {name: bootstrap(list(zip(taken[name], taken[REFERENCE], strict=True)), _ratio) for name in TARGETS}
    report = {
        "median_ms": {name: round(median(values), 1) for name, values in taken.items()},
        "ratio": {name: structs.asdict(found) | {"target": TARGETS[name]} for name, found in ratios.items()},
        "machine": state(),
    }
    print_result(report, options.output)


if __name__ == "__main__":
    main()
