"""Scores of a set of diagnoses against their ground truth. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct, field

from latdoctor import __version__
from latdoctor.evaluation.diagnose_runs import VariantAnswer
from latdoctor.evaluation.ground_truth import FamilySplit, GroundTruth, RunKind, family
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

SCHEMA_VERSION = "4"
OURSELVES = "latdoctor"
PAIR_RUNS = 20  # runs of a cause that are needed to judge its confusable pairs
PAIR_SEPARATED = 0.9  # the share of them in which it must rank before the other cause


class Accuracy(Struct, frozen=True):
    """Of runs with a fault: an injected cause first, among the first three, and on average over 1 to 5."""

    ac1: Proportion
    ac3: Proportion
    avg5: BootstrapEstimate


class GroupScore(Struct, frozen=True):
    """The scores of a group of runs: a family, a severity, a withheld source or a displaced window."""

    name: str
    accuracy: Accuracy
    abstained: Proportion
    named_right: Proportion
    mean_probability: float | None = field(name="sureness")  # of the top cause


class PairScore(Struct, frozen=True):
    """Of the runs of `cause`, those in which it ranks before `neighbour`."""

    cause: str
    neighbour: str
    separated: Proportion

    @property
    def enough(self) -> bool:
        """Whether there are enough runs to judge the pair."""
        return self.separated.of >= PAIR_RUNS

    @property
    def reached(self) -> bool:
        return self.separated.value is not None and self.separated.value >= PAIR_SEPARATED


class HiddenCauseScore(Struct, frozen=True):
    """A cause removed from the catalogue: of its runs, those in which a wrong cause is named.

    A confusable cause does not count as wrong, nor does another injected one.
    """

    cause: str
    wrongly_named: Proportion


class FalseAlarmRate(Struct, frozen=True):
    """Of healthy runs, those in which a cause was named (`runs`). `bound`: one-sided 95 % upper bound of the rate."""

    share: Proportion
    bound: float | None
    runs: tuple[str, ...]


class HealthyRunScore(Struct, frozen=True):
    """The false alarms of one kind of healthy runs, such as busy ones."""

    name: str
    false_alarms: FalseAlarmRate


class MethodInput(StrEnum):
    """What a method reads."""

    SCRAPED = "scraped"  # the scraped series
    SIGNALS = "signals"  # the signals that latdoctor derives from them
    BUNDLE = "bundle"  # the whole bundle


class MethodScore(Struct, frozen=True):
    """A method on the same bundles. `crashed` runs count as failures; `seconds` is the median per run.

    `held_out`: AC@1 on families without training runs.
    """

    name: str
    metrics: MethodInput
    ac1: Proportion
    held_out: Proportion
    ac3: Proportion
    avg5: BootstrapEstimate
    both_of_two: Proportion
    crashed: int
    seconds: float | None


class MissedRun(Struct, frozen=True):
    """A run in which no injected cause ranked first."""

    run: str
    causes: tuple[str, ...]
    first: str
    named: tuple[str, ...]


class RunCounts(Struct, frozen=True):
    """The number of runs: live with a fault, live and healthy, synthetic; of spoiled attempts and of runs given up; and
    of runs planned by the options `chosen` (None: not planned).
    """

    with_fault: int = field(name="wrong")
    healthy: int = field(name="well")
    synthetic: int
    spoiled_tries: int = 0
    given_up: int = 0
    planned: int | None = None
    chosen: str = ""

    @property
    def missing(self) -> int:
        """The number of planned runs that are not among these."""
        return 0 if self.planned is None else self.planned - self.with_fault - self.healthy - self.synthetic


class DiagnosisScores(Struct, frozen=True):
    """All scores. Shares have Wilson's 95 % interval, means a bootstrap interval.

    `live` and `live_false_alarms` are without the synthetic runs.
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
    live: Accuracy
    live_false_alarms: FalseAlarmRate
    healthy: tuple[HealthyRunScore, ...]
    tuned: Accuracy
    held_out: Accuracy
    families: tuple[GroupScore, ...]
    kinds: tuple[GroupScore, ...]
    severities: tuple[GroupScore, ...]
    hard_pairs: tuple[PairScore, ...]
    withheld: tuple[GroupScore, ...]
    displaced: tuple[GroupScore, ...]
    hidden_causes: tuple[HiddenCauseScore, ...]
    unknown_named: Proportion
    misses: tuple[MissedRun, ...]
    methods: tuple[MethodScore, ...] = field(name="peers", default=())


LISTED = 5  # ranks of Avg@5

