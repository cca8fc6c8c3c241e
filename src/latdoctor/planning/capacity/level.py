"""One level of a capacity measurement: a rate that was offered for some seconds, and what the clients got."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from latdoctor.load.summary import LoadProblemCode, LoadResult, RequestCounts


class Level(Struct, frozen=True):
    """`rate`: requests per second as offered. `good` of `requests` were answered within the SLO.

    `blocks`: good ones and all of each second, for the interval of the limit. `overloaded`: it was stopped early,
    because latency and the requests in flight kept growing. `errors`: requests refused, failed or rejected. Times in
    seconds.
    """

    rate: float
    seconds: float
    requests: int
    good: int
    errors: int
    p50: float | None
    p99: float | None
    blocks: tuple[tuple[int, int], ...]
    overloaded: bool = False
    problems: tuple[str, ...] = ()

    @property
    def attainment(self) -> float:
        """The share of requests within the SLO."""
        return self.good / self.requests if self.requests else 0.0


def level(result: LoadResult, rate: float, *, overloaded: bool) -> Level:
    """The level that `result` shows. What makes a run invalid is kept, but for the stop of an overloaded one."""
    counts = result.total.counts
    allowed = {LoadProblemCode.STOPPED, LoadProblemCode.NOT_SENT} if overloaded else set()
    return Level(
        rate=rate,
        seconds=result.total.seconds,
        requests=counts.requests,
        good=counts.good,
        errors=counts.refused + counts.rejected + counts.failed,
        p50=result.total.p50,
        p99=result.total.p99,
        blocks=tuple(_block(one.counts) for one in result.series if one.counts.requests),
        overloaded=overloaded,
        problems=tuple(one.text for one in result.problems if one.code not in allowed),
    )


def _block(counts: RequestCounts) -> tuple[int, int]:
    return counts.good, counts.requests


class Trend(StrEnum):
    """How a quantity moves within a level."""

    STEADY = "steady"
    GROWING = "growing"


_FEW = 8  # values, below which a slope says nothing
_SIGNIFICANT = 4.0  # standard errors: looked at repeatedly, so more than for a single test


def trend(values: Sequence[float]) -> Trend:
    """Whether evenly spaced `values` grow: a straight line rises significantly, and by half of the mean or more."""
    count = len(values)
    if count < _FEW:
        return Trend.STEADY
    middle, mean = (count - 1) / 2, sum(values) / count
    spread = sum((at - middle) ** 2 for at in range(count))
    slope = sum((at - middle) * (value - mean) for at, value in enumerate(values)) / spread
    rest = sum((value - mean - slope * (at - middle)) ** 2 for at, value in enumerate(values))
    error = (rest / (count - 2) / spread) ** 0.5
    grows = slope > _SIGNIFICANT * error and slope * count > 0.5 * mean
    return Trend.GROWING if grows else Trend.STEADY
