"""Replicas for a rate, when each keeps a share of its limit free."""

from __future__ import annotations

import math

RESERVE = 0.3  # of the limit: for what is not like the measured load


def replica_count(rate: float, limit: float, reserve: float = RESERVE) -> int:
    """At least one. `rate` and `limit` (of a replica, above 0) in the same unit."""
    return max(1, math.ceil(rate / (limit * (1 - reserve)) - 1e-9))
