"""A folder of recordings: complete runs are kept, spoiled and interrupted ones are repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from latdoctor.errors import BundleError, LatdoctorError, OperationError
from latdoctor.evaluation.ground_truth import RunKind
from latdoctor.evaluation.recording import RecordingAttempt
from latdoctor.evaluation.run_spec import RunSpec
from latdoctor.evaluation.store import TRIES, RecordingStore, record, recordings
from tests.evaluation.samples import attempt

CELLS = tuple(RunSpec(RunKind.LIVE, "no-fault", "usual", seed) for seed in (1, 2, 3))


class Player:
    """Plays what it is told: per seed the reasons for which each try is spoiled, or the error that it ends with."""

    def __init__(self, script: dict[int, list[tuple[str, ...] | LatdoctorError]] | None = None) -> None:
        self.script = script or {}
        self.played: list[int] = []

    def __call__(self, cell: RunSpec, say: Callable[[str], None]) -> RecordingAttempt:
        self.played.append(cell.seed)
        told = self.script.get(cell.seed, [])
        outcome = told.pop(0) if told else ()
        if isinstance(outcome, LatdoctorError):
            raise outcome
        return attempt(cell.run, spoiled=outcome)


def test_a_run_that_is_there_is_not_repeated(tmp_path: Path) -> None:
    store, player = RecordingStore(tmp_path), Player()
    assert record(store, CELLS, player, print, most=1) == 2
    assert record(store, CELLS, player, print) == 0
    assert record(store, CELLS, player, print) == 0
    assert player.played == [1, 2, 3]
    assert [one.run for one in recordings(tmp_path)] == sorted(cell.run for cell in CELLS)


def test_a_spoiled_run_is_repeated_at_once_and_its_tries_are_counted(tmp_path: Path) -> None:
    store, said = RecordingStore(tmp_path), list[str]()
    player = Player({2: [("late",), ("unsteady", "late")]})
    assert record(store, CELLS, player, said.append) == 0
    assert player.played == [1, 2, 2, 2, 3]
    assert store.ground_truth(CELLS[1].run).tries == 3
    assert store.ground_truth(CELLS[0].run).tries == 1
    assert store.spoiled(CELLS[1].run) == (("late",), ("unsteady", "late"))
    assert store.losses(store.runs()) == (2, 0)
    assert store.losses([CELLS[0].run]) == (0, 0), "of the others nothing is said"
    assert "spoiled: unsteady; late" in said


def test_a_run_that_is_spoiled_every_time_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    player = Player({1: [("late",), OperationError("the server broke"), ("late",), ("late",)]})
    assert record(store, CELLS, player, print) == 0
    assert player.played == [1] * TRIES + [2, 3]
    assert not store.bundle(CELLS[0].run).exists()
    assert "the server broke" in store.spoiled(CELLS[0].run)[1][0]
    assert store.losses(cell.run for cell in CELLS) == (TRIES, 1)
    assert record(store, CELLS, player, print) == 0
    assert len(player.played) == TRIES + 2


def test_a_run_that_was_interrupted_is_recorded_anew_and_keeps_its_spoiled_tries(tmp_path: Path) -> None:
    store, cell = RecordingStore(tmp_path), CELLS[0]
    store.keep_spoiled(cell.run, ("late",))
    store.keep(attempt(cell.run))
    (tmp_path / "truths" / f"{cell.run}.json").unlink()  # as where it was killed before it was whole
    assert store.missing((cell,)) == (cell,)
    assert list(recordings(tmp_path)) == []
    assert record(store, (cell,), Player(), print) == 0
    assert store.ground_truth(cell.run).tries == 2


def test_context_and_bundle_contain_no_ground_truth(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    store.keep(attempt("x", "app.load.burst"))
    assert "app.load.burst" in (tmp_path / "truths" / "x.json").read_text()
    for path in (tmp_path / "told").iterdir():
        assert "burst" not in path.read_text()
    from latdoctor.evidence.bundle_files import opened

    with opened(store.bundle("x")) as bundle:
        assert all(b"burst" not in artifact.read() for artifact in bundle.artifacts)
        assert "burst" not in repr(bundle.context)


@pytest.mark.parametrize("damaged", [b"{}", b"", b'{"run": "\xff"}', b"[" * 100_000])
def test_damaged_ground_truth_is_reported_with_its_path(tmp_path: Path, damaged: bytes) -> None:
    store = RecordingStore(tmp_path)
    store.keep(attempt("x"))
    (tmp_path / "truths" / "x.json").write_bytes(damaged)
    with pytest.raises(BundleError) as refused:
        list(recordings(tmp_path))
    assert "x.json" in str(refused.value)


def test_the_time_left_goes_by_what_the_runs_took(tmp_path: Path) -> None:
    said = list[str]()
    moments = iter(range(0, 6000, 600))  # ten minutes a run, whatever was planned
    record(RecordingStore(tmp_path), CELLS, Player(), said.append, clock=lambda: float(next(moments)))
    assert "1 of 3" in said[0]
    assert "about 20 min left" in said[1]
    assert "about 10 min left" in said[2]


def test_a_truth_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    made = attempt("x", "app.load.burst")
    store.keep(made)
    assert store.ground_truth("x") == made.ground_truth
    assert store.context("x") == made.context
    assert msgspec.json.decode((tmp_path / "truths" / "x.json").read_bytes())["causes"] == ["app.load.burst"]
