"""Charts over time: of what was sampled while the incident went on, else of the series that the looks read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from latdoctor.evidence.catalogue import catalogue
from latdoctor.incident.slo_samples import P99
from latdoctor.incident.timeline_model import SloSample, Timeline
from latdoctor.report.html.charts import NOT_SEEN
from latdoctor.report.html.document import Fact, Limit, Line, Lines, Mark, NotSeen
from latdoctor.report.html.inputs import Seen, unix
from latdoctor.units import format_value

_SLO = " (slo.p99)"  # ends the limit of a comparison with it
_NO_SAMPLES = "no samples were taken"


def worst_p99(timeline: Timeline, looks: Sequence[Seen]) -> Fact:
    """Of all subjects: replicas are never averaged. What it is from is told where it is from no sample."""
    found = max(_seen(timeline, looks), key=lambda one: one[0], default=None)  # of equal ones the first
    notes = [_slo(timeline, looks)]
    if found is None:
        notes.append("no look and no run shows one" if timeline.samples else _NO_SAMPLES)
    elif found[1]:
        notes.append(f"seen by {found[1]}{'' if timeline.samples else f', {_NO_SAMPLES}'}")
    return Fact("worst P99", NOT_SEEN if found is None else format_value(found[0], "time"), ", ".join(notes))


def over_slo(timeline: Timeline) -> Fact:
    """For how long; a look tells of a moment, and not of the time around it."""
    impact = timeline.impact
    over = NOT_SEEN if impact.over is None else format_value(impact.over, "time")
    note = (
        f"of {format_value(impact.seen, 'time')} that were watched" if impact.seen or timeline.samples else _NO_SAMPLES
    )
    return Fact("over the SLO", over, note)


def _seen(timeline: Timeline, looks: Sequence[Seen]) -> Iterator[tuple[float, str]]:
    """Seconds, and what has shown them; empty for a sample."""
    if timeline.impact.worst_p99 is not None:
        yield timeline.impact.worst_p99, ""
    for look in looks:
        yield from ((value, "a look") for value in _of_look(look))
    for run in timeline.runs:
        for figure in run.figures:
            if figure.signal == P99:
                yield from ((value, "a run") for value in (figure.before, figure.after) if value is not None)


def _of_look(look: Seen) -> Iterator[float]:
    """What was read, or, where only the diagnosis is left, what that was judged by."""
    readings = look.evidence.readings_by_signal.get(P99, ()) if look.evidence else ()
    yield from (one.value for one in readings if isinstance(one.value, float) and not one.labels)
    checks = look.diagnosis.checks if look.diagnosis else ()
    atoms = (atom for check in checks for atom in check.atoms if atom.signal == P99)
    yield from (atom.value for atom in atoms if isinstance(atom.value, float))


def _slo(timeline: Timeline, looks: Sequence[Seen]) -> str:
    """As samples, looks or a diagnosis tell it."""
    known = [*timeline.impact.slo_p99[-1:], *(look.slo_p99 for look in looks if look.slo_p99 is not None)]
    if known:
        return f"SLO {format_value(known[0], 'time')}"
    checks = [check for look in looks if look.diagnosis for check in look.diagnosis.checks]
    limits = (atom.limit for check in checks for atom in check.atoms if atom.limit.endswith(_SLO))
    found = next(limits, "").removesuffix(_SLO)
    return f"SLO {found}" if found else "no SLO is known"


Point = tuple[float, float | None]
Measured = Mapping[tuple[str, str], Sequence[Point]]  # by signal and subject

MOST_POINTS = 1500  # of a line: more than a screen has columns
_SUBJECTS = 3  # drawn of each signal
_AROUND = 0.5  # of the time that lines tell of, before and after it
_HOLE = 3.0  # times the usual distance of two points, from which on nothing is drawn between them


_HISTORY = "a Prometheus server (--prometheus URL)"
_LOG = f"an access log (--log FILE) or {_HISTORY}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A chart: the first of `families` that anything was seen of, each a signal and its name in the chart."""

    id: str
    title: str
    families: tuple[tuple[tuple[str, str], ...], ...]
    source: str  # what would tell it


