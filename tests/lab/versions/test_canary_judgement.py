"""The judgement of a canary by counts: certain enough, never on what is not known, and not fooled by many looks."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.versions.canary_judgement import MARGINS, Criterion, Decision, judge
from latdoctor.shares import Share, difference

counts = st.integers(0, 3000).flatmap(lambda total: st.integers(0, total).map(lambda bad: Share(bad, total)))
Pairs = Mapping[Criterion, tuple[Share, Share]]


def pairs(**bad: float) -> Pairs:
    """A canary of 1,000 requests with these shares beside a stable version of 9,000 without."""
    return {one: (Share(int(1000 * bad.get(one, 0.0)), 1000), Share(0, 9000)) for one in Criterion}


@pytest.mark.parametrize(
    ("given_shares", "decision", "reason"),
    [
        (pairs(), Decision.PROMOTE, ""),
        (pairs(errors=0.005), Decision.PROMOTE, ""),
        (pairs(errors=0.05), Decision.ROLL_BACK, "errors"),
        (pairs(latency=0.2), Decision.ROLL_BACK, "latency"),
        (pairs(accuracy=0.2), Decision.ROLL_BACK, "accuracy"),
        (pairs(errors=0.5, accuracy=0.5), Decision.ROLL_BACK, "errors"),
    ],
)
def test_what_the_counts_show_is_decided(given_shares: Pairs, decision: Decision, reason: str) -> None:
    found = judge(given_shares)
    assert (found.decision, found.reason) == (decision, reason)


@pytest.mark.parametrize("missing", Criterion)
def test_what_is_not_known_does_not_promote(missing: Criterion) -> None:
    known = {one: shares for one, shares in pairs().items() if one is not missing}
    assert judge(known).decision is Decision.OBSERVE


@pytest.mark.parametrize("short", Criterion)
def test_too_few_requests_decide_nothing(short: Criterion) -> None:
    few = {**pairs(), short: (Share(0, MARGINS[short].fewest - 1), Share(0, 9000))}
    assert judge(few).decision is Decision.OBSERVE
    one_bad = {**pairs(), short: (Share(1, 1), Share(0, 9000))}
    assert judge(one_bad).decision is Decision.OBSERVE


def test_both_versions_equally_bad_is_no_reason_to_roll_back() -> None:
    found = judge({one: (Share(400, 1000), Share(3600, 9000)) for one in Criterion})
    assert found.decision is not Decision.ROLL_BACK


@given(counts, counts)
def test_the_interval_holds_the_difference_and_mirrors(one: Share, other: Share) -> None:
    low, high = difference(one, other, 2.0)
    assert -1 <= low <= high <= 1
    if one.total and other.total:
        assert low - 1e-9 <= one.bad / one.total - other.bad / other.total <= high + 1e-9
    mirrored = difference(other, one, 2.0)
    assert (-mirrored[1], -mirrored[0]) == pytest.approx((low, high), abs=1e-9)


@given(counts, counts, st.sampled_from(Criterion))
def test_one_more_bad_request_never_helps_a_canary(canary: Share, stable: Share, criterion: Criterion) -> None:
    if canary.bad == canary.total:
        return
    order = [Decision.PROMOTE, Decision.OBSERVE, Decision.ROLL_BACK]
    before = judge({**pairs(), criterion: (canary, stable)}).decision
    after = judge({**pairs(), criterion: (Share(canary.bad + 1, canary.total), stable)}).decision
    assert order.index(after) >= order.index(before)


def decided(canary_bad: Mapping[Criterion, float], stable_bad: Mapping[Criterion, float], seed: int) -> tuple[str, int]:
    """The decision and the number of looks (at most 240), with ten requests to the canary between two of them."""
    source = random.Random(seed)
    bad = {one: [0, 0] for one in Criterion}
    for look in range(1, 241):
        for one in Criterion:
            bad[one][0] += sum(source.random() < canary_bad.get(one, 0.0) for _ in range(10))
            bad[one][1] += sum(source.random() < stable_bad.get(one, 0.0) for _ in range(40))
        found = judge({one: (Share(bad[one][0], 10 * look), Share(bad[one][1], 40 * look)) for one in Criterion})
        if found.decision is not Decision.OBSERVE:
            return f"{found.decision} {found.reason}".strip(), look
    return "none", 240


USUAL = {Criterion.ERRORS: 0.002, Criterion.LATENCY: 0.05, Criterion.ACCURACY: 0.03}


def test_a_canary_like_the_others_is_promoted_however_often_it_is_looked_at() -> None:
    found = [decided(USUAL, USUAL, seed) for seed in range(100)]
    assert {decision for decision, _ in found} == {"promote"}


@pytest.mark.parametrize(
    ("criterion", "share"), [(Criterion.ERRORS, 0.1), (Criterion.LATENCY, 0.4), (Criterion.ACCURACY, 0.25)]
)
def test_a_worse_canary_is_rolled_back_for_that_reason_and_soon(criterion: Criterion, share: float) -> None:
    found = [decided({**USUAL, criterion: share}, USUAL, seed) for seed in range(50)]
    assert {decision for decision, _ in found} == {f"roll-back {criterion}"}
    assert max(looks for _, looks in found) <= 60
