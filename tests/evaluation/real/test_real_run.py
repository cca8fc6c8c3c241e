"""A whole run with a server small enough for a test: recorded, and scored again from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from latdoctor.cli.main import app
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evaluation.real import real_run
from latdoctor.evaluation.real.real_benchmark import record_real_runs, score_recordings, skipped_servers
from latdoctor.evaluation.real.real_store import TRUTH, real_recordings
from latdoctor.evidence.bundle_files import opened
from latdoctor.lab.real.real_faults import KillProcess
from latdoctor.lab.real.real_scenario import RealIncident, RealPhases, RealScenario
from tests.lab.real.toy import TOY, installed


def in_this_process(options: Sequence[str], limit: float) -> str:
    """`latdoctor collect` without the start of a process, which a busy machine draws out."""
    return CliRunner().invoke(app, ["collect", *options]).output


PHASES = RealPhases(warm_up=0.5, before=4, incident=5, draining=1, after=1.5, window=1, settle=0.2)
CRASH = RealScenario(
    id="toy-crash",
    server="toy",
    title="The server is killed",
    rate=20,
    timeout=1,
    incident=RealIncident(faults=(KillProcess(),)),
    phases=PHASES,
    causes=("app.engine.crashed",),
    change="deployed version 2",
)


def test_a_run_is_recorded_once_and_scored_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("real_run", "real_benchmark"):
        monkeypatch.setattr(f"latdoctor.evaluation.real.{module}.find_server", lambda name: TOY)
    monkeypatch.setattr(real_run, "run_collect", in_this_process)
    root = tmp_path / "servers"
    root.mkdir()
    folder, said = tmp_path / "runs", list[str]()
    assert "no program start-toy" in skipped_servers([CRASH], root)["toy"]
    installed(root)
    assert record_real_runs([CRASH], (1,), root, folder, said.append) == {}
    (recording,) = real_recordings(folder)
    truth = recording.truth
    assert truth.causes == ("app.engine.crashed",)
    assert truth.is_outage
    assert truth.during.failed > 0.5 * truth.during.requests
    assert truth.after.answered > 0.9 * truth.after.requests
    assert truth.lasted - truth.since > 4
    with opened(recording.incident) as bundle:
        texts = [artifact.read() for artifact in bundle.artifacts]
    assert any(b"deployed version 2" in text for text in texts)
    assert not any(b"toy-crash" in text or b"app.engine.crashed" in text for text in texts), "the truth is elsewhere"
    said.clear()
    assert record_real_runs([CRASH], (1,), root, folder, said.append) == {}
    assert said == [], "nothing is recorded again"
    scores = score_recordings([recording], shipped(), {})
    assert scores.runs + scores.spoiled == 1
    assert real_run.RealRunOrder(CRASH, 1, root).run == recording.folder.name
    assert (recording.folder / TRUTH).is_file()
