"""Comparisons of servers, load results and logs, as the command prints them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

import msgspec
import pytest

from latdoctor.load.arrivals import Constant
from latdoctor.load.latencies import Latencies
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import run_load
from latdoctor.planning.comparison.comparison import Design
from latdoctor.planning.comparison.effect import ComparisonVerdict, Quantity
from latdoctor.planning.comparison.latency_modes import compared_modes
from latdoctor.planning.comparison.live import LiveComparison, LiveSettings
from latdoctor.planning.comparison.recorded import Recorded, compare_requests
from latdoctor.planning.comparison.run_figures import RunFigures
from tests.cli.running import run
from tests.load.tiny_server import serving

DAY = 1_767_225_600  # 2026-01-01T00:00:00Z


def requests(name: str, ratio: float, seed: int, count: int = 6000) -> Recorded:
    rng = Random(seed)
    times = tuple(DAY + 0.1 * index for index in range(count))
    return Recorded(name, times, tuple(ratio * rng.lognormvariate(-3, 0.5) for _ in times))


def test_recorded_requests_are_compared_by_slices_and_assumptions_are_stated() -> None:
    same = compare_requests(requests("a", 1.0, 1), requests("b", 1.0, 2), Quantity.P99, 0.2)
    assert same.design is Design.UNPAIRED
    assert same.verdict in (ComparisonVerdict.NO_DIFFERENCE, ComparisonVerdict.INCONCLUSIVE)
    worse = compare_requests(requests("a", 1.0, 1), requests("b", 1.6, 2), Quantity.P99, 0.2)
    assert worse.verdict is ComparisonVerdict.WORSE
    assert worse.ratio == pytest.approx(1.6, rel=0.1)
    assert any("slices of 30 s" in one for one in worse.assumptions)
    assert {one.quantity for one in worse.effects} == {Quantity.P50, Quantity.P99}


def test_too_few_requests_are_inconclusive() -> None:
    found = compare_requests(requests("a", 1.0, 1), requests("b", 3.0, 2, count=500), Quantity.P99, 0.1)
    assert found.verdict is ComparisonVerdict.INCONCLUSIVE
    assert found.problems == ("b has too few requests for 20 slices of 100",)
    nothing = compare_requests(Recorded("a", (), ()), Recorded("b", (), ()), Quantity.P99, 0.1)
    assert nothing.verdict is ComparisonVerdict.INCONCLUSIVE


def bimodal(fast: float, slow: float, share: float, seed: int) -> RunFigures:
    rng = Random(seed)
    values = [(slow if rng.random() < share else fast) * rng.lognormvariate(0, 0.1) for _ in range(1500)]
    return RunFigures(fast, slow, 1.0, 0.0, Latencies(values).encoded())


def test_modes_are_compared_one_by_one() -> None:
    runs = [(bimodal(0.02, 0.4, 0.15, seed), bimodal(0.02, 0.8, 0.15, seed + 100)) for seed in range(5)]
    fast, slow = compared_modes(runs, 0.1)
    assert (fast.name, slow.name) == ("fast", "slow")
    assert fast.effect is not None
    assert slow.effect is not None
    assert fast.effect.verdict is ComparisonVerdict.NO_DIFFERENCE
    assert slow.effect.verdict is ComparisonVerdict.WORSE
    assert slow.effect.ratio == pytest.approx(2, rel=0.1)


def test_requests_that_change_modes_show_in_the_shares() -> None:
    runs = [(bimodal(0.02, 0.4, 0.1, seed), bimodal(0.02, 0.4, 0.3, seed + 100)) for seed in range(5)]
    fast, slow = compared_modes(runs, 0.1)
    assert slow.share_a == pytest.approx(0.1, abs=0.02)
    assert slow.share_b == pytest.approx(0.3, abs=0.02)
    assert fast.share_a + slow.share_a == pytest.approx(1)


def test_one_mode_is_not_split() -> None:
    runs = [(bimodal(0.1, 0.1, 0.5, seed), bimodal(0.1, 0.1, 0.5, seed + 9)) for seed in range(5)]
    assert compared_modes(runs, 0.1) == ()


def test_a_run_with_a_late_generator_is_repeated_and_then_makes_it_inconclusive() -> None:
    tried: list[tuple[int, int]] = []

    def late(side: int, seed: int) -> RunFigures:
        tried.append((side, seed))
        problems = ("late",) if side and (seed == 1 or len(tried) < 3) else ()
        return RunFigures(0.1, 0.2 + 0.1 * side, 1.0, 0.0, problems=problems)

    found = LiveComparison(("A", "B"), LiveSettings(most=2), late, lambda _: None).compare()
    assert tried.count((1, 0)) == 2  # repeated, and valid then
    assert tried.count((1, 1)) == 3
    assert [side for side, seed in tried if seed == 1][-1] == 0  # the order alternates
    assert found.verdict is ComparisonVerdict.INCONCLUSIVE
    assert found.problems == ("the generator was late in 1 of 4 runs",)
    assert not math.isnan(found.effects[0].ratio or math.nan)


def load_result(path: Path, seed: int) -> None:
    plan = LoadPlan((LoadPhase("load", 0.3, Constant(100)),), seed=seed, late_ms=5000)
    with serving() as server:
        path.write_bytes(msgspec.json.encode(run_load(plan, server.address)))


def test_load_results_of_the_same_schedule_are_pairs(tmp_path: Path) -> None:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        for seed in range(3):
            load_result(tmp_path / side / f"{seed}.json", seed)
    outcome = run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "-o", "json"])
    document = json.loads(outcome.out)
    assert (document["design"], document["pairs"], document["schema_version"]) == ("paired", 3, "1")
    assert {"verdict", "ratio", "interval"} <= document.keys()
    load_result(tmp_path / "b" / "2.json", 7)
    other = json.loads(run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "-o", "json"]).out)
    assert other["design"] == "unpaired"


def test_logs_are_compared_as_text(tmp_path: Path) -> None:
    for name, ratio in (("a", 1.0), ("b", 2.0)):
        rng = Random(name)
        lines = [
            json.dumps({"time": DAY + 0.1 * index, "status": 200, "seconds": ratio * rng.lognormvariate(-3, 0.4)})
            for index in range(4000)
        ]
        (tmp_path / f"{name}.log").write_text("\n".join(lines) + "\n")
    outcome = run(["compare", str(tmp_path / "a.log"), str(tmp_path / "b.log")])
    assert outcome.code == 3, outcome.err
    assert outcome.out.startswith("B is worse in P99\nA: a.log\nB: b.log\n")
    assert "20 runs or slices of each side; intervals of 97.5 %. Assumed:" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["http://127.0.0.1:1", "file.log"], "a server cannot be compared with a recording"),
        (["http://127.0.0.1:1", "http://127.0.0.1:2"], "--rate is missing"),
        (["absent.log", "absent.log"], "absent.log"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments: list[str], says: str) -> None:
    outcome = run(["compare", *arguments])
    assert outcome.code == 2
    assert says in outcome.err
