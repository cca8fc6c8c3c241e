"""How fast a server's log of one gigabyte is read, beside `grep -c` on the same file in the same run.

    python -m bench.logs --output json

The log is generated (`--seed`): what an inference server of eight workers writes, with statistics, requests, warnings
and tracebacks, and a CUDA error in one line of 100,000. Each reading is a process of its own.

`diagnose_mb_s`      MB per second of processor time of `latdoctor diagnose FILE`: recognised, read, judged and printed.
                     Target: 60
`diagnose_to_grep`   its processor time over that of `grep -c` for one of the words in it
`diagnose_peak_mb`   its peak memory. Target: 100
`collect_mb_s`       the same of `latdoctor collect`, which redacts the log and packs it into a bundle
`collect_peak_mb`    its peak memory
`events`             CUDA errors that were found, and `expected` those that were written

grep runs before and after each reading, from the page cache like it, and the median of its runs counts, so that the
load of a shared machine affects both. `…_wall_s` is the time that passed, with whatever else the machine did.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.harness import ROOT, SOURCE, arguments, log, print_result
from latdoctor.load.machine_state import state

SIZE = 1000  # MB
SEED = 1
RARE = 100_000  # lines for one with an error
_PATTERN = "illegal memory access"
_MODULES = ("core", "scheduler", "loggers", "worker", "executor", "cache", "api", "async_llm")
_WORDS = [
    "block",
    "table",
    "worker",
    "step",
    "hidden",
    "graph",
    "capture",
    "warm",
    "queue",
    "finished",
    "aborted",
    "added",
    "batch",
    "stream",
    "chunk",
    "layer",
]


def lines(seed: int) -> Iterator[bytes]:
    """The log, line by line, without an end."""
    noise = random.Random(seed)
    moment = datetime(2025, 5, 19, 10, 0, tzinfo=UTC)
    number = 0
    while True:
        number += 1
        moment += timedelta(milliseconds=noise.randrange(20))
        stamp = f"{moment:%m-%d %H:%M:%S}"
        front = f"(Worker_TP{noise.randrange(8)} pid={noise.randrange(900, 908)}) "
        module = f"[{noise.choice(_MODULES)}.py:{noise.randrange(1, 900)}]"
        if number % RARE == RARE // 2:
            yield f"{front}ERROR {stamp} {module} RuntimeError: CUDA error: an {_PATTERN} was encountered\n".encode()
        elif number % 1000 == 0:
            yield (
                f"INFO {stamp} [loggers.py:111] Engine 0: Avg prompt throughput: {noise.random() * 9e3:.1f} tokens/s, "
                f"Avg generation throughput: {noise.random() * 900:.1f} tokens/s, Running: {noise.randrange(99)} reqs, "
                f"Waiting: {noise.randrange(9)} reqs, GPU KV cache usage: {noise.random() * 100:.1f}%, "
                f"Prefix cache hit rate: {noise.random() * 100:.1f}%\n"
            ).encode()
        elif number % 50 == 0:
            key = noise.randbytes(16).hex()
            yield f"INFO {stamp} {module} Added request cmpl-{key} of u{noise.randrange(99)}@example.org\n".encode()
        else:
            words = " ".join(noise.choices(_WORDS, k=noise.randrange(4, 16)))
            yield f"{front}DEBUG {stamp} {module} {words} {noise.randrange(10**6)}\n".encode()


def generate(path: Path, size: int, seed: int) -> int:
    """Write `size` MB to `path`; returns how many errors are in it."""
    errors = written = 0
    # One part is generated and repeated: Python would take minutes for a gigabyte.
    part = b"".join(line for line, _ in zip(lines(seed), range(4 * RARE), strict=False))
    with path.open("wb") as file:
        while written < size * 1_000_000:
            file.write(part)
            written += len(part)
            errors += part.count(_PATTERN.encode())
    return errors


@dataclass(frozen=True, slots=True)
class _Run:
    """One process: seconds of the processor and in all, peak memory in MB, and what it printed."""

    seconds: float
    wall: float
    peak: float
    printed: bytes


def _run(command: Sequence[str], where: Path) -> _Run:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "LATDOCTOR_STATE": str(where / "state"), "NO_COLOR": "1"}
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=where, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        printed = output.read()
    _, status, used = os.wait4(process.pid, 0)
    taken = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3, 4):
        raise SystemExit(f"{command[0]} ended with exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes there, KiB elsewhere
    return _Run(used.ru_utime + used.ru_stime, taken, used.ru_maxrss * unit / 1e6, printed)


def benchmark(size: int, seed: int, *, runs: int, collect: bool) -> dict[str, object]:
    before = state()
    latdoctor = [str(Path(sys.executable).with_name("latdoctor"))]
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_SCRATCH")) as folder:
        where = Path(folder)
        path = where / "server.log"
        log(f"Writing {size} MB.")
        # By a process of its own: the peak memory of a child is at least that of the process that starts it.
        words = [sys.executable, "-m", "bench.logs", "--size", str(size), "--seed", str(seed), "--write", str(path)]
        expected = int(subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
        size_mb = path.stat().st_size / 1e6
        grep = ["grep", "-c", _PATTERN, str(path)]
        grepped = [_run(grep, where)]
        read = []
        for _ in range(runs):
            read.append(_run([*latdoctor, "diagnose", str(path), "--output", "json"], where))
            grepped.append(_run(grep, where))
        found: dict[str, object] = {
            "benchmark": "logs",
            "size_mb": round(size_mb, 1),
            **_figures("diagnose", read, size_mb, grepped),
            "events": _errors_in(read[-1].printed),
            "expected": expected,
        }
        if collect:
            saved = _run([*latdoctor, "collect", "--log", str(path), "--to", "bundle.tar.zst"], where)
            found |= _figures("collect", [saved], size_mb, grepped)
        found["grep_mb_s"] = round(size_mb / statistics.median(one.seconds for one in grepped))
    return found | {"machine_before": before, "machine_after": state()}


def _figures(name: str, runs: Sequence[_Run], size: float, grepped: Sequence[_Run]) -> dict[str, float]:
    seconds = statistics.median(one.seconds for one in runs)
    return {
        f"{name}_s": round(seconds, 2),
        f"{name}_wall_s": round(statistics.median(one.wall for one in runs), 2),
        f"{name}_mb_s": round(size / seconds, 1),
        f"{name}_to_grep": round(seconds / statistics.median(one.seconds for one in grepped), 1),
        f"{name}_peak_mb": round(max(one.peak for one in runs), 1),
    }


def _errors_in(printed: bytes) -> int:
    """The count of failed CUDA calls that the diagnosis prints."""
    checks = {check["id"]: check for check in json.loads(printed)["checks"]}
    return int(checks["cuda-calls-fail"]["atoms"][0]["value"])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, default=SIZE, metavar="MB")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--no-collect", dest="collect", action="store_false", help="leave out redaction and packing")
    parser.add_argument("--write", type=Path, metavar="FILE", help="only write the log, and print its errors")
    options = parser.parse_args()
    if options.write:
        print(generate(options.write, options.size, options.seed))
        return
    print_result(benchmark(options.size, options.seed, runs=options.runs, collect=options.collect), options.output)


if __name__ == "__main__":
    main()
