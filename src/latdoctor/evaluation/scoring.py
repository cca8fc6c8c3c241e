"""From truths and answers to scores. Pure: the same truths and answers give the same scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from latdoctor import __version__
from latdoctor.evaluation.diagnose_runs import VariantAnswer
from latdoctor.evaluation.ground_truth import MADE, PLAYED, FamilySplit, GroundTruth, family
from latdoctor.evaluation.statistics import (
    BootstrapEstimate,
    Prediction,
    Proportion,
    ReliabilityBin,
    at_most,
    bins,
    bootstrap,
    brier,
    ece,
    mean,
    proportion,
)
from latdoctor.evaluation.variants import PLAIN, SHIFTS

SCHEMA_VERSION = "3"
OURSELVES = "latdoctor"  # among the methods
PAIR_RUNS = 20  # of a cause, for its hard pairs to be told
PAIR_APART = 0.9  # the share of them in which it must rank before its neighbour


class Accuracy(Struct, frozen=True):
    """Of runs with something wrong: the right cause first, among the first three, and on average over 1 to 5."""

    ac1: Proportion
    ac3: Proportion
    avg5: BootstrapEstimate


class GroupScore(Struct, frozen=True):
    """One family, withheld source or wrong time: how right, how sure, and how often nothing was named."""

    name: str
    accuracy: Accuracy
    abstained: Proportion
    named_right: Proportion
    sureness: float | None  # mean probability of the top cause


class PairScore(Struct, frozen=True):
    """Of the runs of `cause`, those in which it ranks before `neighbour`."""

    cause: str
    neighbour: str
    separated: Proportion

    @property
    def enough(self) -> bool:
        """Whether there are as many runs as a share of nine tenths is told by."""
        return self.separated.of >= PAIR_RUNS

    @property
    def apart(self) -> bool:
        return self.separated.value is not None and self.separated.value >= PAIR_APART


class HiddenCauseScore(Struct, frozen=True):
    """A cause taken out of the catalogue: of its runs, those in which something is wrongly named.

    What is hard to tell from it does not count as wrong, nor does what is really wrong besides.
    """

    cause: str
    wrongly_named: Proportion


class FalseAlarmRate(Struct, frozen=True):
    """Of runs in which nothing was wrong, those in which a cause was named. `bound`: the true rate is at most that
    (one-sided 95 %). `runs` are those in which it happened.
    """

    share: Proportion
    bound: float | None
    runs: tuple[str, ...]


class HealthyRunScore(Struct, frozen=True):
    """The false alarms of one sort of runs in which nothing was wrong, such as busy ones."""

    name: str
    false_alarms: FalseAlarmRate


class MethodScore(Struct, frozen=True):
    """Another method on the same bundles. `crashed` runs count as failures; `seconds` is the median of a run.

    `metrics`: what it reads of a bundle: the `scraped` series, the `signals` made of them, or the whole `bundle`.
    `held_out`: AC@1 on families of which it learnt nothing.
    """

    name: str
    metrics: str
    ac1: Proportion
    held_out: Proportion
    ac3: Proportion
    avg5: BootstrapEstimate
    both_of_two: Proportion
    crashed: int
    seconds: float | None


class MissedRun(Struct, frozen=True):
    """A run in which the right cause was not first."""

    run: str
    causes: tuple[str, ...]
    first: str
    named: tuple[str, ...]


class RunCounts(Struct, frozen=True):
    """How many runs there are: played with something wrong, played with nothing wrong, made; how many were spoiled
    tries, and cells given up after three; and how many were planned by the options `chosen` (None: nobody planned).
    """

    wrong: int
    well: int
    made: int
    spoiled_tries: int = 0
    given_up: int = 0
    planned: int | None = None
    chosen: str = ""

    @property
    def missing(self) -> int:
        """How many were planned, and are not among these."""
        return 0 if self.planned is None else self.planned - self.wrong - self.well - self.made


class DiagnosisScores(Struct, frozen=True):
    """Everything. Shares carry Wilson's 95 % interval, means a bootstrapped one.

    What is pooled over played and made runs stands beside what the played ones give alone.
    """

    schema_version: str
    tool_version: str
    runs: RunCounts
    ac1: Proportion
    ac3: Proportion
    avg5: BootstrapEstimate
    both_of_two: Proportion
    false_alarms: FalseAlarmRate
    abstained: Proportion
    named_right: Proportion
    brier: BootstrapEstimate
    ece: BootstrapEstimate
    bins: tuple[ReliabilityBin, ...]
    grounded: BootstrapEstimate
    seconds: BootstrapEstimate
    slowest: float | None
    played: Accuracy
    played_false_alarms: FalseAlarmRate
    well: tuple[HealthyRunScore, ...]
    tuned: Accuracy
    held_out: Accuracy
    families: tuple[GroupScore, ...]
    kinds: tuple[GroupScore, ...]
    severities: tuple[GroupScore, ...]
    hard_pairs: tuple[PairScore, ...]
    withheld: tuple[GroupScore, ...]
    wrong_time: tuple[GroupScore, ...]
    left_out: tuple[HiddenCauseScore, ...]
    unknown_named: Proportion
    misses: tuple[MissedRun, ...]
    peers: tuple[MethodScore, ...] = ()


LISTED = 5  # ranks that count for Avg@5

# What a scenario in which nothing is wrong is an example of; any other has a fault that was left out.
_CALM, _BUSY, _IDLE, _LEFT_OUT = "calm", "busy", "idle", "the load of a fault's scenario without its fault"
_WELL = {"no-fault": _CALM, "healthy": _CALM, "busy": _BUSY, "healthy-but-busy": _BUSY, "idle": _IDLE}


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """An answer beside its truth."""

    truth: GroundTruth
    answer: VariantAnswer

    @property
    def ranking(self) -> tuple[str, ...]:
        return tuple(cause.id for cause in self.answer.ranked)

    @property
    def stated(self) -> Prediction:
        """The top cause; where none is listed, none was held likely, which is no statement of a right one either."""
        if not self.answer.ranked:
            return Prediction(0.0, right=False)
        top = self.answer.ranked[0]
        return Prediction(top.probability, top.id in self.truth.causes)


def score(truths: Mapping[str, GroundTruth], answers: Iterable[VariantAnswer], split: FamilySplit) -> DiagnosisScores:
    """The scores of `answers`, each of a run of `truths`."""
    cases = [ScoredRun(truths[one.run], one) for one in sorted(answers, key=lambda one: (one.view, one.run))]
    plain = [case for case in cases if case.answer.view == PLAIN]
    wrong = [case for case in plain if case.truth.causes]
    well = [case for case in plain if not case.truth.causes]
    of = accuracy(wrong)
    stated = [case.stated for case in plain]
    return DiagnosisScores(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        runs=_counted(plain),
        ac1=of.ac1,
        ac3=of.ac3,
        avg5=of.avg5,
        both_of_two=both_of_two((case.truth.causes, case.ranking) for case in wrong),
        false_alarms=_false_alarms(well),
        abstained=_abstained(wrong),
        named_right=_named_right(plain),
        brier=bootstrap(stated, brier),
        ece=bootstrap(stated, ece),
        bins=bins(stated) if stated else (),
        grounded=bootstrap([found for case in wrong if (found := grounded(case)) is not None], mean),
        seconds=bootstrap([case.answer.seconds for case in plain], mean),
        slowest=max((case.answer.seconds for case in plain), default=None),
        played=accuracy([case for case in wrong if case.truth.kind == PLAYED]),
        played_false_alarms=_false_alarms([case for case in well if case.truth.kind == PLAYED]),
        well=tuple(_well(well)),
        tuned=accuracy([case for case in wrong if not split.is_held_out(case.truth.causes)]),
        held_out=accuracy([case for case in wrong if split.is_held_out(case.truth.causes)]),
        families=_rows(wrong, lambda case: {family(cause) for cause in case.truth.causes}),
        kinds=_rows(wrong, lambda case: {case.truth.kind}),
        severities=_rows(wrong, lambda case: {f"{case.truth.kind}, {case.truth.severity}"}),
        hard_pairs=tuple(_hard_pairs(wrong, split)),
        withheld=_views(cases, lambda view: view != PLAIN and view not in SHIFTS),
        wrong_time=_views(cases, lambda view: view in SHIFTS),
        left_out=_left_out(wrong, split),
        unknown_named=_wrongly_named(wrong, split),
        misses=tuple(_misses(wrong)),
    )


def ac_at(k: int, causes: Sequence[str], ranking: Sequence[str]) -> float:
    """The share of the causes among the first `k`, of as many as could be there (AC@k of RCAEval)."""
    return len(set(ranking[:k]) & set(causes)) / min(k, len(causes))


def average_at_5(causes: Sequence[str], ranking: Sequence[str]) -> float:
    """Avg@5: the mean of AC@1 to AC@5."""
    return mean([ac_at(k, causes, ranking) for k in range(1, LISTED + 1)])


def accuracy_of(rankings: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Accuracy:
    """The accuracy of rankings, each beside the causes of its run: ours and the peers' alike."""
    return Accuracy(
        ac1=proportion(sum(ac_at(1, *one) for one in rankings), len(rankings)),
        ac3=proportion(sum(ac_at(3, *one) for one in rankings), len(rankings)),
        avg5=bootstrap([average_at_5(*one) for one in rankings], mean),
    )


