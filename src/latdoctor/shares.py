"""Shares of counts, their intervals, and the interval of the difference of two shares.

The interval of a share is Wilson's; that of a difference is Newcombe's (Statistics in Medicine 1998, method 10), made
of two of these: unlike the normal one it is right for shares of zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """`bad` of `total`."""

    bad: int
    total: int

    def interval(self, z: float) -> tuple[float, float]:
        """Wilson's interval, `z` standard errors to either side; 0..1 where there are none."""
        return wilson(self.bad, self.total, z) if self.total else (0.0, 1.0)


def wilson(events: float, of: int, z: float) -> tuple[float, float]:
    """Wilson's score interval (1927). `events` may be fractional, which scipy's interval does not accept."""
    share = events / of
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), min(1.0, (middle + half) / (1 + z * z / of))


def difference(one: Share, other: Share, z: float) -> tuple[float, float]:
    """The interval of the share of `one` less that of `other`."""
    first, second = (share.bad / share.total if share.total else 0.5 for share in (one, other))
    (low, high), (other_low, other_high) = one.interval(z), other.interval(z)
    middle = first - second
    return (
        max(-1.0, middle - math.hypot(first - low, other_high - second)),
        min(1.0, middle + math.hypot(high - first, second - other_low)),
    )
