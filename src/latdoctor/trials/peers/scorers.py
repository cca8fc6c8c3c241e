"""The scores that published methods give to metrics: the higher, the likelier to be at the root.

Taken over as published, with three changes in their favour: what is not known is left out and not filled up; a column
that stood still before gets a thousandth of its largest value for its spread, so that neither its unit nor a division
by zero decides; latencies are what is to be explained, so no peer may name them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from latdoctor.errors import OperationError
from latdoctor.trials.peers.columns import LEAST, Column, columns, is_latency, target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from latdoctor.trials.peers.running import Scores, Signals

    Values = NDArray[np.float64]

STILL = 1e-3  # of a column's largest value: its least spread
LEAST_PAIRS = 2 * LEAST  # seconds in which both are known, for a correlation


def random_order(signals: Signals, chance: np.random.Generator) -> Scores:
    """Any order is as good as any other."""
    names = [name for name in signals if not is_latency(name)]
    return dict(zip(names, (float(one) for one in chance.random(len(names))), strict=True))


def n_sigma(signals: Signals, chance: np.random.Generator) -> Scores:
    """How many standard deviations of before the incident rises above the mean of before, at its highest."""
    del chance
    return _each(signals, lambda column: _highest(column, *_mean_and_deviation(column.before)))


def max_z(signals: Signals, chance: np.random.Generator) -> Scores:
    """The same to either side."""
    del chance
    return _each(signals, lambda column: _furthest(column, *_mean_and_deviation(column.before)))


def baro(signals: Signals, chance: np.random.Generator) -> Scores:
    """BARO's RobustScorer: as N-sigma, with the median and the distance of the quartiles."""
    del chance
    return _each(signals, lambda column: _highest(column, *_median_and_quartiles(column.before)))


def ranked_correlation(signals: Signals, chance: np.random.Generator) -> Scores:
    """|ρ| of Spearman between each metric and latency over both times. Raises OperationError without a latency."""
    import numpy as np

    del chance
    latency = target(signals)
    if latency is None:
        raise OperationError("no latency is known, so nothing can be correlated with it")
    whole = {name: np.concatenate(both) for name, both in signals.items()}
    found = {}
    for name, values in whole.items():
        both = np.isfinite(values) & np.isfinite(whole[latency])
        if not is_latency(name) and int(both.sum()) >= LEAST_PAIRS:
            found[name] = abs(correlation_of_ranks(values[both], whole[latency][both]))
    return found


def _each(signals: Signals, score: Callable[[Column], float]) -> Scores:
    return {column.name: score(column) for column in columns(signals) if not is_latency(column.name)}


def _highest(column: Column, center: float, spread: float) -> float:
    return float((column.incident.max() - center) / spread)


def _furthest(column: Column, center: float, spread: float) -> float:
    return float(abs(column.incident - center).max() / spread)


def _mean_and_deviation(values: Values) -> tuple[float, float]:
    return float(values.mean()), max(float(values.std()), STILL)


def _median_and_quartiles(values: Values) -> tuple[float, float]:
    import numpy as np

    low, middle, high = (float(one) for one in np.percentile(values, (25, 50, 75)))
    return middle, max(high - low, STILL)


def _ranks(values: Values) -> Values:
    """Ranks from zero; equal values share the mean of theirs."""
    import numpy as np

    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Values = (ends - (counts + 1) / 2)[which].astype(np.float64)
    return shared


def correlation_of_ranks(first: Values, second: Values) -> float:
    """Spearman's ρ of known values; zero where one of them stands still."""
    one, other = _ranks(first), _ranks(second)
    one, other = one - one.mean(), other - other.mean()
    size = float((one @ one) * (other @ other)) ** 0.5
    return float(one @ other) / size if size > 0 else 0.0
