"""The period in which a series of latencies is higher than in the rest, and where it begins.

A series is cut into at most BLOCKS blocks, each with the median of its steps. A run of blocks counts as higher for one
of two reasons.

*Ranks.* For every run of blocks that begins within the window, z is the standardised rank sum of the run against the
rest (Mann and Whitney 1947); the run with the largest z is taken. Ranks are used because latencies have heavy tails.
Two more conditions apply, because wandering latencies easily reach a high z: the run's median is at least 1.5 × that of
the time before, the change that the rules require over the baseline, and its lower quartile is above 95 % of the values
before. A short run cannot reach a large z; it counts if all of it is above all the rest and chance is unlikely to
produce that: of n blocks, any m are the highest with a probability of one in C(n, m). Neighbouring blocks of wandering
latencies are correlated and carry less information: z shrinks by √((1−ρ)/(1+ρ)), where ρ is the correlation of
neighbours about the line through the run and the medians of the rest (the variance of a mean under AR(1)): a latency
that climbs to the end is correlated, but does not wander. The first RAMP blocks of both are excluded, because there the
level itself is changing. Where neighbours share data (a rate over two steps), and only neighbours do, every second
block is taken instead.

*A gap.* A run to the end also counts if it is further above the values before than these lie apart (by their
logarithms, the highest 5 % left out): a wandering latency gets there by small steps, through the gap.

A higher period that is over is left out, and the rest searched again: what matters is the present episode.

False positive rates were measured on healthy series; see tests/detectors/test_onset.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median

BLOCKS, WHOLE = 120, 240  # a series of WHOLE steps or fewer is not cut
MIN_BLOCKS = 20
MIN_HALF = 30  # of every second block
MIN_RUN = 4  # blocks of the run and of the time before it
MIN_BEFORE_GAP = 12  # blocks whose spread a gap is compared with
MIN_RATIO = 1.5
MIN_RISE = 1.1  # over the level before: where a climb begins
MIN_STEPS = 30
MIN_CHOICES = 1_000_000
MAX_DEPENDENCE = 0.3
MAX_SECOND = 0.2  # correlation of a block with the next but one where only neighbours share data
EPISODES = 3
RAMP = 2  # blocks between two levels: a rate over several steps rises as slowly as its range is long
_Z_FEW, _Z = 3.2, 4.0  # below 40 blocks, and from 40 on: with 20 blocks no run of four exceeds 3.0


@dataclass(frozen=True, slots=True)
class HighRun:
    """Steps first..last (indexes of the series) with high values, and the medians before and within.

    The run begins at most `unsure` steps before or after `first`.
    """

    first: int
    last: int
    unsure: int
    before: float
    after: float
    z: float


@dataclass(frozen=True, slots=True)
class _Run:
    """Blocks first..last-1."""

    first: int
    last: int
    z: float


def highest_run(values: Sequence[float]) -> HighRun | None:
    """The higher period that lasts to the end of `values`, else the clearest one that is over; None without one."""
    if len(values) < MIN_STEPS or not all(math.isfinite(value) for value in values):
        return None
    size = math.ceil(len(values) / BLOCKS) if len(values) > WHOLE else 1
    # Six digits: a quantile that a server computes from one bucket varies in the last digits only, without meaning.
    # Kept, they would look like wandering latencies.
    blocks = [float(f"{median(values[start : start + size]):.6g}") for start in range(0, len(values), size)]
    kept = list(range(len(blocks)))
    over: HighRun | None = None
    for _ in range(EPISODES):
        here = [blocks[index] for index in kept]
        run = _significant(here)
        if run is None:
            return over
        found = _placed(values, size, kept, here, run)
        if found.last == len(values) - 1:
            return found
        over = over or found
        kept = kept[: run.first] + kept[run.last :]
    return over


def median_step(times: Sequence[float]) -> float:
    """The usual time between two points of a series, in seconds; `times` has two at least."""
    return median(later - before for before, later in pairwise(times))


def _placed(values: Sequence[float], size: int, kept: Sequence[int], blocks: Sequence[float], run: _Run) -> HighRun:
    """`run` of the blocks `kept`, in steps of the series."""
    before, after = median(blocks[: run.first]), median(blocks[run.first : run.last])
    middle = math.sqrt(before * after)
    rest = blocks[run.last :]
    lasts = not rest or median(rest) > middle or len(rest) < 2
    end = len(values) - 1 if lasts else min((kept[run.last - 1] + 1) * size, len(values)) - 1
    at = kept[_beginning(blocks, run, middle)]
    crossed = _refined(values, (at - 1) * size, (at + 1) * size, middle)
    return HighRun(_foot(values, crossed, blocks[: run.first]), end, size, before, after, run.z)


def _foot(values: Sequence[float], crossed: int, early: Sequence[float]) -> int:
    """Where the climb that is half way at step `crossed` left the level of before, `early`, for good.

    A latency that still climbs is half way ever later; its beginning stays where it was. The fence is that of Tukey
    (1977), which a climb at the end of `early` hardly moves.
    """
    low, high = _quantile(early, 0.25), _quantile(early, 0.75)
    fence = max(high + 1.5 * (high - low), MIN_RISE * median(early))
    first = crossed
    while first > 1 and values[first - 1] > fence:
        first -= 1
    return first


def _beginning(blocks: Sequence[float], run: _Run, middle: float) -> int:
    """Where the blocks around the beginning of `run` cross `middle`: ranks find that there is a rise, not its edge."""
    first = run.first
    while first < run.last - 1 and blocks[first] <= middle:
        first += 1
    while first > 1 and blocks[first - 1] > middle:
        first -= 1
    return first


def _significant(blocks: Sequence[float]) -> _Run | None:
    if len(blocks) < MIN_BLOCKS:
        return None
    sharpest = _sharpest(blocks)
    return _by_ranks(blocks, sharpest) or _by_half(blocks, sharpest) or _by_gap(blocks)


def _by_half(blocks: Sequence[float], sharpest: _Run) -> _Run | None:
    """By the ranks of every second block, where neighbours share data and blocks further apart do not."""
    half = blocks[::2]
    if len(half) < MIN_HALF:
        return None
    parts = _parts(blocks, sharpest.first, sharpest.last)
    if _dependence(parts) < MAX_DEPENDENCE or _dependence(parts, 2) > MAX_SECOND:
        return None
    run = _by_ranks(half, _sharpest(half))
    return run and _Run(2 * run.first, min(2 * run.last, len(blocks)), run.z)


def _by_ranks(blocks: Sequence[float], sharpest: _Run) -> _Run | None:
    first, last, z = sharpest.first, sharpest.last, sharpest.z
    early, run, rest = blocks[:first], blocks[first:last], blocks[last:]
    dependence = _dependence(_parts(blocks, first, last))
    z *= math.sqrt((1 - dependence) / (1 + dependence))
    rare = dependence < MAX_DEPENDENCE and _wholly_apart([*early, *rest], run)
    if z < (_Z if len(blocks) >= 2 * MIN_BLOCKS else _Z_FEW) and not rare:
        return None
    before, after = median(early), median(run)
    if before <= 0 or after < MIN_RATIO * before or _quantile(run, 0.25) <= _quantile(early, 0.95):
        return None
    return _Run(first, last, z)


def _by_gap(blocks: Sequence[float]) -> _Run | None:
    """The split with the widest gap, if it is wider than what lies before it."""
    if min(blocks) <= 0:
        return None
    best: tuple[float, int] | None = None
    lowest = math.inf
    for first in range(len(blocks) - 1, MIN_BEFORE_GAP - 1, -1):
        lowest = min(lowest, blocks[first])
        early = blocks[:first]
        top = _quantile(early, 0.95)
        gap = math.log(lowest / top) if lowest > top else 0.0
        enough = len(blocks) - first >= MIN_RUN and gap > math.log(top / min(early))
        if enough and median(blocks[first:]) >= MIN_RATIO * median(early) and (best is None or gap > best[0]):
            best = (gap, first)
    return None if best is None else _Run(best[1], len(blocks), 0.0)


def _parts(blocks: Sequence[float], first: int, last: int) -> tuple[Sequence[float], ...]:
    """The times before, within and after a run, each without the blocks in which the level is changing."""
    return blocks[:first], blocks[first + RAMP : last], blocks[last + RAMP :]


def _dependence(parts: Sequence[Sequence[float]], lag: int = 1) -> float:
    """Correlation of blocks `lag` apart by their ranks, about a line through the second part; 0 if negative."""
    above = below = 0.0
    for number, part in enumerate(parts):
        middle = (len(part) + 1) / 2
        off = [rank - middle for rank in _ranks(part)]
        if number == 1:
            off = _without_trend(off)
        above += sum(one * other for one, other in zip(off, off[lag:], strict=False))
        below += sum(one * one for one in off)
    return min(0.99, max(0.0, above / below)) if below else 0.0


def _without_trend(values: Sequence[float]) -> list[float]:
    """`values`, whose mean is 0, less the straight line through them."""
    if len(values) < MIN_RUN:
        return list(values)
    middle = fmean(range(len(values)))
    slope = sum((at - middle) * value for at, value in enumerate(values)) / sum(
        (at - middle) ** 2 for at in range(len(values))
    )
    return [value - slope * (at - middle) for at, value in enumerate(values)]


def _wholly_apart(rest: Sequence[float], run: Sequence[float]) -> bool:
    return min(run) > max(rest) and math.comb(len(rest) + len(run), len(run)) >= MIN_CHOICES


def _sharpest(blocks: Sequence[float]) -> _Run:
    """Return the run with the largest standardised rank sum."""
    n = len(blocks)
    sums = (0.0, *accumulate(_ranks(blocks)))
    best = (MIN_RUN, n, 0.0)
    for first in range(MIN_RUN, n - MIN_RUN + 1):
        for last in range(first + MIN_RUN, n + 1):
            inside = last - first
            spread = math.sqrt(inside * (n - inside) * (n + 1) / 12)
            z = (sums[last] - sums[first] - inside * (n + 1) / 2) / spread
            if z > best[2]:
                best = (first, last, z)
    return _Run(*best)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    for place in range(1, len(order) + 1):
        if place == len(order) or values[order[place]] != values[order[start]]:
            for index in order[start:place]:
                ranks[index] = (start + 1 + place) / 2
            start = place
    return ranks


def _refined(values: Sequence[float], low: int, high: int, middle: float) -> int:
    """Return the step at which the rise begins: the first above `middle` followed mostly by values above it."""
    for index in range(max(1, low), min(high, len(values))):
        following = values[index + 1 : index + 5]
        if values[index] > middle and sum(value > middle for value in following) * 2 > len(following):
            return index
    return min(low + (high - low) // 2, len(values) - 1)


def _quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]