# The kind of each healthy scenario; any other is the scenario of a fault without its fault.
_CALM, _BUSY, _IDLE, _NO_FAULT = "calm", "busy", "idle", "the load of a fault's scenario without its fault"
_HEALTHY = {"no-fault": _CALM, "healthy": _CALM, "busy": _BUSY, "healthy-but-busy": _BUSY, "idle": _IDLE}


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A diagnosis and its ground truth."""

    ground_truth: GroundTruth
    answer: VariantAnswer

    @property
    def causes(self) -> tuple[str, ...]:
        """The injected causes."""
        return self.ground_truth.causes

    @property
    def ranking(self) -> tuple[str, ...]:
        return tuple(cause.id for cause in self.answer.ranked)

    @property
    def prediction(self) -> Prediction:
        """The top cause; without one, probability 0."""
        if not self.answer.ranked:
            return Prediction(0.0, right=False)
        top = self.answer.ranked[0]
        return Prediction(top.probability, top.id in self.causes)


def score(
    ground_truths: Mapping[str, GroundTruth], answers: Iterable[VariantAnswer], split: FamilySplit
) -> DiagnosisScores:
    """The scores of `answers`; `ground_truths` by run."""
    cases = [ScoredRun(ground_truths[one.run], one) for one in sorted(answers, key=lambda one: (one.view, one.run))]
    plain = [case for case in cases if case.answer.view == PLAIN]
    faulty = [case for case in plain if case.causes]
    healthy = [case for case in plain if not case.causes]
    of = accuracy(faulty)
    predictions = [case.prediction for case in plain]
    return DiagnosisScores(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        runs=_count(plain),
        ac1=of.ac1,
        ac3=of.ac3,
        avg5=of.avg5,
        both_of_two=both_of_two((case.causes, case.ranking) for case in faulty),
        false_alarms=_false_alarms(healthy),
        abstained=_abstained(faulty),
        named_right=_named_right(plain),
        brier=bootstrap(predictions, brier),
        ece=bootstrap(predictions, ece),
        bins=bins(predictions) if predictions else (),
        grounded=bootstrap([found for case in faulty if (found := grounded(case)) is not None], mean),
        seconds=bootstrap([case.answer.seconds for case in plain], mean),
        slowest=max((case.answer.seconds for case in plain), default=None),
        live=accuracy([case for case in faulty if case.ground_truth.kind is RunKind.LIVE]),
        live_false_alarms=_false_alarms([case for case in healthy if case.ground_truth.kind is RunKind.LIVE]),
        healthy=tuple(_healthy(healthy)),
        tuned=accuracy([case for case in faulty if not split.is_held_out(case.causes)]),
        held_out=accuracy([case for case in faulty if split.is_held_out(case.causes)]),
        families=_rows(faulty, lambda case: {family(cause) for cause in case.causes}),
        kinds=_rows(faulty, lambda case: {case.ground_truth.kind.name.lower()}),
        severities=_rows(faulty, lambda case: {f"{case.ground_truth.kind.name.lower()}, {case.ground_truth.severity}"}),
        hard_pairs=tuple(_hard_pairs(faulty, split)),
        withheld=_variants(cases, lambda view: view != PLAIN and view not in SHIFTS),
        displaced=_variants(cases, lambda view: view in SHIFTS),
        hidden_causes=_hidden_causes(faulty, split),
        unknown_named=_wrongly_named(faulty, split),
        misses=tuple(_misses(faulty)),
    )


def ac_at(k: int, causes: Sequence[str], ranking: Sequence[str]) -> float:
    """AC@k of RCAEval: the share of the causes among the first `k`, of as many as fit."""
    return len(set(ranking[:k]) & set(causes)) / min(k, len(causes))


def average_at_5(causes: Sequence[str], ranking: Sequence[str]) -> float:
    """Avg@5: the mean of AC@1 to AC@5."""
    return mean([ac_at(k, causes, ranking) for k in range(1, LISTED + 1)])


def accuracy_of(rankings: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Accuracy:
    """The accuracy of rankings, each with the injected causes of its run."""
    return Accuracy(
        ac1=proportion(sum(ac_at(1, *one) for one in rankings), len(rankings)),
        ac3=proportion(sum(ac_at(3, *one) for one in rankings), len(rankings)),
        avg5=bootstrap([average_at_5(*one) for one in rankings], mean),
    )


def accuracy(cases: Sequence[ScoredRun]) -> Accuracy:
    return accuracy_of([(case.causes, case.ranking) for case in cases])


def both_of_two(rankings: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Proportion:
    """Of runs with two causes, those in which both rank in the first two places."""
    two = [(causes, ranking) for causes, ranking in rankings if len(causes) == 2]
    return proportion(sum(set(ranking[:2]) == set(causes) for causes, ranking in two), len(two))


def grounded(case: ScoredRun) -> float | None:
    """Of the findings that a correct top cause cites, the share that the fault changed; None: unknown."""
    top = case.answer.ranked[0] if case.answer.ranked else None
    if top is None or top.id not in case.causes or case.answer.moved is None or not top.cited:
        return None
    return len(set(top.cited) & set(case.answer.moved)) / len(top.cited)


def _count(plain: Sequence[ScoredRun]) -> RunCounts:
    live = [case.ground_truth for case in plain if case.ground_truth.kind is RunKind.LIVE]
    return RunCounts(
        with_fault=sum(bool(run.causes) for run in live),
        healthy=sum(not run.causes for run in live),
        synthetic=sum(case.ground_truth.kind is RunKind.SYNTHETIC for case in plain),
        spoiled_tries=sum(run.tries - 1 for run in live),
    )


def _false_alarms(healthy: Sequence[ScoredRun]) -> FalseAlarmRate:
    alarmed = [case.answer.run for case in healthy if case.answer.named]
    return FalseAlarmRate(proportion(len(alarmed), len(healthy)), at_most(len(alarmed), len(healthy)), tuple(alarmed))


def _healthy(cases: Sequence[ScoredRun]) -> Iterable[HealthyRunScore]:
    """By kind of healthy scenario, live and synthetic runs separately."""
    groups: dict[str, list[ScoredRun]] = {}
    for case in cases:
        group = f"{case.ground_truth.kind.name.lower()}, {_HEALTHY.get(case.ground_truth.scenario, _NO_FAULT)}"
        groups.setdefault(group, []).append(case)
    return (HealthyRunScore(name, _false_alarms(groups[name])) for name in sorted(groups))


def _abstained(faulty: Sequence[ScoredRun]) -> Proportion:
    return proportion(sum(not case.answer.named for case in faulty), len(faulty))


def _named_right(cases: Sequence[ScoredRun]) -> Proportion:
    """The precision of the named causes."""
    correct = [cause.id in case.causes for case in cases for cause in case.answer.ranked if cause.named]
    return proportion(sum(correct), len(correct))


def _row(name: str, cases: Sequence[ScoredRun]) -> GroupScore:
    faulty = [case for case in cases if case.causes]
    probabilities = [case.prediction.probability for case in faulty]
    return GroupScore(
        name, accuracy(faulty), _abstained(faulty), _named_right(cases), mean(probabilities) if probabilities else None
    )


def _rows(cases: Sequence[ScoredRun], of: Callable[[ScoredRun], set[str]]) -> tuple[GroupScore, ...]:
    names = sorted({name for case in cases for name in of(case)})
    return tuple(_row(name, [case for case in cases if name in of(case)]) for name in names)


def _variants(cases: Sequence[ScoredRun], selected: Callable[[str], bool]) -> tuple[GroupScore, ...]:
    """Each variant, followed by the plain variant of the same runs."""
    found: list[GroupScore] = []
    for view in sorted({case.answer.view for case in cases if selected(case.answer.view)}):
        own = [case for case in cases if case.answer.view == view]
        runs = {case.answer.run for case in own}
        whole = [case for case in cases if case.answer.view == PLAIN and case.answer.run in runs]
        found += [_row(view, own), _row(f"{view}: plain variant of the same runs", whole)]
    return tuple(found)


def _hard_pairs(faulty: Sequence[ScoredRun], split: FamilySplit) -> Iterable[PairScore]:
    for one, other in split.pairs:
        for cause, neighbour in ((one, other), (other, one)):
            # A run with the neighbour injected as a harmless fault does not count.
            own = [case for case in faulty if cause in case.causes and neighbour not in case.ground_truth.injected]
            yield PairScore(
                cause, neighbour, proportion(sum(_before(case, cause, neighbour) for case in own), len(own))
            )


def _before(case: ScoredRun, cause: str, neighbour: str) -> bool:
    ranking = case.ranking
    if cause not in ranking:
        return False
    return neighbour not in ranking or ranking.index(cause) < ranking.index(neighbour)


def _hidden_causes(faulty: Sequence[ScoredRun], split: FamilySplit) -> tuple[HiddenCauseScore, ...]:
    causes = sorted({cause for case in faulty for cause in case.causes})
    return tuple(
        HiddenCauseScore(cause, _wrongly_named([case for case in faulty if cause in case.causes], split))
        for cause in causes
    )


def _wrongly_named(faulty: Sequence[ScoredRun], split: FamilySplit) -> Proportion:
    hidden = [case for case in faulty if case.answer.unknown is not None]
    bad = sum(bool(set(case.answer.unknown or ()) - split.neighbours(case.causes)) for case in hidden)
    return proportion(bad, len(hidden))


def _misses(faulty: Sequence[ScoredRun]) -> Iterable[MissedRun]:
    for case in faulty:
        first = case.ranking[0] if case.ranking else ""
        if first not in case.causes:
            yield MissedRun(case.answer.run, case.causes, first, case.answer.named)
