"""What stands at the head of a page: how it is, what it is, what was done, and the figures of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.diagnosis.remedies import first_playbook
from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.incident.document import RUN, Timeline
from latdoctor.report import times, view
from latdoctor.report.page.material import AFTER, AT_WORST, Seen, unix
from latdoctor.report.page.model import Fact, Facts
from latdoctor.report.page.tables import NOT_SEEN, clock
from latdoctor.report.page.worst import over_slo, worst_p99
from latdoctor.units import format_value, percent

P99 = "latency.p99"
_MORE = (("waiting", "queue.depth", "count"), ("arriving", "arrival.rate", "rate"))


def headline(diagnosis: Diagnosis) -> str:
    """The cause, in its own words."""
    cause = _first(diagnosis)
    if cause is None:
        return view.answer_line(diagnosis).capitalize() or diagnosis.verdict.says
    return cause.title if diagnosis.answer.kind == "named" else f"Perhaps: {cause.title}"


def headline_in_short(timeline: Timeline) -> str:
    """The same where only the journal tells of it."""
    named = [cause.title for look in timeline.looks for cause in look.causes if cause.named]
    if named:
        return named[-1]
    return timeline.runs[-1].title if timeline.runs else "No cause was named"


def answer(seen: Seen, diagnosis: Diagnosis) -> Facts:
    """Harm, since when, what to do, whom to wake."""
    harm = _harm(diagnosis)
    facts = [Fact("harm", harm)] if harm else []
    facts += [Fact(*_since(line)) for line in times.since_lines(diagnosis)]
    cause = _first(diagnosis)
    facts += [Fact(label, says) for label, says in view.advice(cause)] if cause else []
    return Facts((*facts, *([Fact("missing", seen.why)] if seen.why else [])))


def answer_of(timeline: Timeline, looks: Sequence[Seen]) -> Facts:
    """How it was at its worst, what was done about it, and how it was afterwards."""
    return Facts(tuple(_told(timeline, looks)))


def _told(timeline: Timeline, looks: Sequence[Seen]) -> Iterator[Fact]:
    diagnoses = {look.name: look.diagnosis for look in looks if look.diagnosis is not None}
    if AT_WORST in diagnoses:
        worst = diagnoses[AT_WORST]
        yield Fact("at worst", _harm(worst) or worst.verdict.says)
        if worst.since is not None:
            yield from (Fact(*_since(line)) for line in times.since_lines(worst)[:1])
    for run in timeline.runs:
        yield Fact("done", f"{run.title or run.playbook or run.id}: {run.outcome or 'not ended'}")
    if AFTER in diagnoses:
        yield Fact("afterwards", diagnoses[AFTER].verdict.says)
    if timeline.open and not timeline.runs and diagnoses:
        last = list(diagnoses.values())[-1]
        playbooks = [name for cause in last.causes if cause.named and (name := first_playbook(cause))]
        yield from (
            Fact("safe next", f"latdoctor remediate --playbook {name} --server URL (shows what it would change)")
            for name in playbooks[:1]
        )


def scope_of(timeline: Timeline) -> str:
    targets = f"target {', '.join(view.shortened(target) for target in timeline.targets)}" if timeline.targets else ""
    began, ended = unix(timeline.start.at), unix(timeline.closed_at or "")
    begun = f"since {clock(began)} UTC" if began else ""
    closed = f"closed {clock(ended)} UTC" if ended else "still open"
    return " · ".join(part for part in (timeline.id, targets, begun, closed) if part)


def figures_of(timeline: Timeline, looks: Sequence[Seen]) -> Facts:
    """What it cost, and how long each part of it took."""
    facts = [
        Fact(
            one.title, NOT_SEEN if one.seconds is None else format_value(one.seconds, "time"), one.why or one.id.upper()
        )
        for one in timeline.measures
    ]
    if timeline.subject == RUN:
        return Facts(tuple(facts))
    return Facts((worst_p99(timeline, looks), over_slo(timeline), *facts))


def figures(seen: Seen, diagnosis: Diagnosis) -> Facts:
    slo = f"SLO {format_value(seen.slo_p99, 'time')}" if seen.slo_p99 is not None else "no SLO was given"
    p99 = _highest(seen, P99)
    facts = [Fact("P99", NOT_SEEN if p99 is None else format_value(p99, "time"), slo)]
    for label, signal, dimension in _MORE:
        value = _highest(seen, signal)
        facts += [Fact(label, format_value(value, dimension), "requests")] if value is not None else []
    cause = _first(diagnosis)
    if cause is not None:
        facts.append(Fact("cause", percent(cause.probability), cause.confidence))
    fired = sum(check.status == "fired" for check in diagnosis.checks)
    judged = fired + sum(check.status == "clear" for check in diagnosis.checks)
    note = f"of {judged} that could be judged, {len(diagnosis.checks)} in all"
    return Facts((*facts, Fact("findings", f"{fired} hold", note)))


def _harm(diagnosis: Diagnosis) -> str:
    return "; ".join(line.says for line in view.symptoms(diagnosis)[:2] if line.kind == view.FOR)


def _since(line: str) -> tuple[str, str]:
    """`changed of late: …` as a label and what it says."""
    label, colon, says = line.partition(": ")
    return (label, says) if colon and " since " not in label else ("since", line)


def _first(diagnosis: Diagnosis) -> RankedCause | None:
    return next(iter(view.shown_causes(diagnosis, every=False)), None)


def _highest(seen: Seen, signal: str) -> float | None:
    """Of all subjects: replicas are never averaged."""
    found = seen.evidence.readings_by_signal.get(signal, ()) if seen.evidence else ()
    return max((one.value for one in found if isinstance(one.value, float) and not one.labels), default=None)
