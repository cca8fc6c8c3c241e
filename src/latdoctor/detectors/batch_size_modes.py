"""Bimodality of batch sizes: Hartigan's dip test, adapted to integers.

The dip test (Hartigan and Hartigan 1985, package diptest) assumes a continuous variable. Integers form a row of spikes,
which it takes for many modes: on raw sizes it fires on nearly every healthy sample. Each batch size k is therefore
replaced by values spread uniformly over k−½ … k+½ (with a fixed seed, so that equal evidence gives equal results). The
p-value only says that there is a dip; the distance of the peaks is the effect size, `batch.size.separation`.

Peaks: the counts per size, smoothed by one pass of (1, 2, 1)/4 for every 12 sizes of range (none for a handful of
sizes). Two peaks are distinct if the valley between them is below half of the smaller one and each side of it has at
least 5 % of the batches. They are searched only if the dip has p < 0.05; otherwise there is one peak and separation is
0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from latdoctor.detectors.quantiles import derived_origin, is_valid, latest_distributions
from latdoctor.evidence.model import Distribution, Evidence, Gap, Reading, Value
from latdoctor.gap_code import GapCode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIGNAL = "batch.size"
DERIVED = tuple(f"{SIGNAL}.{name}" for name in ("dip", "dip_p", "modes", "mode_low", "mode_high", "separation"))

MIN_BATCHES = 50
MAX_VALUES = 5000  # larger samples are scaled down in proportion; more values do not sharpen the test
MAX_SIZE = 1 << 16  # no server batches more requests
SEED = 1985
P_FLOOR = 1e-5  # diptest interpolates in a table that ends here; its 0 means "less than this"
P_PEAKS = 0.05
VALLEY = 0.5
LEAST_SHARE = 0.05
SIZES_PER_PASS = 12
LEFT_OUT = 0.01  # tolerated share of batches in buckets wider than one size


@dataclass(frozen=True, slots=True)
class BatchSizeModes:
    """The peaks of the batch sizes; `low` equals `high` for a single peak."""

    low: int
    high: int

    @property
    def separation(self) -> float:
        return (self.high - self.low) / max(self.low, 1)

    @property
    def text(self) -> str:
        return f"{self.low} and {self.high}" if self.low != self.high else str(self.low)


def batch_bimodality(evidence: Evidence) -> Evidence:
    """Derive the `batch.size.*` readings of DERIVED for every distribution with one bucket per batch size."""
    reported = {(reading.subject, reading.labels) for reading in evidence.readings if reading.signal in DERIVED}
    parts = [
        _of_one(one)
        for one in latest_distributions(evidence)
        if one.signal == SIGNAL and (one.subject, one.labels) not in reported
    ]
    return Evidence.merge(parts)


def _of_one(distribution: Distribution) -> Evidence:
    if not is_valid(distribution):
        return _gap(distribution, "its counts or bounds are invalid", GapCode.INCONSISTENT)
    counts = batch_sizes(distribution)
    whole, observed = sum(counts.values()), distribution.count
    if observed < MIN_BATCHES:
        return _gap(
            distribution,
            f"{observed:g} batches observed, {MIN_BATCHES} are needed",
            GapCode.INSUFFICIENT,
            "watch for longer: --window 60s",
        )
    if whole < (1 - LEFT_OUT) * observed:
        reason = "its buckets contain several batch sizes each, so that peaks cannot be distinguished"
        return _gap(distribution, reason, GapCode.AMBIGUOUS, "count batches size by size: one bucket for each")
    dip, p = dip_test(counts)
    modes = find_modes(counts) if p < P_PEAKS else BatchSizeModes(_commonest(counts), _commonest(counts))
    note = f"{whole:g} batches, sizes {min(counts)} to {max(counts)}, dithered by ±0.5"
    values: tuple[Value, ...] = (dip, p, modes.text, float(modes.low), float(modes.high), modes.separation)
    return Evidence(
        readings=tuple(
            Reading(
                signal=signal,
                subject=distribution.subject,
                value=value,
                origin=derived_origin(distribution, "dip test of the batch sizes"),
                window=distribution.window,
                labels=distribution.labels,
                note=note,
            )
            for signal, value in zip(DERIVED, values, strict=True)
        )
    )


def batch_sizes(distribution: Distribution) -> dict[int, float]:
    """Count batches per size, using only buckets that contain a single size: k itself, or (k−1, k]."""
    found: dict[int, float] = {}
    for bucket in distribution.buckets:
        single = bucket.high - bucket.low in (0.0, 1.0) and float(bucket.high).is_integer()
        if single and bucket.count > 0 and 0 <= bucket.high <= MAX_SIZE:
            found[int(bucket.high)] = found.get(int(bucket.high), 0.0) + bucket.count
    return dict(sorted(found.items()))


def dip_test(counts: dict[int, float]) -> tuple[float, float]:
    """Return the dip statistic of dithered batch sizes and its p-value (at least P_FLOOR)."""
    import diptest  # type: ignore[import-untyped]  # the package ships no types
    import numpy as np

    values = np.repeat(np.array(list(counts), dtype=float), _scaled(counts))
    dithered = values + np.random.default_rng(SEED).uniform(-0.5, 0.5, len(values))
    dip, p = diptest.diptest(dithered)
    return float(dip), max(float(p), P_FLOOR)


def _scaled(counts: dict[int, float]) -> list[int]:
    """Scale counts to at most MAX_VALUES in total, keeping proportions (rounded on the running sum)."""
    shrink = min(1.0, MAX_VALUES / sum(counts.values()))
    sums = [0, *(round(total * shrink) for total in accumulate(counts.values()))]
    return [upper - lower for lower, upper in pairwise(sums)]


def find_modes(counts: dict[int, float]) -> BatchSizeModes:
    """Return the two highest peaks separated by a valley, or the highest one alone."""
    first = min(counts)
    smooth = _smoothed(counts)
    whole = float(smooth.sum())
    top = int(smooth.argmax())
    best: tuple[float, int] | None = None
    for other in range(len(smooth)):
        if other == top or not _is_peak(smooth, other):
            continue
        left, right = min(top, other), max(top, other)
        valley = left + int(smooth[left : right + 1].argmin())
        share = float(smooth[:valley].sum()) / whole if other < top else float(smooth[valley + 1 :].sum()) / whole
        deep = smooth[valley] < VALLEY * smooth[other]
        if deep and LEAST_SHARE <= share <= 1 - LEAST_SHARE and (best is None or smooth[other] > best[0]):
            best = (float(smooth[other]), other)
    second = top if best is None else best[1]
    return BatchSizeModes(first + min(top, second), first + max(top, second))


def _smoothed(counts: dict[int, float]) -> NDArray[np.float64]:
    import numpy as np

    first, last = min(counts), max(counts)
    smooth = np.zeros(last - first + 1)
    for size, count in counts.items():
        smooth[size - first] = count
    for _ in range((last - first) // SIZES_PER_PASS):
        padded = np.pad(smooth, 1)
        smooth = (padded[:-2] + 2 * smooth + padded[2:]) / 4
    return smooth


def _is_peak(smooth: NDArray[np.float64], at: int) -> bool:
    before = smooth[at - 1] if at > 0 else -math.inf
    behind = smooth[at + 1] if at + 1 < len(smooth) else -math.inf
    return bool(smooth[at] > 0 and smooth[at] >= before and smooth[at] >= behind)


def _commonest(counts: dict[int, float]) -> int:
    return max(counts, key=lambda size: counts[size])


def _gap(distribution: Distribution, reason: str, code: GapCode, next_step: str = "") -> Evidence:
    gap = Gap("derived", f"{SIGNAL}: {reason}", DERIVED, distribution.subject, next_step, distribution.origin, code)
    return Evidence(gaps=(gap,))
