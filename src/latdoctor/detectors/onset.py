"""Since when it is slow: `latency.onset` by the quantile series that shows a rise most sharply."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from latdoctor.detectors.level_shift import HighRun, highest_run
from latdoctor.evidence.model import Event, Evidence, Origin, Series

SIGNALS = ("latency.p99", "latency.p95", "latency.p50", "latency.mean")
ONSET = "latency.onset"


def onsets(evidence: Evidence) -> Evidence:
    """Derive `latency.onset` per subject from the quantile series that shows it most sharply."""
    reported = {event.subject for event in evidence.events_by_signal.get(ONSET, ())}
    best: dict[str, tuple[HighRun, Series]] = {}
    for one in evidence.series:
        if one.signal not in SIGNALS or one.subject in reported or one.labels:
            continue
        run = highest_run(one.values)
        if run is not None and (one.subject not in best or run.z > best[one.subject][0].z):
            best[one.subject] = (run, one)
    return Evidence(events=tuple(_event(run, series) for run, series in best.values()))


def _event(run: HighRun, series: Series) -> Event:
    step = median(later - before for before, later in pairwise(series.times))
    fields: dict[str, float | str] = {
        "signal": series.signal,
        "before": run.before,
        "after": run.after,
        "z": round(run.z, 2),
        "within": run.unsure * step,
    }
    if run.last < len(series.times) - 1:
        fields["until"] = series.times[run.last]
    origin = Origin(series.origin.artifact, series.origin.place)
    return Event(ONSET, series.subject, origin, fields, series.times[run.first] - step)
