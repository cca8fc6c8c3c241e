"""The mapping from metrics to causes, learned on training runs.

Baselines rank metrics; the benchmark needs causes. Each baseline gets the mapping that gives its own rankings the best
result on the training runs. The i-th metric of a ranking weighs 1/i, up to `depth`. The profile of a cause is the mean
of those weights over its training runs; `strength` times the prior of the rules is added (the signals of the findings
that a cause expects), so that causes without training runs can be named too. Kind, depth and strength are selected by
leaving out each training run, and all runs of its causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from latdoctor.conditions.ast import signals_of
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evaluation.baselines.methods import MetricScores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

Prior = Mapping[str, Mapping[str, float]]  # signal → cause → share

DEPTHS = (1, 3, 10, 30)
STRENGTHS = (0.01, 0.1, 1.0)
FIRST = 5  # Avg@5 decides where AC@1 ties


class MappingKind(StrEnum):
    """How a ranking of metrics becomes a ranking of causes."""

    VOTES = "votes"  # each metric shares its weight among causes
    LIKENESS = "likeness"  # cosine of ranking and profile


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run: its metric scores, and the injected causes."""

    scored: MetricScores
    causes: tuple[str, ...]


class CauseMapping(Struct, frozen=True):
    """The mapping of a baseline. `table`: signal → cause → weight."""

    method: str = field(name="peer")
    kind: MappingKind = field(name="reading")
    depth: int
    strength: float
    table: dict[str, dict[str, float]]
    runs: int
    left_out: float  # AC@1 over the training runs, each left out in turn
    cause_left_out: float  # the same with all runs of its causes left out


def from_rules(rules: RuleSet) -> Prior:
    """Signal → cause → the share of the rules' weight on that signal; the shares of a signal add up to 1."""
    weights: dict[str, dict[str, float]] = {}
    for cause in rules.causes:
        for name, weight in cause.expects.items():
            finding = rules.finding[name]
            for signal in signals_of(finding.when) if finding.specific else ():
                own = weights.setdefault(signal, {})
                own[cause.id] = own.get(cause.id, 0.0) + weight
    return {
        signal: {cause: weight / sum(own.values()) for cause, weight in own.items()} for signal, own in weights.items()
    }


def fit(method: str, training: Sequence[TrainingRun], prior: Prior) -> CauseMapping:
    """The mapping with the best AC@1 on left-out runs; Avg@5 breaks ties."""
    best: CauseMapping | None = None
    merit = (-1.0, -1.0)
    for depth in DEPTHS:
        training_set = _TrainingSet.of(training, prior, depth)
        for strength, kind in product(STRENGTHS, MappingKind):
            runs, causes = (
                list(_left_out(training_set, kind, strength, whole_causes=whole)) for whole in (False, True)
            )
            both = [*runs, *causes]
            found = _share(both, 1), sum(_share(both, k) for k in range(1, FIRST + 1)) / FIRST
            if found > merit:
                table = training_set.named(_table(training_set.profiles, training_set.prior, kind, strength))
                merit = found
                shares = _share(runs, 1), _share(causes, 1)
                best = CauseMapping(method, kind, depth, strength, table, len(runs), *shares)
    assert best is not None  # a share is never below zero
    return best


def refitted(fitted: CauseMapping, training: Sequence[TrainingRun], prior: Prior) -> CauseMapping:
    """`fitted` learned on `training` only: for a training run that must be left out."""
    training_set = _TrainingSet.of(training, prior, fitted.depth)
    table = _table(training_set.profiles, training_set.prior, fitted.kind, fitted.strength)
    return structs.replace(fitted, table=training_set.named(table))


def named(fitted: CauseMapping, scored: MetricScores) -> tuple[str, ...]:
    """The causes of `scored`, most likely first; none where the method failed."""
    points: dict[str, float] = {}
    for place, (signal, _) in enumerate(scored.signals[: fitted.depth], start=1):
        for cause, weight in fitted.table.get(signal, {}).items():
            points[cause] = points.get(cause, 0.0) + weight / place
    return tuple(sorted(points, key=lambda cause: (-points[cause], cause)))


