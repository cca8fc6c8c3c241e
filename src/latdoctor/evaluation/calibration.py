"""Fits the temperature, one number, on some families, and judges it on the others.

The temperature divides all evidence (`diagnosis.network`): above 1 it makes every answer less sure. Nothing else is
fitted: weights, leaks and priors are what their rules explain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from latdoctor.diagnosis.noisy_or import Network
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evaluation.diagnose_runs import DiagnosedVariant
from latdoctor.evaluation.ground_truth import FamilySplit, GroundTruth
from latdoctor.evaluation.statistics import BootstrapEstimate, Prediction, bootstrap, brier, ece, log_loss
from latdoctor.evaluation.variants import PLAIN, SHIFTS

# From twice as sure to more than four times as doubtful, in steps of a fifth: finer ones do not differ in log loss.
GRID = tuple(round(0.5 * 1.2**step, 4) for step in range(13))


class Reliability(Struct, frozen=True):
    """How far probabilities can be believed at one temperature."""

    temperature: float
    log_loss: BootstrapEstimate
    brier: BootstrapEstimate
    ece: BootstrapEstimate


class Fit(Struct, frozen=True):
    """What was fitted on `fitted_on` looks, and how it does on the `judged_on` others beside no temperature at all."""

    temperature: float
    fitted_on: int
    judged_on: int
    before: Reliability
    after: Reliability
    curve: tuple[tuple[float, float], ...]  # temperature, log loss on what it was fitted on


def calibrate(
    truths: Mapping[str, GroundTruth], found: Sequence[DiagnosedVariant], rules: RuleSet, split: FamilySplit
) -> Fit:
    """The temperature of the least log loss of the top cause, on runs of families that were looked at.

    Looks that lack a source belong to it: there sureness matters most. Looks at a wrong time do not. Runs in which
    nothing is wrong are judged on, and not fitted on.
    """
    used = [one for one in found if one.answered.view not in SHIFTS]
    mine = [one for one in used if _is_for_fitting(truths[one.answered.run], split)]
    others = [
        one for one in used if one.answered.view == PLAIN and not _is_for_fitting(truths[one.answered.run], split)
    ]
    curve = tuple((t, log_loss(stated(truths, mine, rules, t))) for t in GRID) if mine else ()
    best = min(curve, key=lambda point: point[1])[0] if curve else 1.0
    return Fit(
        temperature=best,
        fitted_on=len(mine),
        judged_on=len(others),
        before=_reliability(1.0, truths, others, rules),
        after=_reliability(best, truths, others, rules),
        curve=curve,
    )


def _is_for_fitting(truth: GroundTruth, split: FamilySplit) -> bool:
    return bool(truth.causes) and not split.is_held_out(truth.causes)


def stated(
    truths: Mapping[str, GroundTruth], found: Sequence[DiagnosedVariant], rules: RuleSet, temperature: float
) -> list[Prediction]:
    """What each look would have stated at `temperature`."""
    return [_stated(truths[one.answered.run], one, rules, temperature) for one in found]


def _stated(truth: GroundTruth, judged: DiagnosedVariant, rules: RuleSet, temperature: float) -> Prediction:
    network = Network.of(rules, judged.checks, temperature)
    ramp = {name: network.probability(name) for name in network.causes}
    top = min(ramp, key=lambda name: (-ramp[name], name), default="")
    return Prediction(ramp.get(top, 0.0), top in truth.causes)


def _reliability(
    temperature: float, truths: Mapping[str, GroundTruth], found: Sequence[DiagnosedVariant], rules: RuleSet
) -> Reliability:
    said = stated(truths, found, rules, temperature)
    return Reliability(temperature, bootstrap(said, log_loss), bootstrap(said, brier), bootstrap(said, ece))
