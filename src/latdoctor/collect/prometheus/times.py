"""When the saved pages of a server were taken, as far as the pages themselves tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from latdoctor.dialects.page import Page

# Gauges whose sum is the unix time at which the exporter wrote the page.
CLOCKS = (
    ("node_time_seconds",),
    ("process_start_time_seconds", "process_uptime_seconds"),
    ("ref_start_time_seconds", "ref_uptime_seconds"),
)


def times_told(pages: Sequence[Page]) -> list[float | None]:
    """The unix time of each page: of its samples, else by a clock that every page shows, else None.

    The times of the files are not asked: a copy has others, and a rate by them would be wrong.
    """
    own = [page.timestamp for page in pages]
    if None in own:
        for clock in CLOCKS:
            told = [_sum(page, clock) for page in pages]
            if None not in told:
                return told
    return own


def _sum(page: Page, names: Sequence[str]) -> float | None:
    """None where one of the gauges is absent, not finite, or shown more than once (for several processes)."""
    shown = [page.samples.get(name, ()) for name in names]
    total = sum(samples[0].value for samples in shown) if all(len(samples) == 1 for samples in shown) else math.nan
    return total if math.isfinite(total) else None
