"""`lab load-fit` and `lab load-replay` on logs that servers write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from latdoctor.cli.lab_load_recorded import load_fit, load_replay, read_recording
from latdoctor.errors import SourceError, UsageError
from latdoctor.load import plan as plans
from tests.load.tiny_server import serving

app = typer.Typer()
app.command("fit")(load_fit)
app.command("replay")(load_replay)


def reference_line(at: float, session: str = "", tokens: int = 30) -> str:
    """As the reference server writes it."""
    fields = {"entry": f"2026-01-01T00:00:{at:09.6f}Z", "exit": f"2026-01-01T00:00:{at + 0.01:09.6f}Z",
              "seconds": 0.009, "status": 200, "request_id": f"r{at}", "replica": "0"}  # fmt: skip
    return json.dumps({**fields, **({"session": session} if session else {}), "input_tokens": tokens})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten users with three turns each, half a second apart."""
    rows = sorted((user / 5 + turn / 2, f"s-{user}") for user in range(10) for turn in range(3))
    file = tmp_path / "access.jsonl"
    file.write_text("".join(reference_line(at, session) + "\n" for at, session in rows))
    return file


def nginx_line(second: int, status: int = 200) -> str:
    return f'10.0.0.1 - - [01/Jan/2026:00:00:{second:02d} +0000] "POST /v1/x?a=1 HTTP/1.1" {status} 9 "-" "curl/8" 0.5'


def test_a_log_is_fitted_and_the_plan_is_one(log: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    outcome = CliRunner().invoke(app, ["fit", str(log), "-o", str(plan)])
    assert outcome.exit_code == 0, outcome.output
    assert "30 requests over 2.8 s of access.jsonl" in outcome.stdout
    assert "turns of 10 sessions: constantvalue, mean 3, KS 0.000 of 10" in outcome.stdout
    found = plans.read(plan)
    users = found.phases[0].users
    assert users is not None
    assert users.turns.mean == 3
    assert users.think_s.mean == pytest.approx(0.49)
    assert plan.read_text().startswith("# Fitted to 30 requests")


def test_a_log_without_sessions_says_so(tmp_path: Path) -> None:
    log, plan = tmp_path / "access.log", tmp_path / "plan.yaml"
    log.write_text("".join(nginx_line(second) + "\n" for second in range(60)))
    outcome = CliRunner().invoke(app, ["fit", str(log), "-o", str(plan)])
    assert outcome.exit_code == 0, outcome.output
    for missing in ("the log has no session id", "times are whole seconds", "0 of 60 requests have a length"):
        assert f"not in the log: {missing}" in outcome.stdout
        assert missing in plan.read_text()
    assert plans.read(plan).phases[0].users is None


def test_a_part_of_a_log_is_read(log: Path) -> None:
    records, recording = read_recording(log, "1s", "2s")
    assert len(records.records) == 30
    assert all(0 <= one.at < 1 for one in recording.requests)
    assert recording.seconds == 1
    assert recording.requests[0].tokens == 30


def test_a_log_is_replayed_at_another_speed(log: Path) -> None:
    with serving() as server:
        options = ["--speed", "4", "--most", "20", "-o", "json"]
        outcome = CliRunner().invoke(app, ["replay", server.address, str(log), *options])
    assert outcome.exit_code in (0, 4), outcome.output
    assert "replaying 20 requests of 9 sessions" in outcome.stderr
    assert "the next 10 are left out (--most 20)" in outcome.stderr
    assert "sent after the times of the log by" in outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["total"]["counts"]["requests"] == 20
    assert result["plan"]["phases"][0]["arrivals"]["speed"] == 4


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--from", "1h"], UsageError),
        (["--from", "soon"], UsageError),
        (["--to", "0s"], UsageError),
        (["--idle", "0s"], UsageError),
    ],
)
def test_a_wrong_part_is_refused(log: Path, tmp_path: Path, options: list[str], error: type[Exception]) -> None:
    outcome = CliRunner().invoke(app, ["fit", str(log), "-o", str(tmp_path / "plan.yaml"), *options])
    assert isinstance(outcome.exception, error)


def test_a_text_without_requests_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("nothing\nhere\n")
    with pytest.raises(SourceError, match="no readable request"):
        read_recording(file)