LATENCY = Wanted(
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
BESIDE = (
    Wanted(
        "queue",
        "Requests waiting",
        ((("queue.depth", "waiting"),), (("queue.time.mean", "mean time waiting"),)),
        _HISTORY,
    ),
    Wanted("arrivals", "Requests", ((("arrival.rate", "arriving"), ("completion.rate", "answered")),), _LOG),
    Wanted(
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


def measured(timeline: Timeline | None, looks: Sequence[Seen]) -> Measured:
    """All that is known over time: samples, else series of the looks, else what each of several looks measured."""
    found: dict[tuple[str, str], list[Point]] = {}
    if timeline is not None:
        for time, sample in _timed(timeline):
            for subject, values in sample.values.items():
                for signal, value in values.items():
                    found.setdefault((signal, subject), []).append((time, value))
    return _with_holes(found) if found else _of_looks(looks)


def _timed(timeline: Timeline) -> Iterator[tuple[float, SloSample]]:
    """Samples by the seconds since the start, which no setting of a clock disturbs; else by their own time."""
    start = unix(timeline.start.at)
    for sample in timeline.samples:
        own = unix(sample.at)
        if sample.seconds is not None and start is not None:
            yield start + sample.seconds, sample
        elif own is not None:
            yield own, sample


def _of_looks(looks: Sequence[Seen]) -> Measured:
    found: dict[tuple[str, str], list[Point]] = {}
    for look in looks:
        for series in look.evidence.series if look.evidence else ():
            if not series.labels:
                found.setdefault((series.signal, series.subject), []).extend(
                    zip(series.times, series.values, strict=True)
                )
    if found or len(looks) < 2:
        return _with_holes(found)
    for look in looks:
        for reading in look.evidence.readings if look.evidence else ():
            if look.time is not None and isinstance(reading.value, float) and not (reading.labels or reading.bound):
                found.setdefault((reading.signal, reading.subject), []).append((look.time, reading.value))
    return found


def _with_holes(found: Mapping[tuple[str, str], Sequence[Point]]) -> Measured:
    return {key: tuple(_broken(sorted(set(points)))) for key, points in found.items()}


def _broken(points: Sequence[Point]) -> Iterable[Point]:
    """With a point without a value where for long nothing was measured: a line there would say what nobody saw."""
    steps = sorted(later - former for (former, _), (later, _) in pairwise(points))
    usual = steps[len(steps) // 2] if steps else 0.0
    before: float | None = None
    for time, value in points:
        if before is not None and usual and time - before > _HOLE * usual:
            yield before + usual, None
        yield time, value
        before = time


def chart(
    wanted: Wanted, found: Measured, limits: tuple[Limit, ...] = (), marks: tuple[Mark, ...] = ()
) -> Lines | NotSeen:
    """What was asked for, or why it is not there."""
    for family in wanted.families:
        lines, left = _drawn(family, found)
        if lines:
            dimension = catalogue()[family[0][0]].dimension
            note = f"{left} more of the same kind were seen and are not drawn" if left else ""
            return Lines(wanted.id, wanted.title, dimension, lines, limits, _near(marks, lines), note)
    signals = ", ".join(signal for signal, _ in wanted.families[0])
    return NotSeen(wanted.title, f"no source that was read tells {signals} over time; {wanted.source} would")


def _near(marks: tuple[Mark, ...], lines: Sequence[Line]) -> tuple[Mark, ...]:
    """Those around the time that the lines tell of: what was long before would leave no room for them."""
    first, last = min(line.times[0] for line in lines), max(line.times[-1] for line in lines)
    slack = (last - first) * _AROUND
    return tuple(mark for mark in marks if first - slack <= mark.time <= last + slack)


def _drawn(family: tuple[tuple[str, str], ...], found: Measured) -> tuple[tuple[Line, ...], int]:
    """The lines, and how many subjects were left out: those with the highest values are drawn."""
    peaks: dict[str, float] = {}
    for signal, _ in family:
        for (name, subject), points in found.items():
            seen = [value for _, value in points if value is not None]
            if name == signal and seen and len(points) > 1:
                peaks[subject] = max(peaks.get(subject, 0.0), *seen)
    subjects = sorted(peaks, key=lambda subject: (-peaks[subject], subject))
    lines = []
    for subject in subjects[:_SUBJECTS]:
        for signal, name in family:
            points = thinned(found.get((signal, subject), ()))
            if points:
                said = f"{name} of {subject}" if len(subjects) > 1 else name
                lines.append(Line(said, tuple(time for time, _ in points), tuple(value for _, value in points)))
    return tuple(lines), max(0, len(subjects) - _SUBJECTS)


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """At most `most` points: of neighbours the one with the highest value, so that no peak is lost."""
    if len(points) <= most:
        return points
    step = -(-len(points) // most)
    groups = (points[place : place + step] for place in range(0, len(points), step))
    return [max(group, key=lambda point: -1.0 if point[1] is None else point[1]) for group in groups]
