"""Other methods on the same recordings: each is fitted on the runs that may be looked at, and then ranks causes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latdoctor.errors import LatdoctorError
from latdoctor.evaluation.ground_truth import Split, Truth
from latdoctor.evaluation.scoring import Peer, accuracy_of, both_of_two
from latdoctor.evaluation.store import Recorded

# Ranks the ids of causes for one run, the likeliest first. Raises LatdoctorError where it fails at that run.
Scorer = Callable[[Recorded], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Contestant:
    """`fit` gets the runs of families that were looked at, with their truths, and gives what ranks any run.

    `metrics` names what it reads of a run. `fit` raises LatdoctorError where it cannot be fitted. Whatever a peer's own
    code raises has become that before.
    """

    name: str
    metrics: str
    fit: Callable[[Sequence[Recorded]], Scorer]


@dataclass(frozen=True, slots=True)
class Given:
    """What a method made of a run: its causes, the likeliest first, and how long that took."""

    truth: Truth
    ranking: Sequence[str]
    seconds: float


def comparable(recorded: Sequence[Recorded]) -> tuple[Recorded, ...]:
    """The runs that peers are judged on: something is wrong, and somebody looked before as well."""
    return tuple(one for one in recorded if one.truth.causes and one.told.before is not None)


def contest(
    contestants: Sequence[Contestant], recorded: Sequence[Recorded], split: Split, say: Callable[[str], None]
) -> tuple[Peer, ...]:
    """How each does. One that raises for a run has failed at it; one that cannot be fitted has failed at all."""
    judged = comparable(recorded)
    training = [one for one in judged if not split.is_never(one.truth.causes)]
    rivals = []
    for contestant in contestants:
        given, crashed = _asked(contestant, training, judged, say)
        say(f"{contestant.name} has named causes of {len(judged)} runs by {contestant.metrics}")
        rivals.append(as_peer(contestant.name, contestant.metrics, given, split, crashed))
    return tuple(rivals)


def as_peer(name: str, metrics: str, given: Sequence[Given], split: Split, crashed: int = 0) -> Peer:
    """How right a method is, by what it made of each run: ours and the others' alike."""
    rankings = [(one.truth.causes, one.ranking) for one in given]
    of = accuracy_of(rankings)
    unseen = accuracy_of([(one.truth.causes, one.ranking) for one in given if split.is_never(one.truth.causes)])
    seconds = statistics.median(one.seconds for one in given) if given else None
    return Peer(name, metrics, of.ac1, unseen.ac1, of.ac3, of.avg5, both_of_two(rankings), crashed, seconds)


def _asked(
    contestant: Contestant, training: Sequence[Recorded], judged: Sequence[Recorded], say: Callable[[str], None]
) -> tuple[list[Given], int]:
    """What it made of each run, and at how many it broke."""
    given: list[Given] = []
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
        given.append(Given(one.truth, tuple(ranking), time.perf_counter() - begun))
    return given, crashed


def _fitted(contestant: Contestant, training: Sequence[Recorded], say: Callable[[str], None]) -> Scorer:
    try:
        return contestant.fit(training)
    except LatdoctorError as error:
        say(f"{contestant.name} cannot be fitted: {error}")
        failed = error

    def fails(recorded: Recorded) -> Sequence[str]:
        raise failed

    return fails
