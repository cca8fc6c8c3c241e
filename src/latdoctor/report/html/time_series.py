"""Charts over time: of the samples of an incident, else of the series in the evidence of its observations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from latdoctor.evidence.catalogue import catalogue
from latdoctor.incident.timeline_model import SloSample, Timeline
from latdoctor.report.html.chart_tables import time_of_day
from latdoctor.report.html.page_inputs import Period, Snapshot, unix
from latdoctor.report.html.page_model import TIME, Highlight, Limit, Line, Lines, Mark, Missing

Point = tuple[float, float | None]
Measured = Mapping[tuple[str, str], Sequence[Point]]  # by signal and subject

MAX_POINTS = 1500  # of a line: more than a screen has columns
_MAX_SUBJECTS = 3  # drawn of each signal
_MARGIN = 0.5  # of the time of the lines: how far outside of it marks are shown
_HOLE = 3.0  # times the usual distance of two points: a longer one is a gap in the line
_NEARLY_ALL = 0.8  # of the whole time: a front part that shows this much is shown whole


_HISTORY = "a Prometheus server (--prometheus URL)"
_LOG = f"an access log (--log FILE) or {_HISTORY}"


@dataclass(frozen=True, slots=True)
class ChartSpec:
    """A chart of the first of `families` that was measured; each has signals with their names in the chart."""

    id: str
    title: str
    families: tuple[tuple[tuple[str, str], ...], ...]
    source: str  # what would measure it


LATENCY = ChartSpec(
    "latency",
    "Latency over time",
    (
        (("latency.p50", "P50"), ("latency.p99", "P99")),
        (("router.latency.p50", "P50 at the router"), ("router.latency.p99", "P99 at the router")),
        (("client.latency.p50", "P50 of clients"), ("client.latency.p99", "P99 of clients")),
        (("http.latency.p99", "P99 of HTTP"),),
        (("latency.p95", "P95"),),
        (("latency.mean", "mean"),),
        (("request.latency", "single requests"),),
    ),
    _LOG,
)
LOAD = (
    ChartSpec(
        "queue",
        "Requests waiting",
        ((("queue.depth", "waiting"),), (("queue.time.mean", "mean time waiting"),)),
        _HISTORY,
    ),
    ChartSpec("arrivals", "Requests", ((("arrival.rate", "arriving"), ("completion.rate", "answered")),), _LOG),
    ChartSpec(
        "memory",
        "Memory",
        (
            (("alloc.reserved", "held by the allocator"), ("alloc.allocated", "given out")),
            (("server.rss", "resident"),),
            (("process.rss", "resident"),),
            (("gpu.memory_used", "used on the GPU"),),
            (("kv.usage", "KV cache in use"),),
            (("host.memory.available", "available on the host"),),
        ),
        _HISTORY,
    ),
)


def measured(timeline: Timeline | None, snapshots: Sequence[Snapshot]) -> Measured:
    """All values over time: samples, else series in the evidence, else the readings of several observations."""
    found: dict[tuple[str, str], list[Point]] = {}
    for time, sample in timed(timeline) if timeline is not None else ():
        for subject, values in sample.values.items():
            for signal, value in values.items():
                found.setdefault((signal, subject), []).append((time, value))
    return _with_gaps(found) if found else _of_snapshots(snapshots)


def timed(timeline: Timeline) -> Iterator[tuple[float, SloSample]]:
    """Samples with unix seconds: the start plus monotonic seconds where these are known, else their own time."""
    start = unix(timeline.start.at)
    for sample in timeline.samples:
        own = unix(sample.at)
        if sample.seconds is not None and start is not None:
            yield start + sample.seconds, sample
        elif own is not None:
            yield own, sample


def _of_snapshots(snapshots: Sequence[Snapshot]) -> Measured:
    found: dict[tuple[str, str], list[Point]] = {}
    for snapshot in snapshots:
        for series in snapshot.evidence.series if snapshot.evidence else ():
            if not series.labels:
                points = zip(series.times, series.values, strict=True)
                found.setdefault((series.signal, series.subject), []).extend(points)
    if found or len(snapshots) < 2:
        return _with_gaps(found)
    for snapshot in snapshots:
        for reading in snapshot.evidence.readings if snapshot.evidence else ():
            if snapshot.time is not None and isinstance(reading.value, float) and not (reading.labels or reading.bound):
                found.setdefault((reading.signal, reading.subject), []).append((snapshot.time, reading.value))
    return found


def _with_gaps(found: Mapping[tuple[str, str], Sequence[Point]]) -> Measured:
    return {key: tuple(_broken(sorted(set(points)))) for key, points in found.items()}


def _broken(points: Sequence[Point]) -> Iterable[Point]:
    """The points, with an unknown one where nothing was measured for long: no line is drawn there."""
    steps = sorted(later - former for (former, _), (later, _) in pairwise(points))
    usual = steps[len(steps) // 2] if steps else 0.0
    before: float | None = None
    for time, value in points:
        if before is not None and usual and time - before > _HOLE * usual:
            yield before + usual, None
        yield time, value
        before = time


def chart(
    spec: ChartSpec,
    found: Measured,
    limits: tuple[Limit, ...] = (),
    marks: tuple[Mark, ...] = (),
    *,
    highlights: tuple[Highlight, ...] = (),
    front: Period | None = None,
) -> Lines | Missing:
    """The chart of the time `front` and, where that is only a part, of the whole range; or why there is none."""
    drawn = tuple(one for one in highlights if front is None or (one.start <= front.end and one.end >= front.start))
    elsewhere = _joined(*(f"{_where(one, ())}, outside of this chart" for one in highlights if one not in drawn))
    whole = _chart(spec, found, limits, marks, drawn, elsewhere)
    if isinstance(whole, Missing) or front is None:
        return whole
    inside = {
        key: tuple(point for point in points if front.start <= point[0] <= front.end) for key, points in found.items()
    }
    part = _chart(spec, inside, limits, marks, drawn, elsewhere)
    if isinstance(part, Missing):
        return replace(whole, note=_joined(f"no values {_between(front.start, front.end)}", whole.note))
    if _duration(part) >= _NEARLY_ALL * _duration(whole):
        return whole
    first, last = _times(whole.lines)
    return replace(part, whole=whole, note=_joined(part.note, f"the whole range is {_between(first, last)}"))


def _chart(
    spec: ChartSpec,
    found: Measured,
    limits: tuple[Limit, ...],
    marks: tuple[Mark, ...],
    highlights: tuple[Highlight, ...],
    note: str,
) -> Lines | Missing:
    for family in spec.families:
        lines, left = _drawn(family, found)
        if lines:
            dimension = catalogue()[family[0][0]].dimension
            more = f"{left} more with lower values are not drawn" if left else ""
            shown = highlights if dimension == TIME else ()
            notes = _joined(*(_where(one, lines) for one in shown), note, more)
            return Lines(spec.id, spec.title, dimension, lines, limits, _near(marks, lines), shown, notes)
    why = f"not in the sources that were read; {spec.source} would have it"
    return Missing(spec.title, _joined(why, *(_where(one, ()) for one in highlights), note))


def _where(highlight: Highlight, lines: Sequence[Line]) -> str:
    """When a number of the page's head was measured, and whether the lines have values in that time."""
    times = (time for line in lines for time, value in zip(line.times, line.values, strict=True) if value is not None)
    inside = any(highlight.start <= time <= highlight.end for time in times)
    missing = "" if inside or not lines else "; the lines have no values in this time"
    measured = "measured " if highlight.end > highlight.start else ""
    return f"{highlight.name} {highlight.label}: {measured}{_between(highlight.start, highlight.end)}{missing}"


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _between(start: float, end: float) -> str:
    """`at 07:12:03`, `from 07:12:03 to 07:12:08` in UTC."""
    if time_of_day(start, end) == time_of_day(end):
        return f"at {time_of_day(start)}"
    return f"from {time_of_day(start, end)} to {time_of_day(end)}"


