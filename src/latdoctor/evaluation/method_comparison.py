"""Other methods on the same recordings: each is fitted on the runs of tuned families, then ranks causes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latdoctor.errors import LatdoctorError
from latdoctor.evaluation.ground_truth import FamilySplit
from latdoctor.evaluation.scoring import MethodInput, MethodScore, accuracy_of, both_of_two
from latdoctor.evaluation.store import RecordedRun

# Ranks cause ids for one run, most likely first. Raises LatdoctorError where the method fails.
CauseRanker = Callable[[RecordedRun], Sequence[str]]


@dataclass(frozen=True, slots=True)
class RankingMethod:
    """A method: `fit` takes the training runs with their ground truth and returns the ranker.

    `metrics` names its input. `fit` raises LatdoctorError where the method cannot be fitted.
    """

    name: str
    metrics: MethodInput
    fit: Callable[[Sequence[RecordedRun]], CauseRanker]


@dataclass(frozen=True, slots=True)
class MethodRanking:
    """The causes that a method ranks for a run, most likely first, and the time taken."""

    causes: Sequence[str]  # injected
    ranking: Sequence[str]
    seconds: float


def comparable_runs(recorded: Sequence[RecordedRun]) -> tuple[RecordedRun, ...]:
    """The runs that methods are compared on: with a fault, and observed before the incident."""
    return tuple(one for one in recorded if one.causes and one.context.before is not None)


def compare_methods(
    methods: Sequence[RankingMethod],
    recorded: Sequence[RecordedRun],
    split: FamilySplit,
    log: Callable[[str], None],
) -> tuple[MethodScore, ...]:
    """The score of each method. A method that raises fails at that run; one that cannot be fitted fails at all runs."""
    judged = comparable_runs(recorded)
    training = [one for one in judged if not split.is_held_out(one.causes)]
    scores = []
    for method in methods:
        rankings, crashed = _rankings(method, training, judged, log)
        log(f"{method.name} ranked causes of {len(judged)} runs from {method.metrics}")
        scores.append(method_score(method.name, method.metrics, rankings, split, crashed))
    return tuple(scores)


def method_score(
    name: str, metrics: MethodInput, ranked: Sequence[MethodRanking], split: FamilySplit, crashed: int = 0
) -> MethodScore:
    """The score of a method, from its ranking of each run."""
    rankings = [(one.causes, one.ranking) for one in ranked]
    of = accuracy_of(rankings)
    unseen = accuracy_of([(one.causes, one.ranking) for one in ranked if split.is_held_out(one.causes)])
    seconds = statistics.median(one.seconds for one in ranked) if ranked else None
    return MethodScore(name, metrics, of.ac1, unseen.ac1, of.ac3, of.avg5, both_of_two(rankings), crashed, seconds)


def _rankings(
    method: RankingMethod,
    training: Sequence[RecordedRun],
    judged: Sequence[RecordedRun],
    log: Callable[[str], None],
) -> tuple[list[MethodRanking], int]:
    """The ranking of each run, and the number of runs at which the method failed."""
    rankings: list[MethodRanking] = []
    crashed = 0
    ranker = _fitted(method, training, log)
    for one in judged:
        ranking: Sequence[str] = ()
        begun = time.perf_counter()
        try:
            ranking = ranker(one)
        except LatdoctorError as error:
            crashed += 1
            log(f"{method.name}: {one.run}: {error}")
        rankings.append(MethodRanking(one.causes, tuple(ranking), time.perf_counter() - begun))
    return rankings, crashed


def _fitted(method: RankingMethod, training: Sequence[RecordedRun], log: Callable[[str], None]) -> CauseRanker:
    try:
        return method.fit(training)
    except LatdoctorError as error:
        log(f"{method.name} cannot be fitted: {error}")
        failed = error

    def fails(recorded: RecordedRun) -> Sequence[str]:
        raise failed

    return fails