def _share(ranks: Sequence[int], k: int) -> float:
    """How many of `ranks` (from one; zero for not at all) are within the first `k`."""
    return sum(1 <= rank <= k for rank in ranks) / len(ranks) if ranks else 0.0


@dataclass(frozen=True)
class _TrainingSet:
    """The training runs as matrices: signals are rows of a profile, causes its columns."""

    signals: tuple[str, ...]
    causes: tuple[str, ...]
    weights: Matrix  # runs × signals
    injected: Matrix  # runs × causes, each run's adding up to one
    prior: Matrix  # signals × causes

    @classmethod
    def of(cls, training: Sequence[TrainingRun], prior: Prior, depth: int) -> _TrainingSet:
        import numpy as np

        # In an order of its own: sums that are equal but for rounding decide ties.
        training = sorted(training, key=lambda run: ([name for name, _ in run.scored.signals], run.causes))
        signals = tuple(sorted({name for run in training for name, _ in run.scored.signals} | prior.keys()))
        known = {cause for run in training for cause in run.causes} | {c for own in prior.values() for c in own}
        causes = tuple(sorted(known))
        row, column = ({name: place for place, name in enumerate(names)} for names in (signals, causes))
        weights, injected = np.zeros((len(training), len(signals))), np.zeros((len(training), len(causes)))
        for number, run in enumerate(training):
            for place, (signal, _) in enumerate(run.scored.signals[:depth], start=1):
                weights[number, row[signal]] = 1 / place
            for cause in run.causes:
                injected[number, column[cause]] = 1 / len(run.causes)
        rules_prior = np.zeros((len(signals), len(causes)))
        for signal, own in prior.items():
            for cause, share in own.items():
                rules_prior[row[signal], column[cause]] = share
        return cls(signals, causes, weights, injected, rules_prior)

    @property
    def profiles(self) -> Matrix:
        """signals × causes: the mean weights over the runs of each cause."""
        return _per_cause(self.weights.T @ self.injected, self.injected.sum(axis=0))

    def named(self, table: Matrix) -> dict[str, dict[str, float]]:
        return {
            signal: {cause: float(table[row, column]) for column, cause in enumerate(self.causes) if table[row, column]}
            for row, signal in enumerate(self.signals)
        }


def _per_cause(sums: Matrix, counts: Matrix) -> Matrix:
    import numpy as np

    found: Matrix = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 1e-9)
    return found


def _table(profiles: Matrix, prior: Matrix, kind: MappingKind, strength: float) -> Matrix:
    """The weight of each signal for each cause."""
    import numpy as np

    known = profiles + strength * prior
    size = (
        known.sum(axis=1, keepdims=True)
        if kind is MappingKind.VOTES
        else np.sqrt((known**2).sum(axis=0, keepdims=True))
    )
    found: Matrix = np.divide(known, size, out=np.zeros_like(known), where=size > 0)
    return found


def _left_out(training_set: _TrainingSet, kind: MappingKind, strength: float, *, whole_causes: bool) -> Iterator[int]:
    """For each training run: the rank of its best cause (0: none) with the run, or its causes, left out."""
    import numpy as np

    sums, counts = training_set.weights.T @ training_set.injected, training_set.injected.sum(axis=0)
    for weights, causes in zip(training_set.weights, training_set.injected, strict=True):
        own = np.flatnonzero(causes)
        if not len(own):
            continue
        if whole_causes:
            less, fewer = sums.copy(), counts.copy()
            less[:, own], fewer[own] = 0.0, 0.0
        else:
            less, fewer = sums - np.outer(weights, causes), counts - causes
        # The subtraction leaves rounding errors, which are no evidence.
        profiles = np.where(less > 1e-9, _per_cause(less, fewer), 0.0)
        points = weights @ _table(profiles, training_set.prior, kind, strength)
        first = int(own[points[own].argmax()])
        # Ties are broken by name, as in `named`.
        before = (points > points[first]).sum() + (points[:first] == points[first]).sum()
        yield 1 + int(before) if points[first] > 0 else 0
