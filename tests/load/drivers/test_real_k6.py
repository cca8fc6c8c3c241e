"""The exported plan in a real k6, where there is one."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from latdoctor.load.arrivals import Arrivals, Constant, OnOff, Poisson, Ramp
from latdoctor.load.drivers.k6_script import k6_script
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy
from tests.load.drivers.programs import k6_program
from tests.load.drivers.recording import recording

THRESHOLDS_CROSSED = 99  # k6's exit code
PLAN = LoadPlan(
    (
        LoadPhase("calm", 1.0, Constant(40), Mix(sessions=3)),
        LoadPhase("rush", 1.0, OnOff(100, 0.3, 0.2, 20), Mix(long_share=0.4)),
    ),
    seed=5,
    retry=RetryPolicy(RetryKind.IMMEDIATE, attempts=2),
)


def ran(folder: Path, plan: LoadPlan, address: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the metrics of k6's summary."""
    program = k6_program()
    (folder / "load.js").write_text(k6_script(plan))
    done = subprocess.run(
        [
            program,
            "run",
            "--no-usage-report",
            "--summary-export",
            str(folder / "summary.json"),
            str(folder / "load.js"),
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LOAD_TARGET": address, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (folder / "summary.json").exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())["metrics"]
    return done.returncode, found


def test_k6_sends_the_phases_with_their_retries_and_meets_the_slo(tmp_path: Path) -> None:
    with recording() as server:
        code, metrics = ran(tmp_path, PLAN, server.address, LOAD_AUTHORIZATION="Bearer x")
    first = Counter(one.id.split("-")[1] for one in server.received if one.attempt == "0")
    assert first["0"] == pytest.approx(40, abs=1)
    assert first["1"] == pytest.approx(sum((100 * 0.3, 20 * 0.2, 100 * 0.3, 20 * 0.2)), abs=3)
    again = [one for one in server.received if one.attempt == "1"]
    assert len(again) == sum(one.id.endswith("0") for one in server.received if one.attempt == "0") > 0
    assert {one.headers["authorization"] for one in server.received} == {"Bearer x"}
    assert metrics["requests_answered"]["count"] == sum(first.values())
    assert (code, metrics["good{scenario:rush}"]["value"]) == (0, 1)


def test_a_missed_slo_is_k6s_exit_code(tmp_path: Path) -> None:
    plan = LoadPlan((LoadPhase("only", 1.0, Constant(30)),), slo_s=0.1)
    with recording(frozen=(0.2, 0.8)) as server:
        code, metrics = ran(tmp_path, plan, server.address)
    assert code == THRESHOLDS_CROSSED
    assert metrics["good{scenario:only}"]["value"] < 0.9
    assert metrics["latency"]["p(99)"] > 300


@pytest.mark.parametrize(
    ("arrivals", "count"), [(Poisson(60), 120), (Ramp(10, 90), 100)], ids=lambda one: type(one).__name__
)
def test_random_arrivals_are_spread(tmp_path: Path, arrivals: Arrivals, count: int) -> None:
    plan = LoadPlan((LoadPhase("only", 2.0, arrivals, Mix(long_share=0)),))
    with recording() as server:
        ran(tmp_path, plan, server.address)
    times = [one.at for one in server.received if one.attempt == "0"]
    assert len(times) == pytest.approx(count, abs=5)
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert statistics.stdev(gaps) > 0.5 * statistics.fmean(gaps)  # of even gaps about 0, of Poisson's 1
