"""What one run, or one slice of a recording, shows: quantiles, goodput, errors, and its latencies."""

from __future__ import annotations

import math

from msgspec import Struct

from latdoctor.load.summary import LoadResult
from latdoctor.planning.comparison.effect import Quantity


class RunFigures(Struct, frozen=True):
    """Latencies in seconds; None where not measured. `histogram`: as the load generator encodes latencies."""

    p50: float | None
    p99: float | None
    goodput: float | None = None
    errors: float | None = None
    histogram: str = ""
    problems: tuple[str, ...] = ()

    def value(self, quantity: Quantity) -> float:
        """NaN where not measured, which no comparison takes for a value."""
        found: float | None = getattr(self, quantity.value)
        return math.nan if found is None else found


def figures(result: LoadResult) -> RunFigures:
    """The whole of a load."""
    counts = result.total.counts
    return RunFigures(
        p50=result.total.p50,
        p99=result.total.p99,
        goodput=result.total.goodput,
        errors=1 - counts.answered / counts.requests if counts.requests else None,
        histogram=result.total.histogram,
        problems=tuple(one.text for one in result.problems),
    )
