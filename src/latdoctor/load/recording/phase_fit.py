"""The phases of recorded arrivals: where their rate changed, and the process in each phase.

Binary segmentation of the counts of equal bins with the Poisson likelihood (A. Scott, M. Knott, 1974), whose penalty
grows with the overdispersion of neighbouring bins, so that bursts are no phases.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise
from random import Random

from msgspec import Struct

from latdoctor.load.arrivals import Arrivals, Constant, Gamma, Poisson, Renewal
from latdoctor.load.recording.distribution_fit import close_enough, distance, quantiles

MOST_PHASES = 12
_MOST_BINS, _PER_BIN = 200, 20  # bins, and arrivals that one has on average at least
_PENALTY = 3.0
_ENOUGH_GAPS = 50  # below, the shape of gaps is not known
_EVEN_CV = 0.05


class FittedPhase(Struct, frozen=True):
    """A phase from `start` over `seconds`, its process and how far its gaps are from those of the recording.

    `distance` is None where there are too few gaps, or their times are too coarse, to know their shape; and where they
    are even but for the precision of the clock.
    """

    start: float
    seconds: float
    arrivals: Arrivals
    count: int
    distance: float | None


def fit_phases(
    times: Sequence[float], seconds: float, *, coarse: bool, most: int = MOST_PHASES
) -> tuple[FittedPhase, ...]:
    """The phases of arrivals at `times` (by time) within `seconds`. Phases without an arrival are joined to others."""
    found = []
    for begin, end in _segments(times, seconds, most):
        own = times[bisect.bisect_left(times, begin) : bisect.bisect_left(times, end)]
        arrivals, apart = _process(own, end - begin, coarse=coarse)
        found.append(FittedPhase(begin, end - begin, arrivals, len(own), apart))
    return tuple(found)


def _process(times: Sequence[float], seconds: float, *, coarse: bool) -> tuple[Arrivals, float | None]:
    rate = len(times) / seconds
    gaps = [later - sooner for sooner, later in pairwise(times)]
    if coarse or len(gaps) < _ENOUGH_GAPS:
        return Poisson(rate), None
    mean = statistics.fmean(gaps)
    cv = statistics.pstdev(gaps) / mean if mean else 0.0
    if cv < _EVEN_CV:
        return Constant(rate), None
    close = close_enough(len(gaps))
    candidates: list[Arrivals] = [Poisson(rate)]
    if mean:
        candidates.append(Gamma(rate, min(20.0, max(0.05, cv))))
    for one in candidates:
        if (apart := _apart(gaps, one)) <= close:
            return one, apart
    last = Renewal(rate, quantiles(gaps))
    return last, _apart(gaps, last)


def _apart(gaps: Sequence[float], arrivals: Arrivals) -> float:
    """The distance of `gaps` from those of a sample of the process, at the same mean gap."""
    rng = Random(0)  # noqa: S311  # a repeatable comparison, no secret
    wanted = max(5000, len(gaps))
    rate = 1 / statistics.fmean(gaps)
    drawn = list(pairwise(_at_rate(arrivals, rate).times(wanted / rate, rng)))
    return distance(gaps, [later - sooner for sooner, later in drawn])


def _at_rate(arrivals: Arrivals, rate: float) -> Arrivals:
    match arrivals:
        case Gamma():
            return Gamma(rate, arrivals.cv)
        case Renewal():
            return Renewal(rate, arrivals.gaps)
        case _:
            return Poisson(rate)


def _segments(times: Sequence[float], seconds: float, most: int) -> list[tuple[float, float]]:
    bins = min(_MOST_BINS, max(1, len(times) // _PER_BIN))
    width = seconds / bins
    counts = [0] * bins
    for at in times:
        counts[min(int(at / width), bins - 1)] += 1
    cuts = _cuts(counts, most)
    return [(begin * width, end * width) for begin, end in pairwise((0, *cuts, bins))]


def _cuts(counts: Sequence[int], most: int) -> list[int]:
    """The bins at which a new phase begins."""
    sums = [0, *accumulate(counts)]
    mean = max(sums[-1] / len(counts), 1e-9)
    jumps = [(later - sooner) ** 2 for sooner, later in pairwise(counts)]
    dispersion = max(1.0, statistics.fmean(jumps) / (2 * mean)) if jumps else 1.0
    penalty = _PENALTY * math.log(len(counts) + 1) * dispersion
    cuts: list[int] = []
    while len(cuts) + 1 < most:
        pieces = pairwise((0, *sorted(cuts), len(counts)))
        gain, cut = max((_best_cut(sums, begin, end) for begin, end in pieces), default=(0.0, 0))
        if gain <= penalty:
            break
        cuts.append(cut)
    return sorted(cuts)


def _best_cut(sums: Sequence[int], begin: int, end: int) -> tuple[float, int]:
    """The cut that gains most likelihood, and the gain. Both parts have arrivals."""
    whole = _likelihood(sums, begin, end)
    gains = (
        (_likelihood(sums, begin, cut) + _likelihood(sums, cut, end) - whole, cut)
        for cut in range(begin + 1, end)
        if sums[begin] < sums[cut] < sums[end]
    )
    return max(gains, default=(0.0, begin))


def _likelihood(sums: Sequence[int], begin: int, end: int) -> float:
    count = sums[end] - sums[begin]
    return count * math.log(count / (end - begin)) if count else 0.0
