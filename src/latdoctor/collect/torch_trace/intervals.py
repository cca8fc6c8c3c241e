"""Sets of time intervals: unions, what they cover, and how much of one lies in another.

All times are in the same unit, seconds in practice. An `Intervals` is a union already: sorted, disjoint, not touching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Intervals:
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
        import numpy as np

        if not len(self.starts):
            return np.zeros(len(times))
        before = np.concatenate(([0.0], np.cumsum(self.ends - self.starts)))
        begun = np.searchsorted(self.starts, times, side="right")
        unfinished = np.maximum(0.0, self.ends[np.maximum(begun - 1, 0)] - times)
        return np.where(begun > 0, before[begun] - unfinished, 0.0)

    def within(self, starts: Floats, ends: Floats) -> Floats:
        """For each interval [start, end] given, how much of it is covered."""
        return self.covered_before(ends) - self.covered_before(starts)

    def shared_with(self, other: Intervals) -> float:
        """The time covered by both."""
        return float(self.within(other.starts, other.ends).sum())


def union(starts: Floats, ends: Floats) -> Intervals:
    """The union of the intervals given in any order; empty ones add nothing but a point."""
    import numpy as np

    if not len(starts):
        return Intervals(np.zeros(0), np.zeros(0))
    order = np.argsort(starts, kind="stable")
    begins = starts[order]
    reached = np.maximum.accumulate(ends[order])
    opens = begins[1:] > reached[:-1]
    return Intervals(
        begins[np.concatenate(([True], opens))],
        reached[np.concatenate((opens, [True]))],
    )


def joined(*parts: Intervals) -> Intervals:
    """The union of several unions."""
    import numpy as np

    return union(np.concatenate([p.starts for p in parts]), np.concatenate([p.ends for p in parts]))
