"""From metrics to causes: what a peer's ranking of metrics says, learnt on training runs.

Peers name metrics; the bench asks for causes. So each peer gets the best reading of its own rankings that training
runs allow. The i-th metric of a ranking weighs 1/i, as far as `depth`. The profile of a cause is the mean of those
weights over its training runs, each cause counted alike however often it was played; to it is added `strength` times
what the rules themselves say: which signals the findings look at that a cause expects. Without that no peer could name
a cause that it was not trained on. Two readings are tried: *votes* (each metric shares its weight among causes) and
*likeness* (the cosine between ranking and profile). Reading, depth and strength are those that name best when each
training run is left out in turn, and when all runs of its causes are: they will be asked for causes that were trained
on, and for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from latdoctor.conditions.ast import signals_of
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evaluation.baselines.methods import MetricScores

if TYPE_CHECKING:
    pass
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

Prior = Mapping[str, Mapping[str, float]]  # signal → cause → share

VOTES, LIKENESS = "votes", "likeness"
DEPTHS = (1, 3, 10, 30)
STRENGTHS = (0.01, 0.1, 1.0)
FIRST = 5  # Avg@5 decides where AC@1 ties


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run: what the peer made of it, and the causes that count as right."""

    scored: MetricScores
    causes: tuple[str, ...]


class CauseMapping(Struct, frozen=True):
    """A peer's reading. `table` gives for each signal how it speaks for each cause."""

    peer: str
    reading: str  # votes | likeness
    depth: int
    strength: float
    table: dict[str, dict[str, float]]
    runs: int
    left_out: float  # AC@1 over the training runs, each left out in turn
    cause_left_out: float  # the same with all runs of its causes left out


def from_rules(rules: RuleSet) -> Prior:
    """Signal → cause → share: how much of what the rules make of a signal is about that cause; shares add up to one."""
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


def fit(peer: str, training: Sequence[TrainingRun], prior: Prior) -> CauseMapping:
    """The reading of `peer` that names best."""
    best: CauseMapping | None = None
    merit = (-1.0, -1.0)
    for depth in DEPTHS:
        world = _TrainingSet.of(training, prior, depth)
        for strength, reading in product(STRENGTHS, (VOTES, LIKENESS)):
            runs, causes = (list(_left_out(world, reading, strength, whole_causes=whole)) for whole in (False, True))
            both = [*runs, *causes]
            found = _share(both, 1), sum(_share(both, k) for k in range(1, FIRST + 1)) / FIRST
            if found > merit:
                table = world.named(_table(world.profiles, world.prior, reading, strength))
                merit = found
                shares = _share(runs, 1), _share(causes, 1)
                best = CauseMapping(peer, reading, depth, strength, table, len(runs), *shares)
    assert best is not None  # a share is never below zero
    return best


def refitted(fitted: CauseMapping, training: Sequence[TrainingRun], prior: Prior) -> CauseMapping:
    """The same way of reading, learnt on `training`: for a run that `fitted` itself was trained on."""
    world = _TrainingSet.of(training, prior, fitted.depth)
    table = _table(world.profiles, world.prior, fitted.reading, fitted.strength)
    return structs.replace(fitted, table=world.named(table))


def named(fitted: CauseMapping, scored: MetricScores) -> tuple[str, ...]:
    """The causes that `scored` speaks for, the likeliest first; none where the peer failed."""
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
    truths: Matrix  # runs × causes, each run's adding up to one
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
        weights, truths = np.zeros((len(training), len(signals))), np.zeros((len(training), len(causes)))
        for number, run in enumerate(training):
            for place, (signal, _) in enumerate(run.scored.signals[:depth], start=1):
                weights[number, row[signal]] = 1 / place
            for cause in run.causes:
                truths[number, column[cause]] = 1 / len(run.causes)
        told = np.zeros((len(signals), len(causes)))
        for signal, own in prior.items():
            for cause, share in own.items():
                told[row[signal], column[cause]] = share
        return cls(signals, causes, weights, truths, told)

    @property
    def profiles(self) -> Matrix:
        """signals × causes: the mean weights over the runs of each cause."""
        return _per_cause(self.weights.T @ self.truths, self.truths.sum(axis=0))

    def named(self, table: Matrix) -> dict[str, dict[str, float]]:
        return {
            signal: {cause: float(table[row, column]) for column, cause in enumerate(self.causes) if table[row, column]}
            for row, signal in enumerate(self.signals)
        }


