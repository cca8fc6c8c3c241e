"""Other methods on the same recordings: each is fitted on the runs that may be looked at, and then ranks causes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latdoctor.errors import LatdoctorError
from latdoctor.evaluation.ground_truth import FamilySplit, GroundTruth
from latdoctor.evaluation.scoring import MethodScore, accuracy_of, both_of_two
from latdoctor.evaluation.store import RecordedRun

# Ranks the ids of causes for one run, the likeliest first. Raises LatdoctorError where it fails at that run.
CauseRanker = Callable[[RecordedRun], Sequence[str]]


@dataclass(frozen=True, slots=True)
class RankingMethod:
    """`fit` gets the runs of families that were looked at, with their truths, and gives what ranks any run.

    `metrics` names what it reads of a run. `fit` raises LatdoctorError where it cannot be fitted. Whatever a peer's own
    code raises has become that before.
    """

    name: str
    metrics: str
    fit: Callable[[Sequence[RecordedRun]], CauseRanker]


@dataclass(frozen=True, slots=True)
class MethodRanking:
    """What a method made of a run: its causes, the likeliest first, and how long that took."""

    truth: GroundTruth
    ranking: Sequence[str]
    seconds: float


def comparable_runs(recorded: Sequence[RecordedRun]) -> tuple[RecordedRun, ...]:
    """The runs that peers are judged on: something is wrong, and somebody looked before as well."""
    return tuple(one for one in recorded if one.truth.causes and one.told.before is not None)


def compare_methods(
    contestants: Sequence[RankingMethod],
    recorded: Sequence[RecordedRun],
    split: FamilySplit,
    say: Callable[[str], None],
) -> tuple[MethodScore, ...]:
    """How each does. One that raises for a run has failed at it; one that cannot be fitted has failed at all."""
    judged = comparable_runs(recorded)
    training = [one for one in judged if not split.is_held_out(one.truth.causes)]
    rivals = []
    for contestant in contestants:
        given, crashed = _asked(contestant, training, judged, say)
        say(f"{contestant.name} has named causes of {len(judged)} runs by {contestant.metrics}")
        rivals.append(method_score(contestant.name, contestant.metrics, given, split, crashed))
    return tuple(rivals)


def method_score(
    name: str, metrics: str, given: Sequence[MethodRanking], split: FamilySplit, crashed: int = 0
) -> MethodScore:
    """How right a method is, by what it made of each run: ours and the others' alike."""
    rankings = [(one.truth.causes, one.ranking) for one in given]
    of = accuracy_of(rankings)
    unseen = accuracy_of([(one.truth.causes, one.ranking) for one in given if split.is_held_out(one.truth.causes)])
    seconds = statistics.median(one.seconds for one in given) if given else None
    return MethodScore(name, metrics, of.ac1, unseen.ac1, of.ac3, of.avg5, both_of_two(rankings), crashed, seconds)


def _asked(
    contestant: RankingMethod,
    training: Sequence[RecordedRun],
    judged: Sequence[RecordedRun],
    say: Callable[[str], None],
) -> tuple[list[MethodRanking], int]:
    """What it made of each run, and at how many it broke."""
    given: list[MethodRanking] = []
    crashed = 0
    scorer = _fitted(contestant, training, say)
    for one in judged:
        ranking: Sequence[str] = ()
        begun = time.perf_counter()
        try:
            ranking = scorer(one)
        except LatdoctorError as error:
            crashed += 1
            say(f"{contestant.name}: {one.truth.run}: {error}")
        given.append(MethodRanking(one.truth, tuple(ranking), time.perf_counter() - begun))
    return given, crashed


def _fitted(contestant: RankingMethod, training: Sequence[RecordedRun], say: Callable[[str], None]) -> CauseRanker:
    try:
        return contestant.fit(training)
    except LatdoctorError as error:
        say(f"{contestant.name} cannot be fitted: {error}")
        failed = error

    def fails(recorded: RecordedRun) -> Sequence[str]:
        raise failed

    return fails