def _times(lines: Sequence[Line]) -> tuple[float, float]:
    return min(line.times[0] for line in lines), max(line.times[-1] for line in lines)


def _duration(chart: Lines) -> float:
    first, last = _times(chart.lines)
    return last - first


def _near(marks: tuple[Mark, ...], lines: Sequence[Line]) -> tuple[Mark, ...]:
    """Marks in and near the time of the lines: those from long before would leave no room for the lines."""
    first, last = _times(lines)
    margin = (last - first) * _MARGIN
    return tuple(mark for mark in marks if first - margin <= mark.time <= last + margin)


def _drawn(family: tuple[tuple[str, str], ...], found: Measured) -> tuple[tuple[Line, ...], int]:
    """The lines of the subjects with the highest values, and how many subjects were left out."""
    peaks: dict[str, float] = {}
    for signal, _ in family:
        for (name, subject), points in found.items():
            known = [value for _, value in points if value is not None]
            if name == signal and known and len(points) > 1:
                peaks[subject] = max(peaks.get(subject, 0.0), *known)
    subjects = sorted(peaks, key=lambda subject: (-peaks[subject], subject))
    lines = []
    for subject in subjects[:_MAX_SUBJECTS]:
        for signal, name in family:
            points = thinned(found.get((signal, subject), ()))
            if points:
                title = f"{name} of {subject}" if len(subjects) > 1 else name
                lines.append(Line(title, tuple(time for time, _ in points), tuple(value for _, value in points)))
    return tuple(lines), max(0, len(subjects) - _MAX_SUBJECTS)


def thinned(points: Sequence[Point], most: int = MAX_POINTS) -> Sequence[Point]:
    """At most `most` points: of neighbours the one with the highest value, so that no peak is lost."""
    if len(points) <= most:
        return points
    step = -(-len(points) // most)
    groups = (points[place : place + step] for place in range(0, len(points), step))
    return [max(group, key=lambda point: -1.0 if point[1] is None else point[1]) for group in groups]
