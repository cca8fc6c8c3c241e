"""The figures of an incident: the worst P99, the time over the SLO, and the times of the response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.incident.slo_samples import P99
from latdoctor.incident.timeline_model import Timeline, TimelineSubject
from latdoctor.report.html import time_series
from latdoctor.report.html.chart_tables import shown
from latdoctor.report.html.page_inputs import Snapshot
from latdoctor.report.html.page_model import TIME, Fact
from latdoctor.units import format_value

_SLO = " (slo.p99)"  # ends the limit of a comparison with the SLO
_NO_SAMPLES = "no samples were taken"


def figures(timeline: Timeline, snapshots: Sequence[Snapshot]) -> tuple[Fact, ...]:
    """User impact, and the times of the response."""
    times = tuple(Fact(one.title, shown(one.seconds, TIME), one.why or one.id.upper()) for one in timeline.measures)
    if timeline.subject == TimelineSubject.RUN:
        return times
    return (_worst_fact(timeline, snapshots), _over_slo(timeline), *times)


def _worst_fact(timeline: Timeline, snapshots: Sequence[Snapshot]) -> Fact:
    worst = worst_p99(timeline, snapshots)
    notes = [_slo(timeline, snapshots)]
    if worst is None:
        notes.append("no diagnosis and no run measured one" if timeline.samples else _NO_SAMPLES)
    elif worst[1]:
        notes.append(f"measured by {worst[1]}{'' if timeline.samples else f', {_NO_SAMPLES}'}")
    return Fact("worst P99", shown(worst[0] if worst else None, TIME), ", ".join(notes))


def worst_p99(timeline: Timeline, snapshots: Sequence[Snapshot]) -> tuple[float, str, float | None] | None:
    """Seconds, what measured it (empty for a sample), and when; of all subjects, as replicas are never averaged."""
    return max(_p99s(timeline, snapshots), key=lambda one: one[0], default=None)  # among equals the first


def _p99s(timeline: Timeline, snapshots: Sequence[Snapshot]) -> Iterator[tuple[float, str, float | None]]:
    for time, sample in time_series.timed(timeline):
        yield from ((values[P99], "", time) for values in sample.values.values() if P99 in values)
    if timeline.impact.worst_p99 is not None:
        yield timeline.impact.worst_p99, "", None
    for snapshot in snapshots:
        yield from ((value, "a diagnosis", snapshot.time) for value in _p99s_of(snapshot))
    for run in timeline.runs:
        for figure in (one for one in run.figures if one.signal == P99):
            yield from ((value, "a run", None) for value in (figure.before, figure.after) if value is not None)


def _p99s_of(snapshot: Snapshot) -> Iterator[float]:
    """The readings; without the evidence the values that the diagnosis was judged by."""
    readings = snapshot.evidence.readings_by_signal.get(P99, ()) if snapshot.evidence else ()
    yield from (one.value for one in readings if isinstance(one.value, float) and not one.labels)
    checks = snapshot.diagnosis.checks if snapshot.diagnosis else ()
    atoms = (atom for check in checks for atom in check.atoms if atom.signal == P99)
    yield from (atom.value for atom in atoms if isinstance(atom.value, float))


def _over_slo(timeline: Timeline) -> Fact:
    """Observed time only: a diagnosis measures a moment and not the time around it."""
    impact = timeline.impact
    observed = f"of {format_value(impact.seen, TIME)} that were observed"
    return Fact("over the SLO", shown(impact.over, TIME), observed if impact.seen or timeline.samples else _NO_SAMPLES)


def _slo(timeline: Timeline, snapshots: Sequence[Snapshot]) -> str:
    """The objective as samples, observations or diagnoses have it."""
    known = [*timeline.impact.slo_p99[-1:], *(one.slo_p99 for one in snapshots if one.slo_p99 is not None)]
    if known:
        return f"SLO {format_value(known[0], TIME)}"
    checks = [check for one in snapshots if one.diagnosis for check in one.diagnosis.checks]
    limits = (atom.limit for check in checks for atom in check.atoms if atom.limit.endswith(_SLO))
    found = next(limits, "").removesuffix(_SLO)
    return f"SLO {found}" if found else "no SLO is known"
