"""How often a bounded queue was full: `queue.full_share`.

A server refuses what finds its queue full, and some do not count it: Triton's counters of failures stay at 0 where
`max_queue_size` is reached. Requests that come at random find a queue as full as samples at regular times do, so the
share of the samples at the limit is about the share of requests that were refused; it is less of requests that come
in groups. One full sample may be chance, and says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.detectors.derived_readings import latest_values
from latdoctor.evidence.model import Evidence, Origin, Reading, Series, Window
from latdoctor.units import format_value

DEPTH, LIMIT, SHARE = "queue.depth", "config.queue_limit", "queue.full_share"
DERIVED = (SHARE,)
_FEWEST, _FEWEST_FULL = 5, 2  # samples


def queue_bounds(evidence: Evidence) -> Evidence:
    """Derive `queue.full_share` of every subject with a limit of its queue and enough samples of its length."""
    limits = latest_values(evidence, LIMIT)
    reported = {one.subject for one in evidence.readings_by_signal.get(SHARE, ())}
    series = [one for one in evidence.series if one.signal == DEPTH and not one.labels and one.subject not in reported]
    found = [reading for one in series for reading in _of_one(one, limits.get(one.subject, 0.0))]
    return Evidence(readings=tuple(found))


def _of_one(series: Series, limit: float) -> Iterator[Reading]:
    count = len(series.values)
    full = sum(value >= limit for value in series.values)
    if limit > 0 and count >= _FEWEST and (full >= _FEWEST_FULL or not full):
        note = f"{full} of {count} samples at the limit of {format_value(limit, 'count')}"
        window = Window(series.times[0], series.times[-1])
        yield Reading(SHARE, series.subject, full / count, Origin(series.origin.artifact, DEPTH), window, (), note)
