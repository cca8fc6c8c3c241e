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
        if not self.total:
            return 0.0, 1.0
        share, n = self.bad / self.total, self.total
        middle = share + z * z / (2 * n)
        half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def difference(one: Share, other: Share, z: float) -> tuple[float, float]:
    """The interval of the share of `one` less that of `other`."""
    first, second = (share.bad / share.total if share.total else 0.5 for share in (one, other))
    (low, high), (other_low, other_high) = one.interval(z), other.interval(z)
    middle = first - second
    return (
        max(-1.0, middle - math.hypot(first - low, other_high - second)),
        min(1.0, middle + math.hypot(high - first, second - other_low)),
    )
