"""The metric scores of published methods: the higher, the more likely the root cause.

As published, with three changes in their favour: unknown values are left out, not imputed; a constant column gets a
spread of a thousandth of its largest value, so that neither its unit nor a division by zero decides; latencies are to
be explained, so no method may name them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct, field

from latdoctor.errors import OperationError
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

LEAST = 3  # known values before and during the incident: fewer give no spread

# The latency to explain: the first of these that is present.
LATENCIES = (
    "client.latency.p99",
    "latency.p99",
    "client.latency.p95",
    "latency.p95",
    "client.latency.mean",
    "latency.mean",
    "latency.p50",
)


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """One signal of one subject: its known values before and during the incident, scaled to ±1 by the largest."""

    name: str
    before: Values
    incident: Values

    @property
    def signal(self) -> str:
        return signal_of(self.name)


def signal_of(name: str) -> str:
    """`queue.depth server/a` → `queue.depth`."""
    return name.partition(" ")[0]


def columns(signals: Mapping[str, tuple[Values, Values]]) -> Iterator[MetricColumn]:
    """The columns with enough known values before and during the incident, in the order of `signals`."""
    import numpy as np

    for name, (before, incident) in signals.items():
        known = [values[np.isfinite(values)] for values in (before, incident)]
        if min(len(values) for values in known) < LEAST:
            continue
        largest = max(float(np.max(np.abs(values))) for values in known)
        first, second = (values / (largest or 1.0) for values in known)
        yield MetricColumn(name, first, second)


def target(signals: Mapping[str, tuple[Values, Values]]) -> str | None:
    """The latency column to explain; of several subjects the one with the most values."""
    import numpy as np

    for latency in LATENCIES:
        own = [name for name in signals if signal_of(name) == latency]
        known = {name: sum(int(np.isfinite(values).sum()) for values in signals[name]) for name in own}
        if known and max(known.values()) >= 2 * LEAST:
            return max(sorted(known), key=lambda name: known[name])
    return None


def is_latency(name: str) -> bool:
    """Whether a column is the latency of whole requests, which is to be explained and explains nothing."""
    return signal_of(name).startswith(("latency.", "client.latency."))


STILL = 1e-3  # of a column's largest value: its least spread
LEAST_PAIRS = 2 * LEAST  # seconds in which both are known, for a correlation


def random_order(signals: Signals, chance: np.random.Generator) -> Scores:
    """Random scores."""
    names = [name for name in signals if not is_latency(name)]
    return dict(zip(names, (float(one) for one in chance.random(len(names))), strict=True))


def n_sigma(signals: Signals, chance: np.random.Generator) -> Scores:
    """The largest z-score in the incident, from mean and standard deviation before."""
    del chance
    return _each(signals, lambda column: _highest(column, *_mean_and_deviation(column.before)))


def max_z(signals: Signals, chance: np.random.Generator) -> Scores:
    """The largest absolute z-score."""
    del chance
    return _each(signals, lambda column: _furthest(column, *_mean_and_deviation(column.before)))


def baro(signals: Signals, chance: np.random.Generator) -> Scores:
    """BARO's RobustScorer: the largest z-score from median and interquartile range."""
    del chance
    return _each(signals, lambda column: _highest(column, *_median_and_quartiles(column.before)))


def ranked_correlation(signals: Signals, chance: np.random.Generator) -> Scores:
    """Spearman's |ρ| of each metric with latency over both times. Raises OperationError without a latency."""
    import numpy as np

    del chance
    latency = target(signals)
    if latency is None:
        raise OperationError("no latency to correlate with")
    whole = {name: np.concatenate(both) for name, both in signals.items()}
    found = {}
    for name, values in whole.items():
        both = np.isfinite(values) & np.isfinite(whole[latency])
        if not is_latency(name) and int(both.sum()) >= LEAST_PAIRS:
            found[name] = abs(correlation_of_ranks(values[both], whole[latency][both]))
    return found


