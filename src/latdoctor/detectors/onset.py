"""Since when it is slow: `latency.onset` by the latency series that shows the present rise first.

The series that shows a rise most sharply says which episode it is; rises that last come first. Of the series that rose
in the same episode the earliest dates it: a P99 of few requests may leave its usual range later than the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.detectors.level_shift import HighRun, highest_run, median_step
from latdoctor.evidence.model import Event, Evidence, Origin, Series

SIGNALS = ("latency.p99", "latency.p95", "latency.p50", "latency.mean")
ONSET = "latency.onset"
SAME_EPISODE, SAME_STEPS = 0.25, 5  # of the length of the sharpest rise, and steps, by which others may begin earlier


def onsets(evidence: Evidence) -> Evidence:
    """Derive `latency.onset` per subject from the latency series that shows it first."""
    reported = {event.subject for event in evidence.events_by_signal.get(ONSET, ())}
    found: dict[str, list[_Rise]] = {}
    for one in evidence.series:
        if one.signal not in SIGNALS or one.subject in reported or one.labels:
            continue
        run = highest_run(one.values)
        if run is not None:
            found.setdefault(one.subject, []).append(_Rise(run, one))
    return Evidence(events=tuple(_event(_first(rises)) for rises in found.values()))


@dataclass(frozen=True, slots=True)
class _Rise:
    run: HighRun
    series: Series

    @property
    def step(self) -> float:
        return median_step(self.series.times)

    @property
    def begin(self) -> float:
        return self.series.times[self.run.first] - self.step

    @property
    def end(self) -> float:
        return self.series.times[self.run.last]

    @property
    def lasts(self) -> bool:
        return self.run.last == len(self.series.times) - 1


def _first(rises: Sequence[_Rise]) -> _Rise:
    """The earliest of the rises of one episode: that of the sharpest, of those that last if any does."""
    sharpest = max(rises, key=lambda rise: (rise.lasts, rise.run.z))
    near = max(SAME_EPISODE * (sharpest.end - sharpest.begin), SAME_STEPS * sharpest.step)
    same = [rise for rise in rises if rise.lasts == sharpest.lasts and abs(rise.begin - sharpest.begin) <= near]
    return min(same, key=lambda rise: rise.begin)


def _event(rise: _Rise) -> Event:
    run, series = rise.run, rise.series
    fields: dict[str, float | str] = {
        "signal": series.signal,
        "before": run.before,
        "after": run.after,
        "z": round(run.z, 2),
        "within": run.unsure * rise.step,
    }
    if not rise.lasts:
        fields["until"] = rise.end
    origin = Origin(series.origin.artifact, series.origin.place)
    return Event(ONSET, series.subject, origin, fields, rise.begin)
