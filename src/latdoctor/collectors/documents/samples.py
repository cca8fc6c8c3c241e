"""Statistics of single measurements that a file lists one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from latdoctor.collectors.documents.load_result import ENOUGH, Timing


def timing_of(seconds: Sequence[float], note: str = "") -> Timing:
    """Mean, percentiles and maximum of durations; a percentile that needs more of them is left out."""
    known = sorted(value for value in seconds if math.isfinite(value) and value >= 0)
    if not known:
        return Timing()
    found = Timing(mean=math.fsum(known) / len(known), maximum=known[-1], count=float(len(known)), note=note)
    for percent, needed in ENOUGH.items():
        if len(known) >= needed:
            found.percentiles[percent] = known[max(0, math.ceil(percent / 100 * len(known)) - 1)]
    return found
