"""What a deployment changed: compute per request that is higher since about the time of a change, at equal load.

A new version that takes over all at once leaves no other version to compare it with; its own history does. The change
must lie within the error of the onset, or at most LEAD before it, and belong to the server that became slower or to no
server in particular. Load and the lengths of inputs and outputs are compared over the same times, where they are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from latdoctor.detectors.level_shift import HighRun, highest_run, median_step
from latdoctor.evidence.model import Event, Evidence, Origin, Reading, Series, Value, Window
from latdoctor.units import clock_time, format_value

COMPUTE = "compute.time.mean"
LOADS = ("arrival.rate", "completion.rate")
LENGTHS = ("input.length.mean", "output.length.mean")
CHANGES = ("change.deployment", "change.model", "change.version")
RATIO, LOAD, LENGTH, EFFECT = "change.compute_ratio", "change.load_ratio", "change.length_ratio", "change.effect"
DERIVED = (RATIO, LOAD, LENGTH, EFFECT)
LEAD = 120.0  # seconds from a change to its effect: a process starts, a model is loaded
FLAT = 1.25  # times the load before
_EVERYWHERE = ("", "service")  # the subject of a note that names no server


def change_effects(evidence: Evidence) -> Evidence:
    """Derive how much more compute a request takes since a change, for each subject where that lasts."""
    known = {one.subject for one in evidence.readings_by_signal.get(RATIO, ())}
    by_subject: dict[str, dict[str, Series]] = {}
    for one in evidence.series:
        if not one.labels:
            by_subject.setdefault(one.subject, {})[one.signal] = one
    readings: list[Reading] = []
    for subject, series in by_subject.items():
        rise = _rise(series[COMPUTE]) if COMPUTE in series and subject not in known else None
        change = _nearest(evidence, subject, rise) if rise else None
        if rise and change:
            readings.extend(_readings(rise, change, series))
    return Evidence(readings=tuple(readings))


@dataclass(frozen=True, slots=True)
class _Rise:
    """Compute per request is `run.after` seconds since `begin`, give or take `within` seconds, to the end."""

    series: Series
    run: HighRun
    begin: float
    within: float

    def ratio(self, other: Series) -> float | None:
        """The level of `other` since the rise over that before; None where either is not known."""
        before = [value for time, value in zip(other.times, other.values, strict=True) if time <= self.begin]
        after = [value for time, value in zip(other.times, other.values, strict=True) if time > self.begin]
        if not before or not after or median(before) <= 0:
            return None
        return median(after) / median(before)


def _rise(series: Series) -> _Rise | None:
    run = highest_run(series.values)
    if run is None or run.last < len(series.values) - 1:
        return None
    step = median_step(series.times)
    return _Rise(series, run, series.times[run.first] - step, run.unsure * step)


def _nearest(evidence: Evidence, subject: str, rise: _Rise) -> Event | None:
    """The change that the rise may come from: the nearest one."""
    found = [
        (abs(rise.begin - event.time), number, event)
        for number, event in enumerate(one for name in CHANGES for one in evidence.events_by_signal.get(name, ()))
        if event.time is not None
        and rise.begin - rise.within - LEAD <= event.time <= rise.begin + rise.within
        and belongs(evidence, event.subject, subject)
    ]
    return min(found)[2] if found else None


def belongs(evidence: Evidence, changed: str, subject: str) -> bool:
    """Whether a change of `changed` may concern `subject`: itself, what it is part of, or its server."""
    if changed in _EVERYWHERE or changed in evidence.lineage(subject):
        return True
    services = {name for of, name in evidence.services if of in evidence.lineage(subject) or of == _server(subject)}
    return changed.removeprefix("service/").partition("/")[0] in services or _server(changed) == _server(subject)


def _server(subject: str) -> str:
    """`server/a:8000` of `model/m@a:8000`."""
    return f"server/{subject.rpartition('@')[2]}" if "@" in subject else subject


def _readings(rise: _Rise, change: Event, series: Mapping[str, Series]) -> Iterator[Reading]:
    load = next((series[name] for name in LOADS if name in series), None)
    loaded = rise.ratio(load) if load else None
    lengths = [ratio for name in LENGTHS if name in series and (ratio := rise.ratio(series[name])) is not None]
    ratio = rise.run.after / rise.run.before
    values: list[tuple[str, Value | None]] = [
        (RATIO, ratio),
        (LOAD, loaded),
        (LENGTH, max(lengths, default=None)),
        (EFFECT, _sentence(rise, change, ratio, loaded)),
    ]
    window = Window(rise.begin, rise.series.times[-1])
    origin = Origin(rise.series.origin.artifact, rise.series.origin.place)
    for name, value in values:
        if value is not None:
            yield Reading(name, rise.series.subject, value, origin, window)


def _sentence(rise: _Rise, change: Event, ratio: float, load: float | None) -> str:
    """`compute per request is 7 × that before since 02:19:20 UTC, 40 s after: deployed v1.9; load flat`."""
    gap = rise.begin - (change.time or 0.0)
    near = gap <= rise.within
    when = f"within {format_value(rise.within, 'time')} of" if near else f"{format_value(gap, 'time')} after"
    since = clock_time(rise.begin)
    return (
        f"compute per request is {ratio:.2g} × that before since {since}, {when}: {what_changed(change)}{of_load(load)}"
    )


def of_load(ratio: float | None) -> str:
    """The end of a sentence that says how the load compares with that before; empty where it is not known."""
    if ratio is None:
        return ""
    return "; load flat" if ratio <= FLAT else f"; load {ratio:.2g} × that before"


def what_changed(change: Event) -> str:
    if change.text:
        return change.text
    parts = (str(change.fields.get(name, "")) for name in ("what", "to"))
    return f"{change.signal.rpartition('.')[2]} {' '.join(part for part in parts if part)}".strip()
