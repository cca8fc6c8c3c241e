"""The judgement of a canary: counts of two versions, intervals of their differences, and a decision.

Three shares are compared: failed requests, requests slower than a limit, and wrong answers to the probe set. One share
that is worse beyond doubt is enough to roll back; all three have to be no worse than tolerated, with enough requests,
to promote. What is not known never promotes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from latdoctor.shares import Share, difference

WORSE_Z = 3.0  # standard errors: it is looked at many times, and each look may be wrong
NO_WORSE_Z = 2.0


class Criterion(StrEnum):
    """What is compared. The values are codes of decisions and metric labels."""

    ERRORS = "errors"
    LATENCY = "latency"
    ACCURACY = "accuracy"


class Decision(StrEnum):
    OBSERVE = "observe"
    PROMOTE = "promote"
    ROLL_BACK = "roll-back"


class Margin(Struct, frozen=True):
    """Differences of a share: `worse` is more than noise may be, `tolerated` is what a promotion accepts at most."""

    worse: float
    tolerated: float
    fewest: int  # of the canary, before it is promoted
    fewest_worse: int = 10  # of the canary, before it is rolled back


MARGINS: Mapping[Criterion, Margin] = {
    Criterion.ERRORS: Margin(0.01, 0.06, fewest=80),
    Criterion.LATENCY: Margin(0.05, 0.15, fewest=80),
    Criterion.ACCURACY: Margin(0.02, 0.10, fewest=60),
}


class ShareComparison(Struct, frozen=True):
    """One share of both versions. `worse_by`: the least and greatest difference that the counts allow."""

    canary: Share
    stable: Share
    worse_by: tuple[float, float]


class Judgement(Struct, frozen=True):
    """`reason`: the criterion that decides; empty while observing and for a promotion."""

    decision: Decision
    reason: str
    compared: dict[str, ShareComparison]


def judge(shares: Mapping[Criterion, tuple[Share, Share]]) -> Judgement:
    """The decision by the shares (canary, stable) of each criterion; one that is missing is not known."""
    compared, reason = {}, ""
    promote = len(shares) == len(MARGINS)
    for criterion, (canary, stable) in shares.items():
        margin = MARGINS[criterion]
        worst, best = difference(canary, stable, WORSE_Z)[0], difference(canary, stable, NO_WORSE_Z)[1]
        compared[str(criterion)] = ShareComparison(canary, stable, (worst, best))
        if not reason and canary.total >= margin.fewest_worse and worst > margin.worse:
            reason = str(criterion)
        promote = promote and canary.total >= margin.fewest and best < margin.tolerated
    if reason:
        return Judgement(Decision.ROLL_BACK, reason, compared)
    return Judgement(Decision.PROMOTE if promote else Decision.OBSERVE, "", compared)
