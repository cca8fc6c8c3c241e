"""Onset of a slowdown: the period in which latency is higher than in the rest, and its start.

A latency series is cut into at most BLOCKS blocks, each with the median of its steps. For every run of blocks that
begins within the window, z is the standardised rank sum of the run against the rest (Mann and Whitney 1947); the run
with the largest z is taken. Ranks are used because latencies have heavy tails. Two more conditions apply, because
wandering latencies easily reach a high z: the run's median is at least 1.5 × that of the time before, the change that
the rules require over the baseline, and its lower quartile is above 95 % of the values before. A short run cannot reach
a large z; it counts if all of it is above all the rest and chance is unlikely to produce that: of n blocks, any m are
the highest with a probability of one in C(n, m).

Neighbouring blocks of wandering latencies are correlated and carry less information: z shrinks by √((1−ρ)/(1+ρ)), where
ρ is the correlation of neighbours about the medians of run and rest (the variance of a mean under AR(1)). The first
RAMP blocks of both are excluded, because there the level itself is changing.

False positive rates were measured on healthy series; see tests/detectors/test_onset.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

from latdoctor.evidence.model import Event, Evidence, Origin, Series

SIGNALS = ("latency.p99", "latency.p95", "latency.p50", "latency.mean")
ONSET = "latency.onset"
BLOCKS = 120
MIN_BLOCKS = 20
MIN_RUN = 4  # blocks of the run and of the time before it
MIN_RATIO = 1.5
MIN_STEPS = 30
MIN_CHOICES = 1_000_000
MAX_DEPENDENCE = 0.3
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


def onsets(evidence: Evidence) -> Evidence:
    """Derive `latency.onset` per subject from the quantile series that shows it most sharply."""
    reported = {event.subject for event in evidence.events_by_signal.get(ONSET, ())}
    best: dict[str, tuple[HighRun, Series]] = {}
    for one in evidence.series:
        if one.signal not in SIGNALS or one.subject in reported or one.labels:
            continue
        run = highest_run(one.values)
        if run is not None and (one.subject not in best or run.z > best[one.subject][0].z):
            best[one.subject] = (run, one)
    return Evidence(events=tuple(_event(run, series) for run, series in best.values()))


def _event(run: HighRun, series: Series) -> Event:
    step = median(later - before for before, later in pairwise(series.times))
    fields: dict[str, float | str] = {
        "signal": series.signal,
        "before": run.before,
        "after": run.after,
        "z": round(run.z, 2),
        "within": run.unsure * step,
    }
    if run.last < len(series.times) - 1:
        fields["until"] = series.times[run.last]
    origin = Origin(series.origin.artifact, series.origin.place)
    return Event(ONSET, series.subject, origin, fields, series.times[run.first] - step)


def highest_run(values: Sequence[float]) -> HighRun | None:
    """Return the highest run of `values`; None if no rise is significant."""
    if len(values) < MIN_STEPS or not all(math.isfinite(value) for value in values):
        return None
    size = math.ceil(len(values) / BLOCKS)
    # Six digits: a quantile that a server computes from one bucket varies in the last digits only, without meaning.
    # Kept, they would look like wandering latencies.
    blocks = [float(f"{median(values[start : start + size]):.6g}") for start in range(0, len(values), size)]
    if len(blocks) < MIN_BLOCKS:
        return None
    first, last, z = _sharpest(blocks)
    early, run, rest = blocks[:first], blocks[first:last], blocks[last:]
    dependence = _dependence((early, run[RAMP:], rest[RAMP:]))
    z *= math.sqrt((1 - dependence) / (1 + dependence))
    rare = dependence < MAX_DEPENDENCE and _wholly_apart(early + rest, run)
    if z < (_Z if len(blocks) >= 2 * MIN_BLOCKS else _Z_FEW) and not rare:
        return None
    before, after = median(early), median(run)
    if before <= 0 or after < MIN_RATIO * before or _quantile(run, 0.25) <= _quantile(early, 0.95):
        return None
    middle = math.sqrt(before * after)
    if not rest or median(rest) > middle or len(rest) < 2:
        end = len(values) - 1
    else:
        end = min(last * size, len(values)) - 1
    begins = _refined(values, (first - 1) * size, (first + 1) * size, middle)
    return HighRun(begins, end, size, before, after, z)


def _dependence(parts: Sequence[Sequence[float]]) -> float:
    """Correlation of neighbouring blocks by their ranks within each part; 0 if negative."""
    above = below = 0.0
    for part in parts:
        middle = (len(part) + 1) / 2
        off = [rank - middle for rank in _ranks(part)]
        above += sum(one * other for one, other in pairwise(off))
        below += sum(one * one for one in off)
    return min(0.99, max(0.0, above / below)) if below else 0.0


def _wholly_apart(rest: Sequence[float], run: Sequence[float]) -> bool:
    return min(run) > max(rest) and math.comb(len(rest) + len(run), len(run)) >= MIN_CHOICES


def _sharpest(blocks: Sequence[float]) -> tuple[int, int, float]:
    """Return the run first..last-1 with the largest standardised rank sum, and that sum."""
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
    return best


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
