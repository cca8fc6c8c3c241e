"""The cost of a diagnosis (300 signals, 200 findings, 60 causes) for one replica and for many, and the time from the
end of the window to a live answer.

Usage: python -m bench.diagnosis [--runs 15] [--replicas 1 2 4 8 16]
Prints medians of processor time in milliseconds, the increase per further replica (equal figures are a linear cost),
the wall time of `latdoctor diagnose --server URL --window 3s` beyond its window, and the state of the machine.
Synthetic rules are added to the shipped ones up to these numbers. About a tenth of the findings hold, so that sets of
three causes are summed.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from random import Random

from bench.harness import arguments, print_result
from latdoctor.conditions.ast import Comparison, Constant, SignalTerm, signals_of
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence, Origin, Reading, Subject, Window
from latdoctor.load.machine_state import state

SIGNALS, FINDINGS, CAUSES = 300, 200, 60
LIMIT_MS, LIMIT_AFTER_WINDOW = 50.0, 5.0
HOLDS = 0.1  # share of the findings that hold
WINDOW = 3.0  # seconds of the live observation
PAGE = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 40
# TYPE vllm:request_success_total counter
vllm:request_success_total{model_name="m",finished_reason="stop"} 100
"""


def rules() -> RuleSet:
    """The shipped rules, and as many synthetic ones as are missing."""
    shipped = rule_loader.shipped()
    findings = [*shipped.findings, *(_finding(number) for number in range(FINDINGS - len(shipped.findings)))]
    causes = list(shipped.causes)
    own = [finding.id for finding in findings if finding.id.startswith("synthetic-")]
    for number in range(CAUSES - len(causes)):
        expected = own[number * 3 % len(own) :][:3]
        causes.append(
            Cause(
                f"synthetic.cause.{number}",
                "synthetic",
                "framework",
                "warning",
                1.0,
                dict.fromkeys(expected, 0.9),
                "synthetic:1",
            )
        )
    return RuleSet(tuple(findings[:FINDINGS]), tuple(causes[:CAUSES]))


def _finding(number: int) -> Finding:
    signal = _values()[number]
    when = Comparison(SignalTerm(signal), ">", Constant((1.0,), "1"), f"{signal} > 1")
    return Finding(f"synthetic-{number:03}", f"{{{signal}}}", when, 0.02, "synthetic", "synthetic:1", tier="framework")


def _values() -> list[str]:
    return sorted(name for name, signal in catalogue().items() if signal.kind == "value")


def evidence(of: RuleSet, replicas: int) -> Evidence:
    """SIGNALS values of each replica, first those that the findings read."""
    read = {name for finding in of.findings for name in signals_of(finding.when) if name in catalogue()}
    plain = [name for name in _values() if name in read] + [name for name in _values() if name not in read]
    subjects = [Subject(f"replica/{number}") for number in range(replicas)]
    readings = []
    for subject in subjects:
        random = Random(subject.id)
        for name in plain[:SIGNALS]:
            value = 10 ** random.uniform(0, 6) if random.random() < HOLDS else 10 ** random.uniform(-6, -2)
            readings.append(Reading(name, subject.id, value, Origin("synthetic", name)))
    return Evidence(subjects=tuple(subjects), readings=tuple(readings))


def processor_ms(of: RuleSet, replicas: int, runs: int) -> tuple[float, int]:
    """The median, and how many findings fired."""
    taken, fired = [], 0
    for number in range(runs + 1):
        collected = evidence(of, replicas)  # anew, because its caches are part of the cost
        case = Case(Context("bench", slo_p99=0.5), Window(0.0, 10.0), collected, {})
        gc.collect()
        started = time.process_time()
        diagnosis = diagnose(case, of, Stamp("bench", "2026-01-01T00:00:00Z"))
        if number:  # the first one warms up
            taken.append((time.process_time() - started) * 1000)
        fired = sum(check.status == "fired" for check in diagnosis.checks)
    return statistics.median(taken), fired


class _Page(BaseHTTPRequestHandler):
    """A server's metrics page that never changes."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def after_the_window(runs: int) -> float:
    """Median seconds of wall time of the whole command, less its window."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    command = [sys.executable, "-m", "latdoctor", "diagnose", "--server", url, "--window", f"{WINDOW:g}s"]
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        taken.append(time.perf_counter() - started - WINDOW)
        if done.returncode not in (0, 3, 4):
            sys.exit(f"diagnose failed: {done.stderr}")
    server.shutdown()
    return statistics.median(taken)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    chosen = parser.parse_args()
    of = rules()
    found = {number: processor_ms(of, number, chosen.runs) for number in sorted(set(chosen.replicas))}
    added = {
        f"{few} to {many}": round((found[many][0] - found[few][0]) / (many - few), 2) for few, many in pairwise(found)
    }
    after = after_the_window(min(5, chosen.runs))
    first = found[min(found)][0]
    report = {
        "signals": SIGNALS,
        "findings": len(of.findings),
        "causes": len(of.causes),
        "fired": {str(number): fired for number, (_, fired) in found.items()},
        "median_processor_ms": {str(number): round(taken, 1) for number, (taken, _) in found.items()},
        "added_by_each_replica_ms": added,
        "seconds_after_the_window": round(after, 2),
        "within_limits": first < LIMIT_MS and after < LIMIT_AFTER_WINDOW,
        "machine": state(),
    }
    print_result(report, chosen.output)


if __name__ == "__main__":
    main()
