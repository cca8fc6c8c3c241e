"""The highest P99 of an incident, out of all that showed one: samples, looks, and what its runs measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.incident.document import Timeline
from latdoctor.incident.samples import P99
from latdoctor.report.page.material import Seen
from latdoctor.report.page.model import Fact
from latdoctor.report.page.tables import NOT_SEEN
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
    told = next(limits, "").removesuffix(_SLO)
    return f"SLO {told}" if told else "no SLO is known"
