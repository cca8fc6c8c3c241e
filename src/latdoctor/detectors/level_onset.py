"""Since when requests fail or wait: `level.onset` from histories of a metric, as logs and exports give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.detectors.level_change import LevelChange, worsening
from latdoctor.detectors.level_shift import MIN_STEPS, median_step
from latdoctor.evidence.model import Event, Evidence, Origin, Series, Value

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
    if change is not None:
        begin = series.times[change.first] - median_step(series.times)
        yield level_event(series.signal, series.subject, change, series.times, series.origin, begin)


def level_event(
    signal: str, subject: str, change: LevelChange, times: Sequence[float], origin: Origin, begin: float
) -> Event:
    """The `level.onset` of `signal` at `begin`; `times` are those of the samples that `change` counts."""
    fields: dict[str, Value] = {
        "signal": signal,
        "before": change.before,
        "after": change.after,
        "within": change.unsure * median_step(times),
    }
    if change.last < len(times) - 1:
        fields["until"] = times[change.last]
    return Event(ONSET, subject, origin, fields, begin)
