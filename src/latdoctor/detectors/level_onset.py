"""Since when requests fail or wait: `level.onset` from histories of a metric, as logs and exports give it.

Fewer answers are no harm by themselves: at night fewer come. They date an outage where they all but cease while as
many requests arrive as before. Errors that begin at once need no long history: a log may end soon after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from latdoctor.detectors.level_change import LevelChange, worsening
from latdoctor.detectors.level_shift import MIN_STEPS, median_step
from latdoctor.evidence.model import Event, Evidence, Origin, Series, Value

ONSET = "level.onset"
ERRORS, ANSWERS, ARRIVALS = "error.ratio", "completion.rate", "arrival.rate"
SIGNALS = (ERRORS, "queue.depth", "queue.time.mean", ANSWERS)
FEWEST_ERRORS = 12  # steps of a series of errors
CEASED, AS_BEFORE = 0.2, 0.5  # of the level before: answers that all but cease; arrivals that go on


def level_onsets(evidence: Evidence) -> Evidence:
    """Derive `level.onset` for each of SIGNALS that moved to a worse level, unless its source reports that itself."""
    known = {(one.subject, one.fields.get("signal")) for one in evidence.events_by_signal.get(ONSET, ())}
    plain = {(one.subject, one.signal): one for one in evidence.series if not one.labels}
    fewest = {ERRORS: FEWEST_ERRORS}
    events = [
        event
        for (subject, signal), one in plain.items()
        if signal in SIGNALS and len(one.times) >= fewest.get(signal, MIN_STEPS) and (subject, signal) not in known
        for event in _events(one, plain.get((subject, ARRIVALS)))
    ]
    return Evidence(events=tuple(events))


def _events(series: Series, arrivals: Series | None) -> Iterator[Event]:
    change = worsening(series.signal, series.values)
    if change is not None and (series.signal != ANSWERS or _ceased(change, series, arrivals)):
        begin = series.times[change.first] - median_step(series.times)
        yield level_event(series.signal, series.subject, change, series.times, series.origin, begin)


def _ceased(change: LevelChange, series: Series, arrivals: Series | None) -> bool:
    """Whether answers all but ceased while requests go on to arrive."""
    if arrivals is None or change.after > CEASED * change.before:
        return False
    begin = series.times[change.first]
    sides = [
        [value for time, value in zip(arrivals.times, arrivals.values, strict=True) if (time >= begin) == later]
        for later in (False, True)
    ]
    return all(sides) and median(sides[1]) >= AS_BEFORE * median(sides[0])


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
