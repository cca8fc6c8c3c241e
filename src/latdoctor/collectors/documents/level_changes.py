"""When the quantities of an exported history moved to another level.

The detectors are those for latency and for the log lines of engines. A rise of latency is dated later, with all other
evidence; here it bounds the time that is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.detectors.level_change import worsening
from latdoctor.detectors.level_onset import level_event
from latdoctor.detectors.level_shift import highest_run
from latdoctor.detectors.onset import SIGNALS
from latdoctor.evidence.model import Event, Series

LEVELS = ("queue.depth", "kv.usage", "queue.time.mean", "requests.running")


def level_changes(found: Sequence[Series]) -> Iterator[Event]:
    """A `level.onset` for each quantity that moved to a worse level."""
    for one in found:
        change = worsening(one.signal, one.values) if one.signal in LEVELS else None
        if change is not None:
            yield level_event(one.signal, one.subject, change, one.times, one.origin, one.times[change.first])


def lasting_since(found: Sequence[Series]) -> float | None:
    """The latest time since which a latency, a queue or a cache is worse, to the end; None where none is."""
    return max((since for one in found if (since := _since(one)) is not None), default=None)


def _since(series: Series) -> float | None:
    change = highest_run(series.values) if series.signal in SIGNALS else None
    level = worsening(series.signal, series.values) if series.signal in LEVELS else None
    last = change.last if change else level.last if level else -1
    first = change.first if change else level.first if level else 0
    return series.times[first] if last == len(series.times) - 1 else None
