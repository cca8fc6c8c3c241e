# ruff: noqa: A005 (nothing imports a benchmark)
"""Reading and analysing a trace of one million events, against only decoding it, and against HolisticTraceAnalysis.

    python bench/trace.py --output json       # makes seeded traces in a temporary folder first (2.8 GB of them)
    python bench/trace.py --skip-long         # without the one ten times as long
    python bench/trace.py --install-hta       # puts HolisticTraceAnalysis into an environment of its own, .cache/hta
    python bench/trace.py trace.json --runs 7

Each run is a process of its own, the start of Python included, but without latdoctor's other sources, whose loading
takes a tenth of a second more; the contestants take turns, and medians are compared.

`ratio_to_decode`  read and analysed by one process over a process that reads the file and decodes it whole into the
                   same typed events; the larger of the ratios of wall and of processor time. Aim: 1.2
`ratio_to_hta`     the time in which HTA loads it over ours. Aim: 30. null where HTA is not installed
`peak_mb`          memory of the one process. Aim: 100
`peak_growth_10x`  the same for a trace ten times as long, over it. Aim: 1.3
`two_processes`    how much faster two processes read it, on two processors; `two_processes_10x` for the longer one, in
                   which loading numpy and the last sums weigh less. Aim: 1.6

Times on a machine with neighbours swing by a third and more: every run is listed, with the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from latdoctor.evaluation.machine_state import state

BENCH = Path(__file__).resolve().parent
SOURCE = BENCH.parent / "src"
EVENTS_MODULE = SOURCE / "latdoctor" / "collectors" / "torch_trace" / "events.py"
HTA_HOME = BENCH.parent / ".cache" / "hta"
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
# What a diagnosis does with a trace up to its evidence.
READ = f"""
import os, resource, sys, types
from pathlib import Path
# The other sources are no part of the comparison: their package is there, but what it would load is not.
collectors = sys.modules["latdoctor.collectors"] = types.ModuleType("latdoctor.collectors")
collectors.__path__ = [{str(SOURCE / "latdoctor" / "collectors")!r}]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the collector does
from latdoctor.collectors.torch_trace.reader import read_trace
from latdoctor.evidence.bundle import Artifact
artifact = Artifact("torch_trace/bench.json", "torch_trace", "bench", sys.argv[1], 0.0, Path(sys.argv[1]))
evidence = read_trace(artifact, halves=HALVES)
kernels = next(r.value for r in evidence.readings if r.signal == "trace.kernels")
print(int(kernels), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
LOAD_WITH_HTA = """
import sys, time
from pathlib import Path
started = time.perf_counter()
from hta.trace_analysis import TraceAnalysis
path = Path(sys.argv[1])
TraceAnalysis(trace_files={0: path.name}, trace_dir=str(path.parent))
print(1, 0)
"""
ONE, BOTH = READ.replace("HALVES", "False"), READ.replace("HALVES", "True")


def run_once(code: str, trace: Path, python: str = sys.executable) -> dict[str, float]:
    """Seconds of wall and processor time and peak memory (MB) of one process; that of its children is added."""
    started = time.perf_counter()
    # Compiled modules are kept, as they are where latdoctor is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(SOURCE)
    process = subprocess.Popen([python, "-P", "-c", code, str(trace)], stdout=subprocess.PIPE, env=environment)
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
        "peak_mb": round((used.ru_maxrss + int(said[-1])) * unit / 1e6, 1),
        "counted": int(said[-2]),
    }


def median(runs: Sequence[Mapping[str, float]], what: str) -> float:
    return statistics.median(run[what] for run in runs)


def generate(trace: Path, events: int, seed: int) -> None:
    options = ["--events", str(events), "--seed", str(seed)]
    made = [sys.executable, str(BENCH / "generate_trace.py"), str(trace), *options]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)


def hta_python(install: bool) -> str | None:
    """The Python of HTA's own environment, made if asked for; None where there is none."""
    python = HTA_HOME / "bin" / "python"
    if install and not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HTA_HOME)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", HTA], check=True)
    return str(python) if python.exists() else None


def measure(trace: Path, runs: int) -> dict[str, object]:
    """The three contestants in turn, `runs` times."""
    decode, one, both = [], [], []
    for code in (DECODE, ONE, BOTH):  # once unmeasured: modules are compiled, the file is in memory
        run_once(code, trace)
    for _ in range(runs):
        decode.append(run_once(DECODE, trace))
        one.append(run_once(ONE, trace))
        both.append(run_once(BOTH, trace))
    ratios = {what: median(one, f"{what}_s") / median(decode, f"{what}_s") for what in ("wall", "cpu")}
    return {
        "file_bytes": trace.stat().st_size,
        "ratio_to_decode": round(max(ratios.values()), 3),
        "ratio_to_decode_wall": round(ratios["wall"], 3),
        "ratio_to_decode_cpu": round(ratios["cpu"], 3),
        "peak_mb": max(run["peak_mb"] for run in one),
        "two_processes": round(median(one, "wall_s") / median(both, "wall_s"), 3),
        "two_processes_peak_mb": max(run["peak_mb"] for run in both),
        "runs": {"decode": decode, "one": one, "both": both},
    }


def benchmark(given: argparse.Namespace, folder: Path) -> dict[str, object]:
    before = state()
    trace = given.trace or folder / "trace.json"
    if given.trace is None:
        generate(trace, given.events, given.seed)
    found = measure(trace, given.runs)
    python = hta_python(given.install_hta)
    hta = run_once(LOAD_WITH_HTA, trace, python) if python else None
    one = found["runs"]["one"]  # type: ignore[index]  # made above
    found["ratio_to_hta"] = round(hta["wall_s"] / median(one, "wall_s"), 1) if hta else None
    found["hta"] = hta or "not installed: --install-hta"
    found["peak_growth_10x"] = None
    if not given.skip_long and given.trace is None:
        trace.unlink()
        generate(trace, LONGER * given.events, given.seed)
        longer = run_once(ONE, trace)
        two = run_once(BOTH, trace)
        found["peak_growth_10x"] = round(longer["peak_mb"] / float(str(found["peak_mb"])), 3)
        found["two_processes_10x"] = round(longer["wall_s"] / two["wall_s"], 3)
        found["longer"] = {"one": longer, "both": two}
    return {"benchmark": "trace", **found, "machine_before": before, "machine_after": state()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?", help="a trace to read instead of a generated one")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--skip-long", action="store_true", help="leave the trace ten times as long out")
    parser.add_argument("--install-hta", action="store_true", help=f"install {HTA} into .cache/hta first")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = benchmark(given, Path(folder))
    if given.output == "json":
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(f"{key:22} {value}" for key, value in found.items() if isinstance(value, int | float | None)))


if __name__ == "__main__":
    main()
