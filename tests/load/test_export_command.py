"""`lab load-export` as a command: what it writes and prints, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from latdoctor.cli.lab_load_export import load_export
from latdoctor.errors import BundleError, DefinitionError, UsageError

app = typer.Typer()
app.command()(load_export)

PLAN = """
phases:
  - {name: calm, seconds: 10, arrivals: {kind: constant, rate: 40}}
  - {name: rush, seconds: 20, arrivals: {kind: gamma, rate: 100, cv: 2}}
"""


def exported(folder: Path, *options: str, plan: str = PLAN) -> tuple[str, str, BaseException | None]:
    """The file, what was printed, and the error."""
    (folder / "plan.yaml").write_text(plan)
    out = folder / "load.out"
    outcome = CliRunner().invoke(app, [str(folder / "plan.yaml"), "-o", str(out), *options])
    return out.read_text() if out.exists() else "", outcome.stderr, outcome.exception


def test_a_locustfile_is_written(tmp_path: Path) -> None:
    text, printed, error = exported(tmp_path, "--to", "locust")
    assert error is None
    assert "decode(r" in text
    assert "about 2400 requests in 30 s, at most 100 per second" in printed
    assert "not as with lab load" not in printed
    assert "locust -f" in printed


def test_a_k6_script_is_written_and_what_it_does_not_keep_is_printed(tmp_path: Path) -> None:
    text, printed, error = exported(tmp_path, "--to", "k6", "--times", "50")
    assert error is None
    assert "ramping-arrival-rate" not in text
    assert '"rate": 5000' in text
    assert "about 120000 requests in 30 s, at most 5000 per second" in printed
    assert "not as with lab load: k6 has no gamma process" in printed


def test_a_body_of_another_server_is_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"prompt": "$PROMPT"}')
    text, _, error = exported(tmp_path, "--to", "k6", "--path", "/predict", "--body", str(tmp_path / "body.json"))
    assert error is None
    assert '"path": "/predict"' in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--path", "/predict"], "belong together"),
        (["--path", "predict", "--body", "plan.yaml"], "must begin with a slash"),
        (["--path", "/predict", "--body", "missing.json"], "cannot be read"),
    ],
)
def test_an_incomplete_request_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text, _, error = exported(tmp_path, "--to", "k6", *options)
    assert isinstance(error, UsageError)
    assert message in str(error)
    assert text == ""


def test_an_invalid_plan_is_refused_with_its_line(tmp_path: Path) -> None:
    _, _, error = exported(tmp_path, "--to", "k6", plan=PLAN.replace("rate: 40", "rate: -1"))
    assert isinstance(error, DefinitionError)
    assert error.problems[0].where.endswith("plan.yaml:3")


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    outcome = CliRunner().invoke(
        app, [str(tmp_path / "plan.yaml"), "--to", "k6", "-o", str(tmp_path / "no" / "load.js")]
    )
    assert isinstance(outcome.exception, BundleError)
