"""One trial: a generator sends a rate for a few seconds, alone on its processor."""

from __future__ import annotations

import csv
import math
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.harness import SOURCE
from bench.load_rate.served import ServerLog, serving
from latdoctor.load.arrivals import Constant
from latdoctor.load.drivers.k6_script import k6_script
from latdoctor.load.drivers.locust_file import locust_file
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import run_load
from latdoctor.load.summary import LoadResult

# The server answers at once: whatever a request takes beyond this is the generator's own delay.
ON_TIME = 0.010
KEPT = 0.99  # of the planned requests
TEXT = Mix(long_share=0, audio_share=0)


class Trial(Struct, frozen=True):
    """`rate` planned and `achieved`, per second. Times in seconds; None: the generator does not report it.

    Processor shares are of one core, over the seconds of sending. `bytes_in`, `bytes_out`: per request, at the server.
    """

    generator: str
    rate: float
    achieved: float
    late_p99: float | None
    p99: float | None
    not_sent: int
    generator_cpu: float
    server_cpu: float
    bytes_in: float
    bytes_out: float
    connections: int
    others: float | None = None  # share of all processors that other processes used meanwhile

    def spoiled(self, limit: float) -> bool:
        """Whether others used more than `limit` of the machine; unknown counts as more."""
        return self.others is None or self.others > limit

    @property
    def kept(self) -> bool:
        """Whether the load was offered as planned: all of it, and on time."""
        return self.sent and not self.not_sent and max(self.late_p99 or 0.0, self.p99 or 0.0) <= ON_TIME

    @property
    def sent(self) -> bool:
        """Whether (nearly) all of it was offered, however late."""
        return self.achieved >= KEPT * self.rate


def plan(rate: float, seconds: float) -> LoadPlan:
    """Evenly spaced short texts. The SLO only sizes the virtual users of k6: 50 ms of requests."""
    phase = LoadPhase("load", seconds, Constant(rate), TEXT)
    return LoadPlan((phase,), timeout_s=2.0, slo_s=0.05, warm_up_s=1.0, max_in_flight=2000)


def _child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def latdoctor(rate: float, seconds: float, server: int | None) -> Trial:
    """`lab load`: one process."""
    with serving(server) as running:
        result = run_load(plan(rate, seconds), running.address)
    return of_result("latdoctor lab load", rate, result, running.log)


def of_result(generator: str, rate: float, result: LoadResult, log: ServerLog) -> Trial:
    """A trial from a result in latdoctor's form; `log` is the server's."""
    total, requests = result.total, max(1, log.requests)
    return Trial(
        generator=generator,
        rate=rate,
        achieved=total.completed,
        late_p99=total.late_p99,
        p99=total.p99,
        not_sent=total.counts.not_sent,
        generator_cpu=result.generator.cpu_share,
        server_cpu=log.cpu_s / result.plan.seconds,
        bytes_in=log.bytes_in / requests,
        bytes_out=log.bytes_out / requests,
        connections=log.connections,
    )


def locust(python: Path, rate: float, seconds: float, server: int | None) -> Trial:
    """The exported plan in one Locust process. Raises SystemExit where it leaves no result."""
    with tempfile.TemporaryDirectory() as folder, serving(server) as running:
        file, result = Path(folder) / "locustfile.py", Path(folder) / "result.json"
        file.write_text(locust_file(plan(rate, seconds)))
        command = [python, "-m", "locust", "-f", file, "--headless", "--only-summary", "--host", running.address]
        _run(command, {"LOAD_RESULT": str(result), "PYTHONPATH": str(SOURCE)})
        found = msgspec.json.decode(result.read_bytes(), type=LoadResult)
    return of_result("Locust, exported plan", rate, found, running.log)


def k6(program: Path, rate: float, seconds: float, server: int | None) -> Trial:
    """The exported plan in one k6 process."""
    with tempfile.TemporaryDirectory() as folder, serving(server) as running:
        script, summary = Path(folder) / "load.js", Path(folder) / "summary.json"
        script.write_text(k6_script(plan(rate, seconds)))
        before = _child_seconds()
        command = [program, "run", "--quiet", "--no-usage-report", "--summary-export", summary, script]
        _run(command, {"LOAD_TARGET": running.address})
        used = _child_seconds() - before
        metrics = msgspec.json.decode(summary.read_bytes())["metrics"]
    log, requests = running.log, max(1, running.log.requests)
    return Trial(
        generator="k6, exported plan",
        rate=rate,
        achieved=log.requests / seconds,
        late_p99=None,
        p99=metrics["latency"]["p(99)"] / 1000,
        not_sent=int(metrics.get("dropped_iterations", {}).get("count", 0)),
        generator_cpu=used / seconds,
        server_cpu=log.cpu_s / seconds,
        bytes_in=log.bytes_in / requests,
        bytes_out=log.bytes_out / requests,
        connections=log.connections,
    )


def locust_closed(python: Path, users: int, seconds: float, server: int | None) -> Trial:
    """FastHttpUser in a closed loop: the most that one Locust process sends, whatever the latency."""
    with tempfile.TemporaryDirectory() as folder, serving(server) as running:
        file, prefix = Path(__file__).with_name("closed_locustfile.py"), Path(folder) / "closed"
        command = [python, "-m", "locust", "-f", file, "--headless", "--only-summary", "--host", running.address]
        command += ["-u", users, "-r", users, "-t", f"{math.ceil(seconds)}s", "--csv", prefix]
        before = _child_seconds()
        _run(command, {})
        used = _child_seconds() - before
        with Path(f"{prefix}_stats.csv").open() as stats:
            (row,) = (row for row in csv.DictReader(stats) if row["Name"] == "Aggregated")
    log, requests = running.log, max(1, running.log.requests)
    return Trial(
        generator=f"Locust, FastHttpUser, closed loop of {users}",
        rate=0.0,
        achieved=log.requests / seconds,
        late_p99=None,
        p99=float(row["99%"]) / 1000,
        not_sent=0,
        generator_cpu=used / seconds,
        server_cpu=log.cpu_s / seconds,
        bytes_in=log.bytes_in / requests,
        bytes_out=log.bytes_out / requests,
        connections=log.connections,
    )


def _run(command: Sequence[object], variables: Mapping[str, str]) -> None:
    """Run a generator to its end; a failed SLO is an exit code, no failure of the trial."""
    started = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    if done.returncode and time.monotonic() - started < 1:
        raise SystemExit(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-500:]}")
