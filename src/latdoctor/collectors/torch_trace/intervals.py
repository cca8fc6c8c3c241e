"""Sets of time intervals: unions, what they cover, and how much of one lies in another.

All times are in the same unit, seconds in practice. An `Intervals` is a union already: sorted, disjoint, not touching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Intervals(Struct, frozen=True):
    starts: Floats
    ends: Floats

    @property
    def length(self) -> float:
        """The time covered."""
        return float((self.ends - self.starts).sum())

    @property
    def gaps(self) -> Intervals:
        """What lies between the intervals."""
        return Intervals(self.ends[:-1], self.starts[1:])

    def clipped(self, low: float, high: float) -> Intervals:
        """What of it lies within [low, high]."""
        kept = (self.ends > low) & (self.starts < high)
        return Intervals(self.starts[kept].clip(low, high), self.ends[kept].clip(low, high))

    def covered_before(self, times: Floats) -> Floats:
        """For each of `times`, how much of the time before it is covered."""
        if not len(self.starts):
            return np.zeros(len(times))
        before = np.concatenate(([0.0], np.cumsum(self.ends - self.starts)))
        begun = np.searchsorted(self.starts, times, side="right")
        unfinished = np.maximum(0.0, self.ends[np.maximum(begun - 1, 0)] - times)
        return np.where(begun > 0, before[begun] - unfinished, 0.0)

    def within(self, starts: Floats, ends: Floats) -> Floats:
        """For each interval [start, end] given, how much of it is covered."""
        # Beside one interval of years the sums are no longer exact: more than nothing and than all it cannot be.
        return (self.covered_before(ends) - self.covered_before(starts)).clip(0.0, ends - starts)

    def shared_with(self, other: Intervals) -> float:
        """The time covered by both."""
        return float(self.within(other.starts, other.ends).sum())


def union(starts: Floats, ends: Floats) -> Intervals:
    """The union of the intervals given in any order; empty ones add nothing but a point."""
    order = np.argsort(starts, kind="stable")
    return union_of_sorted(starts[order], ends[order])


def union_of_sorted(begins: Floats, ends: Floats) -> Intervals:
    """The same for intervals sorted by their starts."""
    if not len(begins):
        return Intervals(np.zeros(0), np.zeros(0))
    reached = np.maximum.accumulate(ends)
    opens = begins[1:] > reached[:-1]
    return Intervals(
        begins[np.concatenate(([True], opens))],
        reached[np.concatenate((opens, [True]))],
    )


class Cover:
    """The union of intervals that come window by window, sorted by start; only how far it reaches is kept."""

    def __init__(self) -> None:
        self.length = 0.0  # covered so far
        self._reach = -np.inf

    def take(self, starts: Floats, ends: Floats, low: float, high: float) -> Intervals:
        """What is covered of [low, high), given the intervals that start in it; windows must follow one another."""
        if self._reach > low:
            starts, ends = np.concatenate(([low], starts)), np.concatenate(([self._reach], ends))
        found = union_of_sorted(starts, ends)
        if len(found.ends):
            self._reach = max(self._reach, float(found.ends[-1]))
            found = found.clipped(low, high)
        self.length += found.length
        return found


def joined(*parts: Intervals) -> Intervals:
    """The union of several unions."""
    return union(np.concatenate([p.starts for p in parts]), np.concatenate([p.ends for p in parts]))
