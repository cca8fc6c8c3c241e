"""When the quantities of an exported history moved to another level.

The detectors are those for latency and for the log lines of engines. A rise of latency is dated later, with all other
evidence; here it bounds the time that is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from latdoctor.collectors.logs.engine_formats import ONSET
from latdoctor.detectors.level_change import worsening
from latdoctor.detectors.level_shift import highest_run
from latdoctor.detectors.onset import SIGNALS
from latdoctor.evidence.model import Event, Series, Value

LEVELS = ("queue.depth", "kv.usage", "queue.time.mean", "requests.running")


def level_changes(found: Sequence[Series]) -> Iterator[Event]:
    """A `level.onset` for each quantity that moved to a worse level."""
    for one in found:
        change = worsening(one.signal, one.values) if one.signal in LEVELS else None
        if change is None:
            continue
        step = median(later - before for before, later in pairwise(one.times))
        fields: dict[str, Value] = {
            "signal": one.signal,
            "before": change.before,
            "after": change.after,
            "within": max(step, change.unsure * step if change.unsure > 1 else 0.0),
        }
        if change.last < len(one.times) - 1:
            fields["until"] = one.times[change.last]
        yield Event(ONSET, one.subject, one.origin, fields, one.times[change.first])


def lasting_since(found: Sequence[Series]) -> float | None:
    """The latest time since which a latency, a queue or a cache is worse, to the end; None where none is."""
    return max((since for one in found if (since := _since(one)) is not None), default=None)


def _since(series: Series) -> float | None:
    change = highest_run(series.values) if series.signal in SIGNALS else None
    level = worsening(series.signal, series.values) if series.signal in LEVELS else None
    last = change.last if change else level.last if level else -1
    first = change.first if change else level.first if level else 0
    return series.times[first] if last == len(series.times) - 1 else None
