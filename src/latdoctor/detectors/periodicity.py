"""Periodic stalls: a period in the latencies of single requests.

The ranks of the latencies (insensitive to heavy tails) are averaged in bins of BIN seconds and autocorrelated by FFT;
empty bins are ignored. The period is the lag of the highest peak, provided the correlation fell in between (otherwise
it is slow drift) and the peak recurs at two and three times the lag. It is confirmed on the requests by epoch folding
(Leahy et al. 1983): the share of the ranks' variance between the phases of the period, `pulse_share`, must exceed
chance (χ² with PHASES - 1 degrees of freedom), and all parts of the window must show the same phases: a queue produces
waves of any length, but never the same one twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latdoctor.detectors.tail_attribution import LATENCY, derived_readings, insufficient_data, pending_latencies
from latdoctor.evidence.model import Evidence, Series

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SIGNAL = LATENCY
DERIVED = ("latency.pulse_period", "latency.pulse_share")
BIN = 0.01  # seconds
SHORTEST, LONGEST = 0.05, 10.0  # seconds, range of periods
CYCLES = 6  # minimum number of periods in the window
MIN_REQUESTS = 300
MAX_BINS = 1 << 20
MIN_DEVIATIONS = 5.0  # of the mean of three correlations: hundreds of lags are tried
PHASES = 13  # an odd number, for which the chance has a closed form
MIN_SHARE = 0.02
PARTS = 3
MIN_LIKENESS = 0.6  # correlation of the phases of one part with those of another
MAX_P = 1e-6
MOST_ALIKE = 0.95  # mean resultant length of the ends on the circle of the period (Rayleigh): 1 where all are one
_ROUNDING = 1e-3  # seconds: latencies are often logged in milliseconds


@dataclass(frozen=True, slots=True)
class LatencyPulse:
    """`period` in seconds; `share` of the variance between its phases; `p` by chance."""

    period: float
    share: float
    p: float


def latency_pulses(evidence: Evidence) -> Evidence:
    """Derive DERIVED for every series of request latencies; without a pulse the share is 0 and there is no period."""
    return Evidence.merge(_of_one(one) for one in pending_latencies(evidence, DERIVED[1]))


def _of_one(series: Series) -> Evidence:
    import numpy as np

    times, values = np.array(series.times), np.array(series.values)
    reason = _unfit(times, values)
    if reason:
        return insufficient_data(series, f"pulses: {reason}", DERIVED)
    one = find_pulse(times, values)
    # A start is the end minus the latency: if all ends have one phase, the phase of a start is its own latency.
    if one is not None and _alike(times + values, one.period) > MOST_ALIKE:
        return insufficient_data(series, f"pulses: requests end at one moment of each {one.period:.3g} s only", DERIVED)
    pairs = [(DERIVED[1], 0.0)] if one is None else [(DERIVED[0], one.period), (DERIVED[1], one.share)]
    return derived_readings(series, "folded", ((name, value, ()) for name, value in pairs), len(values))


def _unfit(times: Numbers, values: Numbers) -> str:
    import numpy as np

    if len(values) < MIN_REQUESTS:
        return f"{len(values)} requests observed, {MIN_REQUESTS} are needed"
    if not (np.isfinite(times).all() and np.isfinite(values).all()):
        return "times or latencies are not finite"
    span = float(times.max() - times.min())
    if span < CYCLES * SHORTEST or span > BIN * MAX_BINS:
        return f"they span {span:.3g} s; between {CYCLES * SHORTEST:g} s and {BIN * MAX_BINS:.0f} sare required"
    # Access logs stamp the end, often in whole seconds: a start computed from that is periodic by itself.
    if any(np.all(np.abs(stamps - np.round(stamps)) < _ROUNDING) for stamps in (times, times + values)):
        return "times have a resolution of whole seconds only"
    return ""


def find_pulse(times: Numbers, values: Numbers) -> LatencyPulse | None:
    """Return the pulse in `values` (any unit) at `times` (seconds), or None."""
    import numpy as np

    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[places] / len(values) - 0.5  # equal values share the middle of their ranks
    if not ranks.any():
        return None
    binned = _binned(times - times.min(), ranks)
    correlation, deviation = _autocorrelation(*binned)
    at = _peak(correlation, deviation)
    if at is None:
        return None
    lag = at * BIN
    period = _refined(times, ranks, lag)
    share = _between(times, ranks, period)
    p = _chance(share * float(np.count_nonzero(binned[1])))
    ramp = share >= MIN_SHARE and p <= MAX_P and _likeness(times, ranks, period) >= MIN_LIKENESS
    return LatencyPulse(period, share, p) if ramp else None


def _alike(times: Numbers, period: float) -> float:
    """How concentrated the phases of `times` are: 0..1."""
    import numpy as np

    return float(abs(np.mean(np.exp(2j * np.pi * (times % period) / period))))


def _binned(times: Numbers, ranks: Numbers) -> tuple[Numbers, Numbers]:
    """The mean rank per bin (0 if empty), and whether the bin contains a request."""
    import numpy as np

    places = (times / BIN).astype(np.int64)
    counts = np.bincount(places).astype(float)
    sums = np.bincount(places, weights=ranks)
    filled = counts > 0
    means = np.where(filled, sums / np.maximum(counts, 1), 0.0)
    means[filled] -= means[filled].mean()
    return means, filled.astype(float)


def _autocorrelation(means: Numbers, filled: Numbers) -> tuple[Numbers, Numbers]:
    """The correlation at each lag in bins, over pairs of non-empty bins, and its standard deviation."""
    import numpy as np

    size = 1 << (2 * len(means) - 1).bit_length()
    last = int(min(3 * LONGEST / BIN, 3 * len(means) / CYCLES))
    products = np.fft.irfft(np.abs(np.fft.rfft(means, size)) ** 2, size)[: last + 2]
    pairs = np.maximum(np.round(np.fft.irfft(np.abs(np.fft.rfft(filled, size)) ** 2, size)[: last + 2]), 1.0)
    variance = float(products[0] / pairs[0]) or 1.0
    return products / pairs / variance, 1 / np.sqrt(pairs)


def _peak(correlation: Numbers, deviation: Numbers) -> int | None:
    """Return the first significant lag nearly as high as the highest (others are its multiples); None if there is none.

    A lag is significant if its comb (1, 2 and 3 × the lag) exceeds chance after the correlation has fallen.
    """
    import numpy as np

    low = np.minimum.accumulate(correlation)
    combs: dict[int, float] = {}
    for lag in range(max(2, int(SHORTEST / BIN)), (len(correlation) - 4) // 3):
        if correlation[lag] < max(correlation[lag - 1], correlation[lag + 1]):
            continue
        teeth = [float(correlation[many * lag - many + 1 : many * lag + many].max()) for many in (1, 2, 3)]
        comb = sum(teeth) / 3
        if comb >= MIN_DEVIATIONS * deviation[lag] / math.sqrt(3) and min(teeth) >= comb / 3 and low[lag] < 0.3 * comb:
            combs[lag] = comb
    highest = max(combs.values(), default=0.0)
    return next((lag for lag, comb in combs.items() if comb >= 0.7 * highest), None)


def _refined(times: Numbers, ranks: Numbers, lag: float) -> float:
    """The period near `lag` that folds best: ±3 %, in steps that shift the last cycle by one phase."""
    import numpy as np

    cycles = max(1.0, float(times.max() - times.min()) / lag)
    step = lag / cycles / PHASES
    tries = np.arange(0.97 * lag, 1.03 * lag, max(step, BIN / 200))
    return float(max(tries, key=lambda period: _between(times, ranks, float(period))))


def _between(times: Numbers, ranks: Numbers, period: float) -> float:
    """The share of the variance of `ranks` between the phases of `period`."""
    import numpy as np

    sums, counts = _phases(times, ranks, period)
    return float(np.sum(sums**2 / np.maximum(counts, 1)) / np.sum(ranks**2))


def _phases(times: Numbers, ranks: Numbers, period: float) -> tuple[Numbers, Numbers]:
    """The sum of the ranks and the number of requests per phase."""
    import numpy as np

    phases = ((times % period) / period * PHASES).astype(np.int64) % PHASES
    return (
        np.bincount(phases, weights=ranks, minlength=PHASES).astype(float),
        np.bincount(phases, minlength=PHASES).astype(float),
    )


def _likeness(times: Numbers, ranks: Numbers, period: float) -> float:
    """The lowest correlation of the phase means between any two of PARTS equal parts of the window."""
    import numpy as np

    edges = np.linspace(float(times.min()), float(times.max()), PARTS + 1)[1:-1]
    part = np.searchsorted(edges, times)
    means = []
    for n in range(PARTS):
        sums, counts = _phases(times[part == n], ranks[part == n], period)
        means.append(sums / np.maximum(counts, 1))
    if any(np.ptp(mean) == 0 for mean in means):
        return 0.0
    return float(np.corrcoef(np.array(means)).min())


def _chance(statistic: float) -> float:
    """P(χ² > statistic) with PHASES - 1 degrees of freedom, an even number: a Poisson sum."""
    half = statistic / 2
    return math.exp(-half) * sum(half**n / math.factorial(n) for n in range((PHASES - 1) // 2))
