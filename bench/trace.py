# ruff: noqa: A005 (nothing imports a benchmark)
"""Reading and analysing a trace of one million events, against only decoding it, and against HolisticTraceAnalysis.

    python -m bench.trace --output json      # generates seeded traces in a temporary folder first (2.8 GB of them)
    python -m bench.trace --skip-long        # without the one ten times as long
    python -m bench.trace --install-hta      # installs HolisticTraceAnalysis into an environment of its own, .cache/hta
    python -m bench.trace trace.json --runs 7

Each run is a process of its own, the start of Python included, but without latdoctor's other sources, whose loading
takes a tenth of a second more. The methods alternate, and medians are compared.

`ratio_to_decode`  read and analysed by one process over a process that reads the file and decodes it whole into the
                   same typed events; the larger of the ratios of wall and of processor time. Target: 1.2
`ratio_to_hta`     the time in which HTA loads it over ours. Target: 30. null where HTA is not installed
`peak_mb`          memory of the one process. Target: 100
`peak_growth_10x`  the same for a trace ten times as long, over it. Target: 1.3
`two_processes`    the speed-up by two processes, on two processors; `two_processes_10x` for the longer one, in which
                   loading numpy and the last sums weigh less. Target: 1.6

Times on a shared machine vary by a third and more: every run is listed, with the load of the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.harness import CACHE, SOURCE, arguments, environment, print_result, run_process
from latdoctor.load.machine_state import state

EVENTS_MODULE = SOURCE / "latdoctor" / "collectors" / "torch_trace" / "events.py"
HTA = "HolisticTraceAnalysis==0.5.0"
EVENTS = 1_000_000
LONGER = 10

# Reads the file whole and decodes it into the very same events, without loading anything else of latdoctor.
DECODE = f"""
import importlib.util, sys, msgspec
spec = importlib.util.spec_from_file_location("events", {str(EVENTS_MODULE)!r})
events = importlib.util.module_from_spec(spec); sys.modules["events"] = events; spec.loader.exec_module(events)
class Whole(msgspec.Struct, rename={{"events": "traceEvents"}}):
    events: list[events.TraceEvent]
whole = msgspec.json.decode(open(sys.argv[1], "rb").read(), type=Whole)
print(len(whole.events), 0)
"""
# The work of a diagnosis on a trace, up to its evidence.
READ = f"""
import os, resource, sys, types
from pathlib import Path
# The other sources are not part of the comparison: their package exists, but imports nothing.
collectors = sys.modules["latdoctor.collectors"] = types.ModuleType("latdoctor.collectors")
collectors.__path__ = [{str(SOURCE / "latdoctor" / "collectors")!r}]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the collector does
from latdoctor.collectors.torch_trace.read_traces import read_trace
from latdoctor.evidence.bundle import Artifact
artifact = Artifact("torch_trace/bench.json", "torch_trace", "bench", sys.argv[1], 0.0, Path(sys.argv[1]))
evidence = read_trace(artifact, halves=HALVES)
kernels = next(r.value for r in evidence.readings if r.signal == "trace.kernels")
print(int(kernels), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
LOAD_WITH_HTA = """
import sys
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
path = Path(sys.argv[1])
TraceAnalysis(trace_files={0: path.name}, trace_dir=str(path.parent))
print(1, 0)
"""
ONE, BOTH = READ.replace("HALVES", "False"), READ.replace("HALVES", "True")


def median(runs: Sequence[Mapping[str, float]], what: str) -> float:
    return statistics.median(run[what] for run in runs)


def generate(trace: Path, events: int, seed: int) -> None:
    command = [sys.executable, "-m", "bench.generate_trace", str(trace), "--events", str(events), "--seed", str(seed)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def hta_python(install: bool) -> str | None:
    """The interpreter of HTA's environment, set up if `install`; None without one."""
    if install:
        return str(environment("hta", f"{HTA}\n"))
    python = CACHE / "hta" / "bin" / "python"
    return str(python) if python.exists() else None


def measure(trace: Path, runs: int) -> dict[str, object]:
    """The three methods alternately, `runs` times."""
    methods = {"decode": DECODE, "one": ONE, "both": BOTH}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    for number in range(runs + 1):
        for name, code in methods.items():
            run = run_process(code, trace)
            if number:  # the first round compiles modules and brings the file into memory
                found[name].append(run)
    one, decode, both = found["one"], found["decode"], found["both"]
    ratios = {what: median(one, f"{what}_s") / median(decode, f"{what}_s") for what in ("wall", "cpu")}
    return {
        "file_bytes": trace.stat().st_size,
        "ratio_to_decode": round(max(ratios.values()), 3),
        "ratio_to_decode_wall": round(ratios["wall"], 3),
        "ratio_to_decode_cpu": round(ratios["cpu"], 3),
        "peak_mb": max(run["peak_mb"] for run in one),
        "two_processes": round(median(one, "wall_s") / median(both, "wall_s"), 3),
        "two_processes_peak_mb": max(run["peak_mb"] for run in both),
        "runs": found,
    }


def benchmark(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    before = state()
    trace = options.trace or folder / "trace.json"
    if options.trace is None:
        generate(trace, options.events, options.seed)
    found = measure(trace, options.runs)
    python = hta_python(options.install_hta)
    hta = run_process(LOAD_WITH_HTA, trace, python=python) if python else None
    one = median(found["runs"]["one"], "wall_s")  # type: ignore[index]  # set above
    found["ratio_to_hta"] = round(hta["wall_s"] / one, 1) if hta else None
    found["hta"] = hta or "not installed: --install-hta"
    found["peak_growth_10x"] = None
    if not options.skip_long and options.trace is None:
        trace.unlink()
        generate(trace, LONGER * options.events, options.seed)
        longer, both = run_process(ONE, trace), run_process(BOTH, trace)
        found["peak_growth_10x"] = round(longer["peak_mb"] / float(str(found["peak_mb"])), 3)
        found["two_processes_10x"] = round(longer["wall_s"] / both["wall_s"], 3)
        found["longer"] = {"one": longer, "both": both}
    return {"benchmark": "trace", **found, "machine_before": before, "machine_after": state()}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("trace", type=Path, nargs="?", help="a trace to read instead of a generated one")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--skip-long", action="store_true", help="leave out the trace ten times as long")
    parser.add_argument("--install-hta", action="store_true", help=f"install {HTA} into .cache/hta first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_result(benchmark(options, Path(folder)), options.output)


if __name__ == "__main__":
    main()
