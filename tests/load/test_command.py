"""`lab load` as a command: what it prints where, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from latdoctor.cli import load_run
from latdoctor.cli.lab_load import load
from latdoctor.errors import UsageError
from latdoctor.load.openloop import Progress
from tests.load.tiny_server import serving

app = typer.Typer()
app.command()(load)

PLAN = """
phases:
  - {name: calm, seconds: 0.3, arrivals: {kind: constant, rate: 40}}
  - {name: rush, seconds: 0.3, arrivals: {kind: ramp, from_rate: 40, to_rate: 400}, mix: {long_share: 0.5}}
late_ms: 5000
"""


def test_plan_runs_and_its_phases_are_printed(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    with serving() as server:
        text = CliRunner().invoke(app, [server.address, "--plan", str(file)])
        whole = CliRunner().invoke(app, [server.address, "--plan", str(file), "-o", "json", "--seed", "4"])
        series = CliRunner().invoke(app, [server.address, "--plan", str(file), "-o", "csv"])
    assert (text.exit_code, whole.exit_code, series.exit_code) == (0, 0, 0)
    assert [line.split()[0] for line in text.stdout.splitlines() if line[:4] in {"calm", "rush", "all "}] == [
        "calm",
        "rush",
        "all",
    ]
    assert "now P50" in text.stderr
    assert "P99" in text.stderr
    document = json.loads(whole.stdout)
    assert document["plan"]["seed"] == 4
    rows = list(csv.DictReader(io.StringIO(series.stdout)))
    assert len(rows) == 1
    assert int(rows[0]["requests"]) == int(rows[0]["answered"]) + int(rows[0]["refused"])


def test_a_spoiled_run_says_so_and_leaves_with_4(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("{phases: [{name: calm, seconds: 0.3, arrivals: {kind: constant, rate: 40}}], max_in_flight: 1}")
    with serving(frozen=(0.0, 0.5)) as server:
        outcome = CliRunner().invoke(app, [server.address, "--plan", str(file)])
    assert outcome.exit_code == 4
    assert "spoiled: calm: 11 requests were not sent" in outcome.stderr
    assert "11 not sent" in outcome.stdout


def test_ctrl_c_stops_the_sending_and_keeps_the_result() -> None:
    stopped: list[bool] = []

    def wait(told: object) -> Any:
        if not stopped:
            raise KeyboardInterrupt
        return "result"

    result: object = load_run._wait(wait, lambda: stopped.append(True), lambda told: None)
    assert result == "result"


@pytest.mark.parametrize(
    "options",
    [["--rate", "0"], ["--for", "soon"], ["--long", "150%"], ["--warm-up", "10s"], ["--sessions", "-1"]],
)
def test_invalid_load_is_refused(options: list[str]) -> None:
    outcome = CliRunner().invoke(app, ["http://127.0.0.1:1", *options])
    assert isinstance(outcome.exception, UsageError)
    assert "invalid load" in str(outcome.exception)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    outcome = CliRunner().invoke(app, ["http://127.0.0.1:1"])
    assert isinstance(outcome.exception, UsageError)
    assert "latdoctor[lab]" in str(outcome.exception)


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (
            Progress(3.0, 10.0, "rush", 150, 149, 0, 1, 0.004, 0.0123, 0.25),
            "3/10 s rush · sent 150 · now P50 12.3 ms P99 250 ms · waiting 1 (oldest 4 ms)",
        ),
        (
            Progress(11.0, 10.0, "rush", 150, 100, 2, 50, 2.5, None, None),
            "10/10 s rush · sent 150 · now P50 – P99 – · waiting 50 (oldest 2.5 s) · errors 2",
        ),
    ],
)
def test_the_line_of_progress(progress: Progress, line: str) -> None:
    assert load_run._line(progress) == line
