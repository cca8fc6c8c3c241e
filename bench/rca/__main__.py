"""`python -m bench.rca RECORDINGS [-o json]`: PyRCA's HT as one more method of the diagnosis benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from subprocess import PIPE
from typing import IO

from bench.harness import arguments, environment, log, print_result
from bench.rca.columns import method_columns
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.evaluation.baselines.adapter import StoredScores, keep, seed_of, stored_methods
from latdoctor.evaluation.baselines.inputs import signals
from latdoctor.evaluation.baselines.methods import MetricScores, Signals, ranked, shuffled
from latdoctor.evaluation.benchmark import METHODS
from latdoctor.evaluation.ground_truth import split
from latdoctor.evaluation.method_comparison import comparable_runs, compare_methods
from latdoctor.evaluation.store import RecordedRun, recordings
from latdoctor.sanitize import clean

HERE = Path(__file__).parent
HT_VARIANTS = {"pyrca-ht": False, "pyrca-ht-adjusted": True}  # with the adjustment for descendants, or without


def main() -> None:
    """Store HT's scores beside the recordings, and print its accuracy beside that of the other methods."""
    parser = arguments(__doc__)
    parser.add_argument("recordings", type=Path)
    options = parser.parse_args()
    runs = comparable_runs(tuple(recordings(options.recordings)))
    if not runs:
        raise OperationError("there is no run to compare methods on", where=str(options.recordings))
    # --no-deps: PyRCA requires a bridge to Java that HT does not use.
    python = environment("rca", (HERE / "requirements.txt").read_text(), "--no-deps")
    with subprocess.Popen([str(python), str(HERE / "ht.py")], stdin=PIPE, stdout=PIPE, text=True) as child:
        for name, adjusted in HT_VARIANTS.items():
            scored = {one.run: _scored(child, one, name, adjusted=adjusted) for one in runs}
            log(f"wrote {keep(options.recordings, StoredScores(name, scored))}")
        if child.stdin:
            child.stdin.close()
    methods = (*stored_methods(options.recordings), *METHODS)
    found = compare_methods(methods, runs, split(), lambda line: log(clean(line)))
    rows = [f"{'method':<22} {'AC@1':>6} {'AC@3':>6} {'Avg@5':>6} {'failed':>6} {'runs':>6}"]
    for method in found:
        shares = [-1.0 if one.value is None else one.value for one in (method.ac1, method.ac3, method.avg5)]
        figures = " ".join(f"{one:6.3f}" for one in shares)
        rows.append(f"{method.name:<22} {figures} {method.crashed:6d} {method.ac1.of:6d}")
    print_result(found, options.output, "\n".join(rows))


@cache
def _columns(recorded: RecordedRun) -> Signals:
    return shuffled(signals(recorded), seed_of(recorded))


def _scored(child: subprocess.Popen[str], recorded: RecordedRun, name: str, *, adjusted: bool) -> MetricScores:
    """The scores of one run, without those of latency itself."""
    try:
        whole = method_columns(_columns(recorded))
    except ValueError as error:
        return MetricScores(name, failed=str(error))
    options = {
        "names": whole.names,
        "before": whole.before.tolist(),
        "incident": whole.incident.tolist(),
        "edges": whole.edges,
        "adjusted": adjusted,
    }
    answer = json.loads(_line(child.stdin, child.stdout, json.dumps(options)))
    if "failed" in answer:
        return MetricScores(name, failed=clean(str(answer["failed"]), 300))
    scores = {column: float(answer["scores"][column]) for column in whole.names if column in answer["scores"]}
    scores.pop(whole.latency, None)
    return ranked(name, scores)


def _line(to: IO[str] | None, back: IO[str] | None, text: str) -> str:
    if to is None or back is None:
        raise OperationError("the method's process has no pipe")
    to.write(f"{text}\n")
    to.flush()
    answer = back.readline()
    if not answer:
        raise OperationError("the method's process ended", next_step="see its output above")
    return answer


if __name__ == "__main__":
    try:
        main()
    except LatdoctorError as error:
        sys.exit(clean(str(error)))
