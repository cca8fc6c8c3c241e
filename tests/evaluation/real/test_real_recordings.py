"""Incidents of real servers, recorded once and diagnosed here as they were observed.

`recordings/RUN` was written by `latdoctor lab real promote`; its `truth.json` has the server, its version and the date.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.diagnosis.codes import Level
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evaluation.real.real_benchmark import score_recordings
from latdoctor.evaluation.real.real_promote import MOST_BYTES, without_folders
from latdoctor.evaluation.real.real_scores import RealRunScore, score_run
from latdoctor.evaluation.real.real_store import real_recordings
from latdoctor.evidence.bundle_files import opened

FOLDER = Path(__file__).parent / "recordings"
RECORDINGS = {one.truth.run: one for one in real_recordings(FOLDER)}
FAULTS = [run for run, one in RECORDINGS.items() if one.truth.causes]
HEALTHY = [run for run in RECORDINGS if run not in FAULTS]


@pytest.fixture(scope="module")
def scored() -> dict[str, RealRunScore]:
    return {run: score_run(one, shipped()) for run, one in RECORDINGS.items()}


@pytest.mark.parametrize("run", FAULTS)
def test_a_recorded_fault_is_one_that_the_clients_felt(run: str) -> None:
    truth = RECORDINGS[run].truth
    assert truth.causes
    assert truth.is_outage
    assert not truth.spoiled
    assert truth.version
    assert truth.date.startswith("20")


@pytest.mark.parametrize("run", RECORDINGS)
def test_no_cause_is_named_that_was_not_there(run: str, scored: dict[str, RealRunScore]) -> None:
    assert scored[run].wrongly_named == ()


@pytest.mark.parametrize("run", HEALTHY)
def test_a_server_without_a_gpu_that_answers_in_time_is_healthy(run: str, scored: dict[str, RealRunScore]) -> None:
    assert (scored[run].alone.verdict, scored[run].alone.named) == (Level.HEALTHY, ())


@pytest.mark.parametrize("run", [run for run in RECORDINGS if run.startswith("triton-")])
def test_a_server_without_a_gpu_has_no_trouble_with_its_driver(run: str, scored: dict[str, RealRunScore]) -> None:
    of_driver = {"driver-mismatch", "container-cannot-reach-gpu", "cuda-calls-fail", "driver-not-up"}
    for answer in (scored[run].alone, scored[run].with_history, scored[run].healthy):
        assert of_driver.isdisjoint(answer.fired)


# A server that was killed refuses every connection, and is still inconclusive: the one that is not here.
@pytest.mark.parametrize("run", [run for run in FAULTS if run != "triton-crash-1"])
def test_an_outage_is_critical(run: str, scored: dict[str, RealRunScore]) -> None:
    assert scored[run].alone.verdict == Level.CRITICAL


def test_a_hung_model_is_named(scored: dict[str, RealRunScore]) -> None:
    assert "app.engine.stalled" in scored["triton-hang-1"].alone.named
    assert "app.engine.stalled" in scored["triton-hang-1"].with_history.named


def test_recordings_are_scored_together() -> None:
    scores = score_recordings([RECORDINGS["triton-hang-1"]], shipped(), {})
    assert (scores.ac1.of, scores.healthy_said.of, scores.spoiled) == (1, 1, 0)


def test_a_fixture_has_no_folder_of_the_recording_machine() -> None:
    with opened(RECORDINGS["triton-hang-1"].incident) as bundle:
        assert any("/srv/servers" in artifact.source for artifact in bundle.artifacts)
        moved = without_folders(bundle, {"/srv/servers": "/elsewhere"})
    assert not any("/srv" in artifact.source or b"/srv/servers" in artifact.read() for artifact in moved.artifacts)
    assert not any("/srv/servers" in gap.reason for gap in moved.gaps)
    assert all(path.stat().st_size < MOST_BYTES for path in FOLDER.glob("*/*"))
