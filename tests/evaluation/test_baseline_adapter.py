"""The peers in the contest: on recordings made by hand, through files, as the bench runs them."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import BundleError
from latdoctor.evaluation.baselines.adapter import StoredScores, from_source, keep, seed_of, stored_methods
from latdoctor.evaluation.baselines.methods import BASELINES, MetricScores
from latdoctor.evaluation.benchmark import METHODS
from latdoctor.evaluation.ground_truth import IncidentContext, TimeRange, split
from latdoctor.evaluation.method_comparison import compare_methods
from latdoctor.evaluation.store import RecordedRun, RecordingStore, recordings
from tests.cli.running import run
from tests.evaluation import samples

SEEN, OTHER, UNSEEN = "app.load.burst", "app.batching.no-timer", "infra.io.stall"
SIGNAL = {SEEN: "arrival.rate", OTHER: "batch.wait", UNSEEN: "host.psi.io_some"}


def played(name: str, *causes: str) -> RecordedRun:
    return RecordedRun(
        Path(name), IncidentContext(TimeRange(0, 1), TimeRange(2, 3)), samples.ground_truth(name, *causes)
    )


RUNS = tuple(played(f"{cause}-{number}", cause) for cause in (SEEN, OTHER, UNSEEN) for number in range(4))


def telling(recorded: RecordedRun) -> MetricScores:
    """A peer that always puts the right signal first."""
    return MetricScores("p", ((SIGNAL[recorded.causes[0]], 2.0), ("queue.depth", 1.0)))


def test_who_enters_is_every_peer() -> None:
    """And each reads first what was scraped, then the signals made of it."""
    names = [peer.name for peer in BASELINES]
    assert [(one.name, one.metrics) for one in METHODS] == [
        *((name, "scraped") for name in names),
        *((name, "signals") for name in names),
    ]


def test_a_peer_that_ranks_well_names_well_and_causes_that_it_never_saw_too() -> None:
    (found,) = compare_methods((from_source("p", telling),), RUNS, split(), print)
    assert (found.ac1.right, found.ac1.of, found.crashed) == (12, 12, 0)


def test_a_peer_that_fails_at_a_run_loses_that_run() -> None:
    def failing(recorded: RecordedRun) -> MetricScores:
        return MetricScores("p", failed="out of its depth") if recorded.run.endswith("2") else telling(recorded)

    said: list[str] = []
    (found,) = compare_methods((from_source("p", failing),), RUNS, split(), said.append)
    assert (found.ac1.right, found.crashed) == (9, 3)
    assert sum("out of its depth" in line for line in said) == 3


def test_a_run_is_judged_by_a_mapping_that_never_saw_it() -> None:
    """Each run has a signal of its own, by which it could be remembered and nothing could be learnt."""

    def odd(recorded: RecordedRun) -> MetricScores:
        return MetricScores("p", ((f"odd.{recorded.run}", 1.0),))

    (found,) = compare_methods((from_source("p", odd),), RUNS, split(), print)
    assert found.ac1.right == 0


def test_every_run_has_a_shuffle_of_its_own() -> None:
    assert len({seed_of(one) for one in RUNS}) == len(RUNS)
    assert seed_of(RUNS[0]) == seed_of(played(RUNS[0].run))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = tmp_path_factory.mktemp("recordings")
    for number in range(2):
        _keep(kept, samples.attempt(f"burst-{number}", SEEN))
    return kept


def _keep(folder: Path, attempt: samples.RecordingAttempt) -> None:
    RecordingStore(folder).keep(attempt)


def test_real_columns_reach_every_peer(folder: Path) -> None:
    runs: Sequence[RecordedRun] = tuple(recordings(folder))
    said: list[str] = []
    found = {(one.name, one.metrics): one for one in compare_methods(METHODS, runs, split(), said.append)}
    assert found["n-sigma", "scraped"].crashed == found["n-sigma", "signals"].crashed == 0, said
    assert len(found) == len(METHODS)
    assert all(one.ac1.of == 2 for one in found.values())


def test_scores_that_were_kept_enter_the_contest(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    keep(copied, StoredScores("from-elsewhere", {"burst-0": MetricScores("from-elsewhere", (("arrival.rate", 3.0),))}))
    said: list[str] = []
    (found,) = compare_methods(stored_methods(copied), tuple(recordings(copied)), split(), said.append)
    assert (found.name, found.crashed) == ("from-elsewhere", 1)
    assert any("has no scores for burst-1" in line for line in said)


@pytest.mark.parametrize("text", ["", "{}", '{"peer": "x", "runs": []}', '{"peer": "x", "runs": {}, "more": 1}'])
def test_invalid_stored_scores_are_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "x.json").write_text(text)
    with pytest.raises(BundleError, match="not the scores of a method"):
        stored_methods(tmp_path)


def test_mapping_is_written_as_csv(folder: Path, tmp_path: Path) -> None:
    outcome = run(["lab", "bench", "mapping", "--folder", str(folder), "--to", str(tmp_path / "mapping")])
    assert outcome.code == 0, outcome.err
    text = (tmp_path / "mapping" / "mapping-scraped.csv").read_text()
    assert text.startswith("method,mapping,metrics used,")
    assert all(f"\n{peer.title}," in text for peer in BASELINES)
    empty = run(["lab", "bench", "mapping", "--folder", str(tmp_path / "none"), "--to", str(tmp_path / "x")])
    assert empty.code == 2
    assert "no training runs" in empty.err


@given(st.one_of(st.binary(max_size=200), st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["peer", "runs", "signals", "failed", "x"]), inner, max_size=4),
    max_leaves=10,
).map(lambda tree: json.dumps(tree).encode())))  # fmt: skip
def test_any_kept_scores_are_contestants_or_an_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-scores"
    (folder / "peers").mkdir(parents=True, exist_ok=True)
    (folder / "peers" / "x.json").write_bytes(raw)
    with contextlib.suppress(BundleError):
        assert len(stored_methods(folder)) == 1