def _each(signals: Signals, score: Callable[[MetricColumn], float]) -> Scores:
    return {column.name: score(column) for column in columns(signals) if not is_latency(column.name)}


def _highest(column: MetricColumn, center: float, spread: float) -> float:
    return float((column.incident.max() - center) / spread)


def _furthest(column: MetricColumn, center: float, spread: float) -> float:
    return float(abs(column.incident - center).max() / spread)


def _mean_and_deviation(values: Values) -> tuple[float, float]:
    return float(values.mean()), max(float(values.std()), STILL)


def _median_and_quartiles(values: Values) -> tuple[float, float]:
    import numpy as np

    low, middle, high = (float(one) for one in np.percentile(values, (25, 50, 75)))
    return middle, max(high - low, STILL)


def correlation_of_ranks(first: Values, second: Values) -> float:
    """Spearman's ρ of known values; zero where one of them is constant."""
    from scipy.stats import spearmanr

    if (first == first[0]).all() or (second == second[0]).all():
        return 0.0
    return float(spearmanr(first, second).statistic)


Signals = Mapping[str, "tuple[Values, Values]"]  # `SIGNAL SUBJECT` → the seconds before, and those of the incident
Scores = Mapping[str, float]  # by the same names


@dataclass(frozen=True, slots=True)
class BaselineMethod:
    """A method that scores metrics. Any exception of `score` counts as its failure."""

    name: str
    title: str
    method: str  # what it does and where it was published
    score: Callable[[Signals, np.random.Generator], Scores]


BASELINES = (
    BaselineMethod("random", "Random order", "metrics in random order: the lower bound", random_order),
    BaselineMethod(
        "n-sigma", "N-sigma", "largest z-score in the incident, from mean and standard deviation before", n_sigma
    ),
    BaselineMethod("max-abs-z", "max |z|", "largest absolute z-score, so that drops count too", max_z),
    BaselineMethod("baro", "BARO scorer", "RobustScorer of Pham et al. (FSE 2024): median and IQR before", baro),
    BaselineMethod(
        "ranked-correlation",
        "Ranked correlation",
        "Spearman's ρ with latency, as in the PetShop repository (CLeaR 2024)",
        ranked_correlation,
    ),
)


class MetricScores(Struct, frozen=True):
    """The scores of a run: signals by descending score, or the reason of the failure."""

    method: str = field(name="peer")
    signals: tuple[tuple[str, float], ...] = ()
    failed: str = ""


def scored(method: BaselineMethod, signals: Signals, seed: int) -> MetricScores:
    """The scores of `method`. `seed` shuffles the columns, so that their order favours no method."""
    import numpy as np

    columns_ = shuffled(signals, seed)
    try:
        found = method.score(columns_, np.random.default_rng(seed))
        return ranked(method.name, {name: found[name] for name in columns_ if name in found})
    except Exception as error:  # noqa: BLE001 — any exception is the failure of the method, and is reported
        return MetricScores(method.name, failed=clean(f"{type(error).__name__}: {error}", 300))


def shuffled(signals: Signals, seed: int) -> Signals:
    """The columns in an order that depends on `seed` only."""
    import numpy as np

    names = sorted(signals)
    np.random.default_rng(seed).shuffle(names)
    return {name: signals[name] for name in names}


def ranked(method: str, scores: Mapping[str, float]) -> MetricScores:
    """The scores of signals: the highest of each signal's columns; NaN does not count.

    Equal scores stay in the order of `scores`.
    """
    best: dict[str, float] = {}
    for name, score in scores.items():
        signal = signal_of(name)
        if not math.isnan(score) and (signal not in best or score > best[signal]):
            best[signal] = score
    if not best:
        return MetricScores(method, failed="no metric has a score")
    return MetricScores(method, tuple(sorted(best.items(), key=lambda item: -item[1])))
