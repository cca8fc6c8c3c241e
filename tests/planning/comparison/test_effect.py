"""The intervals and verdicts on simulated runs whose true difference is known."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.planning.comparison.effect import (
    ALPHA,
    ComparisonVerdict,
    Effect,
    Quantity,
    paired_effect,
    pairs_needed,
    unpaired_effect,
)
from latdoctor.planning.comparison.live import FIRST, LiveComparison, LiveSettings
from latdoctor.planning.comparison.run_figures import RunFigures

TRIALS = 400


def pairs(count: int, ratio: float, noise: float, rng: Random) -> list[tuple[float, float]]:
    """P99 of A varies by 20 % from load to load, which B shares; B is `ratio` times A, with `noise` of its own."""
    found = []
    for _ in range(count):
        a = 0.3 * math.exp(rng.gauss(0, 0.2))
        found.append((a, a * ratio * math.exp(rng.gauss(0, noise))))
    return found


def test_equal_settings_are_called_different_as_rarely_as_stated() -> None:
    rng = Random(1)
    verdicts = [paired_effect(Quantity.P99, pairs(5, 1.0, 0.1, rng), 0.1).verdict for _ in range(TRIALS)]
    different = sum(one.is_difference for one in verdicts)
    assert different <= TRIALS * ALPHA * 2  # 20; at the nominal share 20 or more have a probability of .2 %


def live(ratio: float, noise: float, seed: int, most: int = 200) -> tuple[ComparisonVerdict, int]:
    """The verdict on simulated servers, and the pairs that it took."""
    rng = Random(seed)

    def run(side: int, load: int) -> RunFigures:
        own = 0.3 * math.exp(Random(load).gauss(0, 0.2)) * (ratio if side else 1.0)
        p99 = own * math.exp(rng.gauss(0, noise / math.sqrt(2)))
        return RunFigures(p99 / 3, p99, 40.0, 0.0)

    found = LiveComparison(("A", "B"), LiveSettings(most=most, seed=seed), run, lambda _: None).compare()
    return found.verdict, found.pairs


def test_the_number_of_pairs_that_was_computed_finds_the_difference() -> None:
    found = [live(1.1, 0.12, seed) for seed in range(100)]
    assert (
        sum(verdict is ComparisonVerdict.WORSE for verdict, _ in found) >= 80
    )  # nominal power 90 %; fewer have a probability of .1 %
    assert all(count >= FIRST for _, count in found)


def test_two_stages_keep_the_stated_share_of_false_alarms() -> None:
    different = sum(live(1.0, 0.12, seed)[0].is_difference for seed in range(200))
    assert different <= 12  # nominal 5; 13 or more have a probability of .1 %


def test_too_noisy_is_inconclusive_and_says_how_many_pairs_it_needs() -> None:
    effect = paired_effect(Quantity.P99, pairs(6, 1.0, 0.8, Random(2)), 0.1)
    assert effect.verdict is ComparisonVerdict.INCONCLUSIVE
    assert effect.needed is not None
    assert effect.needed > 100


@pytest.mark.parametrize(
    ("quantity", "ratio", "verdict"),
    [
        (Quantity.P99, 1.5, ComparisonVerdict.WORSE),
        (Quantity.P99, 0.6, ComparisonVerdict.BETTER),
        (Quantity.GOODPUT, 1.5, ComparisonVerdict.BETTER),
        (Quantity.GOODPUT, 0.6, ComparisonVerdict.WORSE),
        (Quantity.P50, 1.0, ComparisonVerdict.NO_DIFFERENCE),
    ],
)
def test_the_direction_depends_on_the_quantity(quantity: Quantity, ratio: float, verdict: ComparisonVerdict) -> None:
    effect = paired_effect(quantity, pairs(8, ratio, 0.01, Random(3)), 0.1)
    assert effect.verdict is verdict
    assert effect.ratio == pytest.approx(ratio, rel=0.03)


def test_errors_are_compared_by_their_difference() -> None:
    more = paired_effect(Quantity.ERRORS, [(0.0, 0.2), (0.01, 0.22), (0.0, 0.19), (0.0, 0.21)], 0.1)
    assert more.verdict is ComparisonVerdict.WORSE
    assert more.ratio == pytest.approx(0.2, abs=0.01)
    assert paired_effect(Quantity.ERRORS, [(0.0, 0.0)] * 4, 0.1).verdict is ComparisonVerdict.NO_DIFFERENCE


@pytest.mark.parametrize("bad", [math.nan, 0.0, math.inf])
def test_what_was_not_measured_is_never_no_difference(bad: float) -> None:
    values = [*pairs(5, 1.0, 0.001, Random(4)), (0.3, bad)]
    assert paired_effect(Quantity.P99, values, 0.1).verdict is ComparisonVerdict.INCONCLUSIVE
    assert unpaired_effect(Quantity.P99, [0.3] * 5, [0.3, bad], 0.1).verdict is ComparisonVerdict.INCONCLUSIVE
    for few in ([], [(0.3, 0.3)]):
        assert paired_effect(Quantity.P99, few, 0.1).verdict is ComparisonVerdict.INCONCLUSIVE


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)), min_size=2, max_size=12))
def test_exchanging_the_sides_inverts_the_ratio_and_the_verdict(values: list[tuple[float, float]]) -> None:
    there = paired_effect(Quantity.P99, values, 0.1)
    back = paired_effect(Quantity.P99, [(b, a) for a, b in values], 0.1)
    assert there.ratio is not None
    assert back.ratio == pytest.approx(1 / there.ratio)
    mirrored = {ComparisonVerdict.BETTER: ComparisonVerdict.WORSE, ComparisonVerdict.WORSE: ComparisonVerdict.BETTER}
    assert back.verdict is mirrored.get(there.verdict, there.verdict)


def test_independent_runs_keep_the_stated_share_of_false_alarms() -> None:
    rng = Random(5)

    def side(ratio: float) -> list[float]:
        return [0.3 * ratio * math.exp(rng.gauss(0, 0.2)) for _ in range(20)]

    def compared(ratio: float) -> Effect:
        return unpaired_effect(Quantity.P99, side(1.0), side(ratio), 0.1)

    assert sum(compared(1.0).verdict is not ComparisonVerdict.INCONCLUSIVE for _ in range(TRIALS)) <= TRIALS * ALPHA * 2
    assert sum(compared(1.5).verdict is ComparisonVerdict.WORSE for _ in range(50)) >= 48


def test_pairs_needed_fall_with_the_difference_and_with_the_noise() -> None:
    few = [0.1, -0.1, 0.05, -0.05, 0.02]
    assert (pairs_needed(few, 0.2) or 0) < (pairs_needed(few, 0.1) or 0)
    assert (pairs_needed([one / 2 for one in few], 0.1) or 0) < (pairs_needed(few, 0.1) or 0)
    assert pairs_needed([0.1], 0.1) is None
