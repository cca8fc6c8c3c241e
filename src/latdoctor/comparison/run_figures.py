"""What one run, or one slice of a recording, shows: quantiles, goodput, errors, and its latencies."""

from __future__ import annotations

import math

from msgspec import Struct

from latdoctor.comparison.effect import Quantity
from latdoctor.load.summary import LoadResult


class RunFigures(Struct, frozen=True):
    """Latencies in seconds; NaN where not measured. `histogram`: as the load generator encodes latencies."""

    p50: float
    p99: float
    goodput: float
    errors: float
    histogram: str = ""
    problems: tuple[str, ...] = ()

    def value(self, quantity: Quantity) -> float:
        found: float = getattr(self, quantity.value)
        return found


def figures(result: LoadResult) -> RunFigures:
    """The whole of a load."""
    counts = result.total.counts
    return RunFigures(
        p50=math.nan if result.total.p50 is None else result.total.p50,
        p99=math.nan if result.total.p99 is None else result.total.p99,
        goodput=result.total.goodput,
        errors=1 - counts.answered / counts.requests if counts.requests else math.nan,
        histogram=result.total.histogram,
        problems=tuple(one.text for one in result.problems),
    )
