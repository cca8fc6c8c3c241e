"""Request rates on a regular grid of time: gaps stay visible as NaN, and finer samples become means of a minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import structs

from latdoctor.evidence.model import Series

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FINEST = 60.0  # seconds: below that the noise of single requests hides the level
MOST_STEPS = 400_000  # of a grid: nine months of minutes


@dataclass(frozen=True, slots=True, eq=False)
class RateSeries:
    """Values at `start`, `start + step`, … (unix seconds); NaN where nothing was recorded. `ignored`: unusable samples.

    The first and the last value are recorded ones.
    """

    start: float
    step: float
    values: FloatArray
    ignored: int = 0

    @property
    def end(self) -> float:
        """The time of the last value."""
        return self.start + self.step * (len(self.values) - 1)

    @property
    def missing(self) -> int:
        return int(np.isnan(self.values).sum())

    def time_of(self, place: int) -> float:
        return self.start + self.step * place


def on_grid(found: Sequence[Series], ahead: float) -> RateSeries | None:
    """The sum of series (replicas) on one grid, for a forecast `ahead` seconds; None without two usable samples.

    Negative and infinite values are no rates: they count as not recorded.
    """
    per_series = [_usable(one) for one in found]
    ignored = sum(count for _, _, count in per_series)
    samples = [(times, values) for times, values, _ in per_series if len(np.unique(times)) > 1]
    if not samples:
        return None
    every = np.unique(np.concatenate([times for times, _ in samples]))
    native = min(_native(times) for times, _ in samples)
    step = native if native >= FINEST or ahead < FINEST else FINEST
    start = float(np.floor(every[0] / step) * step) if step > native else float(every[0])
    count = round((every[-1] - start) / step) + 1
    if count > MOST_STEPS:
        return on_grid([within(one, float(every[-1]) - step * (MOST_STEPS - 2), np.inf) for one in found], ahead)
    total, seen = np.zeros(count), np.zeros(count, dtype=bool)
    for times, values in samples:
        mean, present = _placed(times, values, start, step, count)
        total += np.where(present, mean, 0.0)
        seen |= present
    grid = np.where(seen, total, np.nan)
    first, last = np.flatnonzero(seen)[[0, -1]]
    return RateSeries(start + step * float(first), step, grid[first : last + 1], ignored)


def within(one: Series, since: float, until: float) -> Series:
    """The samples from `since` to `until`, unix seconds."""
    kept = [place for place, time in enumerate(one.times) if since <= time <= until]
    times, values = tuple(one.times[place] for place in kept), tuple(one.values[place] for place in kept)
    return structs.replace(one, times=times, values=values)


def _usable(one: Series) -> tuple[FloatArray, FloatArray, int]:
    times, values = np.asarray(one.times, dtype=float), np.asarray(one.values, dtype=float)
    good = np.isfinite(times) & np.isfinite(values) & (values >= 0)
    return times[good], values[good], int((~good).sum())


def _native(times: FloatArray) -> float:
    """The usual distance of two samples, to a whole second where it is within 1 %. Three in four may be longer."""
    usual = float(np.quantile(np.diff(np.unique(times)), 0.25, method="lower"))
    whole = round(usual)
    return float(whole) if whole and abs(usual - whole) <= 0.01 * usual else usual


def _placed(
    times: FloatArray, values: FloatArray, start: float, step: float, count: int
) -> tuple[FloatArray, BoolArray]:
    """The mean of the samples of each step, and where there are any."""
    raw = (times - start) / step
    places = np.clip(np.floor(raw + 1e-6) if step == FINEST else np.rint(raw), 0, count - 1).astype(np.int64)
    sums, number = np.bincount(places, values, count), np.bincount(places, minlength=count)
    return sums / np.maximum(number, 1), number > 0