def accuracy(cases: Sequence[ScoredRun]) -> Accuracy:
    return accuracy_of([(case.truth.causes, case.ranking) for case in cases])


def both_of_two(rankings: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Proportion:
    """Of runs with two causes, those in which they are the first two."""
    two = [(causes, ranking) for causes, ranking in rankings if len(causes) == 2]
    return proportion(sum(set(ranking[:2]) == set(causes) for causes, ranking in two), len(two))


def grounded(case: ScoredRun) -> float | None:
    """Of the findings that a right top cause cites, the share that the fault moved; None where that is not told."""
    top = case.answer.ranked[0] if case.answer.ranked else None
    if top is None or top.id not in case.truth.causes or case.answer.moved is None or not top.cited:
        return None
    return len(set(top.cited) & set(case.answer.moved)) / len(top.cited)


def _counted(plain: Sequence[ScoredRun]) -> RunCounts:
    played = [case.truth for case in plain if case.truth.kind == PLAYED]
    return RunCounts(
        wrong=sum(bool(truth.causes) for truth in played),
        well=sum(not truth.causes for truth in played),
        made=sum(case.truth.kind == MADE for case in plain),
        spoiled_tries=sum(truth.tries - 1 for truth in played),
    )


def _false_alarms(well: Sequence[ScoredRun]) -> FalseAlarmRate:
    alarmed = [case.answer.run for case in well if case.answer.named]
    return FalseAlarmRate(proportion(len(alarmed), len(well)), at_most(len(alarmed), len(well)), tuple(alarmed))


def _well(cases: Sequence[ScoredRun]) -> Iterable[HealthyRunScore]:
    """By what they are an example of, played and made runs apart."""
    sorts: dict[str, list[ScoredRun]] = {}
    for case in cases:
        sort = _WELL.get(case.truth.scenario, _LEFT_OUT)
        sorts.setdefault(f"{case.truth.kind}, {sort}", []).append(case)
    return (HealthyRunScore(name, _false_alarms(sorts[name])) for name in sorted(sorts))


def _abstained(wrong: Sequence[ScoredRun]) -> Proportion:
    return proportion(sum(not case.answer.named for case in wrong), len(wrong))


def _named_right(cases: Sequence[ScoredRun]) -> Proportion:
    """Of the causes that are named, those that are really there."""
    named = [(cause.id, case.truth) for case in cases for cause in case.answer.ranked if cause.named]
    return proportion(sum(cause in truth.causes for cause, truth in named), len(named))


def _row(name: str, cases: Sequence[ScoredRun]) -> GroupScore:
    wrong = [case for case in cases if case.truth.causes]
    ramp = [case.stated.probability for case in wrong]
    return GroupScore(name, accuracy(wrong), _abstained(wrong), _named_right(cases), mean(ramp) if ramp else None)


def _rows(cases: Sequence[ScoredRun], of: Callable[[ScoredRun], set[str]]) -> tuple[GroupScore, ...]:
    names = sorted({name for case in cases for name in of(case)})
    return tuple(_row(name, [case for case in cases if name in of(case)]) for name in names)


def _views(cases: Sequence[ScoredRun], wanted: Callable[[str], bool]) -> tuple[GroupScore, ...]:
    """Each view beside what the plain looks of the same runs give: only these can be compared with it."""
    found: list[GroupScore] = []
    for view in sorted({case.answer.view for case in cases if wanted(case.answer.view)}):
        own = [case for case in cases if case.answer.view == view]
        runs = {case.answer.run for case in own}
        whole = [case for case in cases if case.answer.view == PLAIN and case.answer.run in runs]
        found += [_row(view, own), _row(f"{view}: the same runs with it", whole)]
    return tuple(found)


def _hard_pairs(wrong: Sequence[ScoredRun], split: FamilySplit) -> Iterable[PairScore]:
    for one, other in split.pairs:
        for cause, neighbour in ((one, other), (other, one)):
            # Whoever finds a harmless neighbour that is there has not taken the one for the other.
            own = [case for case in wrong if cause in case.truth.causes and neighbour not in case.truth.injected]
            yield PairScore(
                cause, neighbour, proportion(sum(_before(case, cause, neighbour) for case in own), len(own))
            )


def _before(case: ScoredRun, cause: str, neighbour: str) -> bool:
    ranking = case.ranking
    if cause not in ranking:
        return False
    return neighbour not in ranking or ranking.index(cause) < ranking.index(neighbour)


def _left_out(wrong: Sequence[ScoredRun], split: FamilySplit) -> tuple[HiddenCauseScore, ...]:
    causes = sorted({cause for case in wrong for cause in case.truth.causes})
    return tuple(
        HiddenCauseScore(cause, _wrongly_named([case for case in wrong if cause in case.truth.causes], split))
        for cause in causes
    )


def _wrongly_named(wrong: Sequence[ScoredRun], split: FamilySplit) -> Proportion:
    tried = [case for case in wrong if case.answer.unknown is not None]
    bad = sum(bool(set(case.answer.unknown or ()) - split.neighbours(case.truth.causes)) for case in tried)
    return proportion(bad, len(tried))


def _misses(wrong: Sequence[ScoredRun]) -> Iterable[MissedRun]:
    for case in wrong:
        first = case.ranking[0] if case.ranking else ""
        if first not in case.truth.causes:
            yield MissedRun(case.answer.run, case.truth.causes, first, case.answer.named)
