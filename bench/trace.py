# ruff: noqa: A005 (nothing imports a benchmark)
"""Wall time and peak memory of diagnosing a trace of one million events, in a process of its own.

    python bench/trace.py                     # makes a seeded trace in a temporary folder first
    python bench/trace.py trace.json --runs 7

Prints JSON. Aim: under 2.3 s and 850 MB for the whole process, the start of Python included. Times on a machine with
neighbours swing by a third and more, so each run is listed, with the load of the machine at its beginning and end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).parent
EVENTS = 1_000_000
# What a diagnosis does with a trace up to its evidence; prints how many readings came out.
DIAGNOSE = """
import sys, time
from pathlib import Path
from latdoctor.collect.source import Request
from latdoctor.collect.torch_trace.collector import COLLECTOR
class Clock:
    now = staticmethod(time.time)
    sleep = staticmethod(time.sleep)
found = COLLECTOR.collect(Request(traces=(Path(sys.argv[1]),)), Clock())
evidence = COLLECTOR.parse(found.artifacts)
kernels = next(r.value for r in evidence.readings if r.signal == "trace.kernels")
print(len(evidence.readings), int(kernels))
"""


def machine() -> dict[str, object]:
    processors = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": len(processors),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def run_once(trace: Path) -> dict[str, float]:
    """Seconds of wall and processor time and peak memory (MB) of one process that reads and analyses `trace`."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", DIAGNOSE, str(trace)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read().split()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the process ended with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes there, KiB elsewhere
    return {
        "wall_s": round(wall, 3),
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "peak_rss_mb": round(used.ru_maxrss * unit / 1e6, 1),
        "readings": int(said[0]),
        "kernels": int(said[1]),
    }


def measure(trace: Path, runs: int) -> dict[str, object]:
    before = machine()
    done = [run_once(trace) for _ in range(runs)]
    return {
        "benchmark": "trace",
        "file_bytes": trace.stat().st_size,
        "runs": done,
        "median_wall_s": statistics.median(run["wall_s"] for run in done),
        "median_cpu_s": statistics.median(run["cpu_s"] for run in done),
        "peak_rss_mb": max(run["peak_rss_mb"] for run in done),
        "machine_before": before,
        "machine_after": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?", help="a trace to read instead of a generated one")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = given.trace or Path(folder, "trace.json")
        if given.trace is None:
            options = ["--events", str(given.events), "--seed", str(given.seed)]
            made = [sys.executable, str(BENCH / "generate_trace.py"), str(trace), *options]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        print(json.dumps(measure(trace, given.runs), indent=1))


if __name__ == "__main__":
    main()
