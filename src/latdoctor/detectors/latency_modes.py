"""Bimodality of request latencies and the positions of the peaks.

Two tests on logarithms, because latencies span orders of magnitude. Hartigan's dip finds two large groups but has no
power for a small one (5 %, measured). A second test finds those: a peak of at least SMALLEST of the requests beyond a
valley deeper than chance explains. Latencies rounded to a millisecond form a row of spikes, which the dip takes for
peaks, so each is first spread uniformly over the rounding width (fixed seed). Peaks are searched in a histogram of
BINS_PER_E bins per factor e, smoothed over WIDTH bins; the valley must be below half of the smaller peak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latdoctor.detectors.tail_attribution import LATENCY, derived_readings, pending_latencies, too_few_requests
from latdoctor.evidence.model import Evidence, Series, Value
from latdoctor.units import format_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SIGNAL = LATENCY
DERIVED = tuple(f"latency.{name}" for name in ("dip_p", "modes", "mode_low", "mode_high", "mode_high_share"))
MIN_REQUESTS = 200
MAX_VALUES = 20_000  # longer series are thinned; more values do not sharpen the tests
SEED = 1985
P_FLOOR = 1e-5
P_PEAKS = 0.01
SMALLEST = 0.01  # share of the requests
VALLEY = 0.5
DEVIATIONS = 4.0  # depth of the valley below the peak, in standard deviations of a count
BINS_PER_E = 8
WIDTH = 5  # bins of the smoothing window
FEW_VALUES = 200  # distinct values; fewer mean that they were rounded


@dataclass(frozen=True, slots=True)
class LatencyPeaks:
    """The two peaks in seconds (equal for a single one), and the share of requests beyond the valley."""

    low: float
    high: float
    high_share: float

    @property
    def text(self) -> str:
        both = (self.low, self.high) if self.high > self.low else (self.low,)
        return " and ".join(format_value(one, "time") for one in both)


def latency_modes(evidence: Evidence) -> Evidence:
    """Derive DERIVED for every series of request latencies."""
    return Evidence.merge(_of_one(one) for one in pending_latencies(evidence, DERIVED[0]))


def _of_one(series: Series) -> Evidence:
    import numpy as np

    values = np.array(series.values)
    values = values[np.isfinite(values) & (values > 0)]
    if len(values) < MIN_REQUESTS:
        return too_few_requests(series, "peaks of the latency", len(values), MIN_REQUESTS, DERIVED)
    p, peaks = find_peaks(values)
    results: tuple[Value, ...] = (p, peaks.text, peaks.low, peaks.high, peaks.high_share)
    how = "dip test and valleys of the logarithms"
    return derived_readings(
        series, how, ((name, value, ()) for name, value in zip(DERIVED, results, strict=True)), len(values)
    )


def find_peaks(values: Numbers) -> tuple[float, LatencyPeaks]:
    """Return the dip's p-value (at least P_FLOOR) and the peaks of `values` (seconds, above 0)."""
    import diptest  # type: ignore[import-untyped]  # the package ships no types
    import numpy as np

    logs = np.log(_spread(values[:: math.ceil(len(values) / MAX_VALUES)]))
    _, p = diptest.diptest(logs)
    return max(float(p), P_FLOOR), _peaks(logs, ramp=float(p) < P_PEAKS)


def _spread(values: Numbers) -> Numbers:
    """Dither `values` over the width to which they were rounded, if they were."""
    import numpy as np

    distinct = np.unique(values)
    width = float(np.diff(distinct).min()) if 1 < len(distinct) < max(FEW_VALUES, len(values) / 4) else 0.0
    dithered = values + np.random.default_rng(SEED).uniform(-0.5, 0.5, len(values)) * width
    return np.maximum(dithered, values / 4)


def _peaks(logs: Numbers, *, ramp: bool) -> LatencyPeaks:
    """The highest peak, and the highest other one separated from it by a valley too deep for chance."""
    import numpy as np

    bins = max(WIDTH, math.ceil(float(np.ptp(logs)) * BINS_PER_E) + 1)
    counts, edges = np.histogram(logs, bins=bins)
    smooth = np.convolve(counts.astype(float), np.ones(WIDTH), mode="same")
    centres, top, best = np.exp((edges[:-1] + edges[1:]) / 2), int(smooth.argmax()), None
    for other in range(len(smooth)):
        if other == top:
            continue
        left, right = sorted((top, other))
        valley = left + int(smooth[left : right + 1].argmin())
        beyond = float(counts[valley + 1 :].sum() if other > top else counts[:valley].sum()) / len(logs)
        if _parted(smooth[valley], smooth[other], beyond, ramp=ramp) and (best is None or smooth[other] > smooth[best]):
            best = other
    if best is None:
        return LatencyPeaks(float(centres[top]), float(centres[top]), 0.0)
    left, right = sorted((top, best))
    valley = left + int(smooth[left : right + 1].argmin())
    return LatencyPeaks(float(centres[left]), float(centres[right]), float(counts[valley + 1 :].sum()) / len(logs))


def _parted(valley: float, peak: float, beyond: float, *, ramp: bool) -> bool:
    """A large group may rely on the dip test; a small one needs a valley that is significant by itself."""
    if beyond < SMALLEST or valley >= VALLEY * peak:
        return False
    return bool((ramp and beyond >= 0.1) or peak - valley > DEVIATIONS * math.sqrt(peak + valley))
