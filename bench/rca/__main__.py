"""`python -m bench.rca RECORDINGS [-o json]`: PyRCA's HT in the contest of the incident bench."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path
from subprocess import PIPE
from typing import IO

import msgspec
from bench.rca.columns import given

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
ENVIRONMENT = HERE.parents[1] / ".cache" / "rca"
REQUIREMENTS = HERE / "requirements.txt"
STAMP = ENVIRONMENT / "requirements-installed.txt"
HT_VARIANTS = {"pyrca-ht": False, "pyrca-ht-adjusted": True}  # with the adjustment for descendants, or without


def main() -> None:
    """Keeps HT's scores beside the recordings, and prints how it does beside the other peers."""
    parser = argparse.ArgumentParser(prog="python -m bench.rca", description=__doc__)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    runs = comparable_runs(tuple(recordings(options.recordings)))
    if not runs:
        raise OperationError("holds no recording to judge peers on", where=str(options.recordings))
    with subprocess.Popen([ready(), str(HERE / "ht.py")], stdin=PIPE, stdout=PIPE, text=True) as child:
        for name, adjusted in HT_VARIANTS.items():
            scored = {one.run: _scored(child, one, name, adjusted=adjusted) for one in runs}
            print(f"wrote {keep(options.recordings, StoredScores(name, scored))}", file=sys.stderr)
        if child.stdin:
            child.stdin.close()
    methods = (*stored_methods(options.recordings), *METHODS)
    found = compare_methods(methods, runs, split(), lambda line: print(clean(line), file=sys.stderr))
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    print(f"{'method':<22} {'AC@1':>6} {'AC@3':>6} {'Avg@5':>6} {'broke':>6} {'runs':>6}")
    for peer in found:
        shares = [-1.0 if one.value is None else one.value for one in (peer.ac1, peer.ac3, peer.avg5)]
        print(f"{peer.name:<22} {' '.join(f'{one:6.3f}' for one in shares)} {peer.crashed:6d} {peer.ac1.of:6d}")


def ready() -> str:
    """The environment's interpreter; made first where it is missing or old. Raises OperationError."""
    wanted = REQUIREMENTS.read_text()
    python = str(ENVIRONMENT / "bin" / "python")
    if STAMP.exists() and STAMP.read_text() == wanted:
        return python
    print(f"Setting up {ENVIRONMENT} with PyRCA; a minute.", file=sys.stderr)
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    # --no-deps: PyRCA asks for a bridge to Java that nothing of it that is used here needs.
    install = [python, "-m", "pip", "install", "-qq", "--no-deps", "--requirement", str(REQUIREMENTS)]
    if subprocess.run(install, stdout=sys.stderr, check=False).returncode:
        raise OperationError("PyRCA could not be installed", next_step="see what pip said above")
    STAMP.write_text(wanted)
    return python


@cache
def _columns(recorded: RecordedRun) -> Signals:
    return shuffled(signals(recorded), seed_of(recorded))


def _scored(child: subprocess.Popen[str], recorded: RecordedRun, name: str, *, adjusted: bool) -> MetricScores:
    """The scores of one recording; latency itself may not be named."""
    try:
        whole = given(_columns(recorded))
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
        raise OperationError("the peer's environment has no pipe")
    to.write(f"{text}\n")
    to.flush()
    answer = back.readline()
    if not answer:
        raise OperationError("the peer's environment ended", next_step="see what it said above")
    return answer


if __name__ == "__main__":
    try:
        main()
    except LatdoctorError as error:
        sys.exit(clean(str(error)))
