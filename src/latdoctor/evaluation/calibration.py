"""Fits the temperature on the tuned families and judges it on the held-out ones.

The temperature divides all evidence (`diagnosis.noisy_or`): above 1 it lowers every probability. Nothing else is
fitted: weights, leaks and priors are justified in their rules.
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

# 0.5 to 4.5 in steps of 20 %: finer steps do not differ in log loss.
GRID = tuple(round(0.5 * 1.2**step, 4) for step in range(13))


class Reliability(Struct, frozen=True):
    """The quality of the probabilities at one temperature."""

    temperature: float
    log_loss: BootstrapEstimate
    brier: BootstrapEstimate
    ece: BootstrapEstimate


class Fit(Struct, frozen=True):
    """The temperature fitted on `fitted_on` observations, and its quality on `judged_on` others, before and after."""

    temperature: float
    fitted_on: int
    judged_on: int
    before: Reliability
    after: Reliability
    curve: tuple[tuple[float, float], ...]  # temperature, log loss on the fitted observations


def calibrate(
    ground_truths: Mapping[str, GroundTruth], found: Sequence[DiagnosedVariant], rules: RuleSet, split: FamilySplit
) -> Fit:
    """The temperature with the lowest log loss of the top cause on runs of tuned families.

    Variants with a withheld source are included, displaced windows are not. Healthy runs are only judged on.
    """
    used = [one for one in found if one.answered.view not in SHIFTS]
    fitted = [one for one in used if _is_for_fitting(ground_truths[one.answered.run], split)]
    others = [
        one
        for one in used
        if one.answered.view == PLAIN and not _is_for_fitting(ground_truths[one.answered.run], split)
    ]
    curve = tuple((t, log_loss(predictions(ground_truths, fitted, rules, t))) for t in GRID) if fitted else ()
    best = min(curve, key=lambda point: point[1])[0] if curve else 1.0
    return Fit(
        temperature=best,
        fitted_on=len(fitted),
        judged_on=len(others),
        before=_reliability(1.0, ground_truths, others, rules),
        after=_reliability(best, ground_truths, others, rules),
        curve=curve,
    )


def _is_for_fitting(ground_truth: GroundTruth, split: FamilySplit) -> bool:
    return bool(ground_truth.causes) and not split.is_held_out(ground_truth.causes)


def predictions(
    ground_truths: Mapping[str, GroundTruth], found: Sequence[DiagnosedVariant], rules: RuleSet, temperature: float
) -> list[Prediction]:
    """The top cause of each observation at `temperature`."""
    return [_prediction(ground_truths[one.answered.run], one, rules, temperature) for one in found]


def _prediction(ground_truth: GroundTruth, judged: DiagnosedVariant, rules: RuleSet, temperature: float) -> Prediction:
    network = Network.of(rules, judged.checks, temperature)
    probability = {name: network.probability(name) for name in network.causes}
    top = min(probability, key=lambda name: (-probability[name], name), default="")
    return Prediction(probability.get(top, 0.0), top in ground_truth.causes)


def _reliability(
    temperature: float, ground_truths: Mapping[str, GroundTruth], found: Sequence[DiagnosedVariant], rules: RuleSet
) -> Reliability:
    all_predictions = predictions(ground_truths, found, rules, temperature)
    log_loss_, brier_, ece_ = (bootstrap(all_predictions, statistic) for statistic in (log_loss, brier, ece))
    return Reliability(temperature, log_loss_, brier_, ece_)