def _per_cause(sums: Matrix, counts: Matrix) -> Matrix:
    import numpy as np

    found: Matrix = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 1e-9)
    return found


def _table(profiles: Matrix, prior: Matrix, reading: str, strength: float) -> Matrix:
    """How much each signal speaks for each cause."""
    import numpy as np

    known = profiles + strength * prior
    size = known.sum(axis=1, keepdims=True) if reading == VOTES else np.sqrt((known**2).sum(axis=0, keepdims=True))
    found: Matrix = np.divide(known, size, out=np.zeros_like(known), where=size > 0)
    return found


def _left_out(world: _TrainingSet, reading: str, strength: float, *, whole_causes: bool) -> Iterator[int]:
    """For each run with a cause: the place of one of its causes (zero: none), had it not been trained on."""
    import numpy as np

    sums, counts = world.weights.T @ world.truths, world.truths.sum(axis=0)
    for weights, truth in zip(world.weights, world.truths, strict=True):
        own = np.flatnonzero(truth)
        if not len(own):
            continue
        if whole_causes:
            less, fewer = sums.copy(), counts.copy()
            less[:, own], fewer[own] = 0.0, 0.0
        else:
            less, fewer = sums - np.outer(weights, truth), counts - truth
        # What was taken away leaves rounding behind, which is no evidence.
        profiles = np.where(less > 1e-9, _per_cause(less, fewer), 0.0)
        points = weights @ _table(profiles, world.prior, reading, strength)
        first = int(own[points[own].argmax()])
        # Among equals the one whose name comes first, as `named` has it.
        before = (points > points[first]).sum() + (points[:first] == points[first]).sum()
        yield 1 + int(before) if points[first] > 0 else 0


_SHOWN = 2  # causes of one signal
_LEAST = 0.1  # a smaller share is not shown


_HEAD = """# What the peers are told to see in a metric

`latdoctor lab bench mapping --to docs/bench-mapping.md` writes this page. The methods beside which the diagnosis is
judged ([bench.md](bench.md)) rank metrics, and the bench asks for causes. So each is given the best reading of its own
rankings that training runs allow: the first *metrics read* of a ranking count, the i-th of them 1/i, and speak for
causes as the table says. The table is learnt from the runs of families that were looked at; *weight of the rules* times
is added what the rules themselves look at for each cause, or no peer could name a cause that it never saw. A run that
was trained on is judged by a table without it. In a cell: the causes that a metric speaks for most, with their
share."""
_OF = {
    "scraped": """## The series as they were scraped

What the rules look at for a cause is told of the metrics that the dialects make these signals of.""",
    "signals": "## The signals that latdoctor makes of them",
}


def page(fitted: Mapping[str, Sequence[CauseMapping]], titles: Mapping[str, str]) -> str:
    """The whole page as Markdown; `fitted` has the readings for each kind of metrics."""
    parts = [f"{_OF[metrics]}\n\n" + "\n".join(lines(own, titles)) for metrics, own in fitted.items()]
    return "\n\n".join((_HEAD, *parts)) + "\n"


def lines(fitted: Sequence[CauseMapping], titles: Mapping[str, str]) -> Iterator[str]:
    """Markdown: how each peer is read, then every signal that speaks for some cause."""
    titles = {name: title.replace("|", "\\|") for name, title in titles.items()}
    yield (
        "| peer | reading | metrics read | weight of the rules | training runs | AC@1 on them, each left out "
        "| with all runs of its cause left out |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|"
    for one in fitted:
        reading = "likeness to profiles" if one.reading == LIKENESS else "votes"
        yield (
            f"| {titles[one.peer]} | {reading} | {one.depth} | {one.strength:g} | {one.runs} | {one.left_out:.2f} "
            f"| {one.cause_left_out:.2f} |"
        )
    yield ""
    yield f"| signal | {' | '.join(titles[one.peer] for one in fitted)} |"
    yield f"|---|{'---|' * len(fitted)}"
    for signal in sorted({signal for one in fitted for signal in one.table}):
        cells = [_cell(one.table.get(signal, {})) for one in fitted]
        if any(cells):
            yield f"| `{signal}` | {' | '.join(cells)} |"


def _cell(weights: Mapping[str, float]) -> str:
    """The causes that a signal speaks for most, each with its share of all that it says."""
    total = sum(weights.values())
    if total <= 0:
        return ""
    best = sorted(weights, key=lambda cause: (-weights[cause], cause))[:_SHOWN]
    return ", ".join(f"{cause} {weights[cause] / total:.2f}" for cause in best if weights[cause] / total >= _LEAST)
