"""Since when requests fail or wait: `level.onset` from histories of a metric, as logs and exports give it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from latdoctor.detectors.level_change import worsening
from latdoctor.detectors.level_shift import MIN_STEPS
from latdoctor.evidence.model import Event, Evidence, Series, Value

ONSET = "level.onset"
SIGNALS = ("error.ratio", "queue.depth", "queue.time.mean")


def level_onsets(evidence: Evidence) -> Evidence:
    """Derive `level.onset` for each of SIGNALS that moved to a worse level, unless its source reports that itself."""
    known = {(one.subject, one.fields.get("signal")) for one in evidence.events_by_signal.get(ONSET, ())}
    long = [one for one in evidence.series if one.signal in SIGNALS and not one.labels and len(one.times) >= MIN_STEPS]
    events = [event for one in long if (one.subject, one.signal) not in known for event in _events(one)]
    return Evidence(events=tuple(events))


def _events(series: Series) -> Iterator[Event]:
    change = worsening(series.signal, series.values)
    if change is None:
        return
    step = median(later - before for before, later in pairwise(series.times))
    fields: dict[str, Value] = {
        "signal": series.signal,
        "before": change.before,
        "after": change.after,
        "within": change.unsure * step,
    }
    if change.last < len(series.times) - 1:
        fields["until"] = series.times[change.last]
    yield Event(ONSET, series.subject, series.origin, fields, series.times[change.first] - step)
