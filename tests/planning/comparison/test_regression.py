"""Stored runs against today's: only a proven regression fails."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import msgspec
import pytest

from latdoctor.errors import UsageError
from latdoctor.planning.comparison.effect import ComparisonVerdict, Quantity
from latdoctor.planning.comparison.regression import RegressionRuns, StoredRun, read_runs, regression
from latdoctor.planning.comparison.regression_page import regression_page
from latdoctor.planning.comparison.run_figures import RunFigures


def runs(slower: float, noise: float, seed: int, machine: str = "a CPU, 2 processors") -> RegressionRuns:
    rng = Random(seed)

    def run(number: int) -> StoredRun:
        p99 = 0.2 * math.exp(Random(number).gauss(0, 0.2)) * slower * math.exp(rng.gauss(0, noise))
        return StoredRun(number, f"schedule-{number}", RunFigures(p99 / 3, p99, 50.0, 0.0))

    return RegressionRuns("2026-01-01T00:00:00Z", "0.1.0", machine, 50.0, 10.0, tuple(map(run, range(6))))


STORED = runs(1.0, 0.02, 1)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (runs(1.3, 0.02, 2), ComparisonVerdict.WORSE),
        (runs(0.7, 0.02, 2), ComparisonVerdict.BETTER),
        (runs(1.0, 0.01, 2), ComparisonVerdict.NO_DIFFERENCE),
        (runs(1.1, 0.5, 2), ComparisonVerdict.INCONCLUSIVE),
        (runs(1.3, 0.02, 2, machine="another CPU"), ComparisonVerdict.INCONCLUSIVE),
    ],
)
def test_only_what_is_proven_on_the_same_machine_is_a_regression(
    now: RegressionRuns, verdict: ComparisonVerdict
) -> None:
    assert regression(STORED, now, Quantity.P99, 0.1).verdict is verdict


def test_another_load_proves_nothing() -> None:
    now = runs(1.3, 0.02, 2)
    other = msgspec.structs.replace(
        now, runs=tuple(msgspec.structs.replace(one, schedule=f"other-{one.seed}") for one in now.runs)
    )
    found = regression(STORED, other, Quantity.P99, 0.1)
    assert found.verdict is ComparisonVerdict.INCONCLUSIVE
    assert "6 of 6 runs have another schedule now" in found.problems


def test_stored_runs_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    unmeasured = StoredRun(9, "schedule-9", RunFigures(None, None))
    whole = msgspec.structs.replace(STORED, runs=(*STORED.runs, unmeasured))
    file.write_bytes(msgspec.json.encode(whole))
    assert read_runs(file) == whole
    file.write_bytes(b"[]")
    with pytest.raises(UsageError, match="not stored runs"):
        read_runs(file)
    with pytest.raises(UsageError, match="record") as missing:
        read_runs(tmp_path / "absent.json")
    assert "--record" in missing.value.next_step


def test_the_page_has_the_verdict_every_run_and_what_speaks_against_it() -> None:
    now = runs(1.3, 0.02, 2, machine="<b>another</b> CPU")
    found = regression(STORED, now, Quantity.P99, 0.1)
    page = regression_page(found, STORED, now, "P99: inconclusive")
    assert '<h1 class="inconclusive">P99: inconclusive</h1>' in page
    assert page.count("<tr><td>") == len(found.effects) + len(STORED.runs)
    assert "another machine" in page
    assert "<b>another</b>" not in page  # escaped
