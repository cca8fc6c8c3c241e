"""Which sections a page has, for a diagnosis and for an incident, and what stands at its head."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor import __version__
from latdoctor.diagnosis.remedies import first_playbook
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.incident.document import RUN, Timeline
from latdoctor.report import view
from latdoctor.report.page import causes, course, over_time, spreads, stages, walk
from latdoctor.report.page.charts import NOT_SEEN, clock
from latdoctor.report.page.material import AFTER, AT_WORST, Seen, unix
from latdoctor.report.page.model import (
    BAD,
    GOOD,
    HAPPENED,
    QUIET,
    WARN,
    Beside,
    Block,
    Fact,
    Facts,
    Key,
    Limit,
    Lines,
    Mark,
    NotSeen,
    Page,
    Section,
)
from latdoctor.units import format_value

_TONES = {"critical": BAD, "warning": WARN, "healthy": GOOD, "info": GOOD, "inconclusive": QUIET}
_OWN_TONES = {"resolved": GOOD, "verified": GOOD, "false-alarm": QUIET}
P99 = "latency.p99"


def of_diagnosis(looks: Sequence[Seen]) -> Page:
    """A page of the last of `looks`, which has a diagnosis; the others are what it is compared with."""
    seen = looks[-1]
    diagnosis = seen.diagnosis
    if diagnosis is None:
        raise ValueError("the last look has no diagnosis")
    cause = next(iter(view.shown_causes(diagnosis, every=False)), None)
    lines = [*view.since_lines(diagnosis)]
    if cause is not None:
        lines += [f"{label}: {says}" for label, says in view.advice(cause)]
    return Page(
        title=f"Diagnosis of {diagnosis.target}",
        badge=diagnosis.verdict.level,
        tone=_TONES.get(diagnosis.verdict.level, ""),
        headline=_headline(diagnosis),
        scope=view.scope(diagnosis),
        lines=tuple(lines),
        facts=_facts_of_look(seen, diagnosis),
        sections=(
            *_charts(over_time.measured(None, looks), looks, _marks_of(diagnosis)),
            causes.section(diagnosis),
            walk.section(diagnosis),
            walk.gaps(diagnosis),
            walk.next_steps(diagnosis),
        ),
        foot=(f"latdoctor {diagnosis.tool.version}, diagnosis {diagnosis.run_id} of {diagnosis.generated_at}",),
    )


def of_incident(timeline: Timeline, looks: Sequence[Seen]) -> Page:
    """A page of an incident or a run. `looks` are those of `material.chosen`, with what could be read of them."""
    worst = next((look for look in looks if look.name == AT_WORST), None)
    diagnosis = worst.diagnosis if worst else None
    badge = timeline.outcome or ("open" if timeline.open else "closed")
    sections: list[Section] = []
    if timeline.subject != RUN:
        sections += _charts(over_time.measured(timeline, looks), looks, course.marks(timeline), timeline.impact.slo_p99)
    if diagnosis is not None:
        sections.append(causes.section(diagnosis))
    elif timeline.looks:
        sections.append(causes.in_short(max(timeline.looks, key=lambda look: any(one.named for one in look.causes))))
    sections.append(course.mending(timeline))
    if timeline.subject != RUN:
        sections.append(course.sop(timeline))
    sections.append(course.story(timeline))
    if diagnosis is not None:
        sections += [walk.section(diagnosis), walk.gaps(diagnosis, [look.why for look in looks if look.why])]
    else:
        sections.append(walk.gaps_in_short((*timeline.unseen, *(look.why for look in looks if look.why))))
    return Page(
        title=timeline.title,
        badge=badge,
        tone=_OWN_TONES.get(badge, BAD if timeline.open else WARN),
        headline=_headline(diagnosis) if diagnosis else _headline_in_short(timeline),
        scope=_scope(timeline),
        lines=tuple(_lines(timeline, looks)),
        facts=_facts_of(timeline),
        sections=tuple(sections),
        foot=(
            f"latdoctor {__version__}, from the journal up to entry {timeline.last.seq} of {timeline.last.at}",
            f"digest of that entry: {timeline.last.digest}",
        ),
    )


def _headline(diagnosis: Diagnosis) -> str:
    cause = next(iter(view.shown_causes(diagnosis, every=False)), None)
    if cause is None:
        return view.answer_line(diagnosis).capitalize() or diagnosis.verdict.says
    return cause.title if diagnosis.answer.kind == "named" else f"Perhaps: {cause.title}"


def _headline_in_short(timeline: Timeline) -> str:
    named = [cause.title for look in timeline.looks for cause in look.causes if cause.named]
    if named:
        return named[-1]
    return timeline.runs[-1].reason or timeline.title if timeline.runs else "No cause was named"


def _scope(timeline: Timeline) -> str:
    targets = f"target {', '.join(view.shortened(target) for target in timeline.targets)}" if timeline.targets else ""
    began = unix(timeline.start.at)
    begun = f"since {clock(began)} UTC ({timeline.start.says}, clock of {timeline.start.clock})" if began else ""
    ended = f"closed {clock(unix(timeline.closed_at) or 0.0)} UTC" if timeline.closed_at else "still open"
    return " · ".join(part for part in (timeline.id, targets, begun, ended) if part)


def _lines(timeline: Timeline, looks: Sequence[Seen]) -> list[str]:
    """How it was at its worst, what was done about it, how it was afterwards."""
    lines = []
    for look in looks:
        if look.diagnosis is not None and look.name in (AT_WORST, AFTER):
            lines.append(f"{look.name}: {look.diagnosis.verdict.says}")
            lines += view.since_lines(look.diagnosis) if look.name == AT_WORST else ()
    for run in timeline.runs:
        lines.append(f"done: {run.title or run.playbook} ({run.outcome or 'not ended'})")
    last = looks[-1] if looks else None
    if timeline.open and not timeline.runs and last is not None and last.diagnosis is not None:
        playbooks = [first_playbook(cause) for cause in last.diagnosis.causes if cause.named]
        lines += [f"safe next: latdoctor remediate --playbook {name} --server URL" for name in playbooks[:1] if name]
    return lines


def _facts_of(timeline: Timeline) -> Facts:
    facts = [
        Fact(
            one.title, NOT_SEEN if one.seconds is None else format_value(one.seconds, "time"), one.why or one.id.upper()
        )
        for one in timeline.measures
    ]
    impact = timeline.impact
    if timeline.subject != RUN:
        slo = f"SLO {format_value(impact.slo_p99[-1], 'time')}" if impact.slo_p99 else "no SLO is known"
        worst = NOT_SEEN if impact.worst_p99 is None else format_value(impact.worst_p99, "time")
        facts.insert(0, Fact("worst P99", worst, slo))
        over = NOT_SEEN if impact.over is None else format_value(impact.over, "time")
        watched = f"of {format_value(impact.seen, 'time')} that were watched"
        facts.insert(1, Fact("over the SLO", over, watched))
    return Facts(tuple(facts))


def _facts_of_look(seen: Seen, diagnosis: Diagnosis) -> Facts:
    slo = f"SLO {format_value(seen.slo_p99, 'time')}" if seen.slo_p99 is not None else "no SLO was given"
    p99 = _highest(seen, P99)
    facts = [Fact("P99", NOT_SEEN if p99 is None else format_value(p99, "time"), slo)]
    for label, signal, dimension in (("waiting", "queue.depth", "count"), ("arriving", "arrival.rate", "rate")):
        value = _highest(seen, signal)
        if value is not None:
            facts.append(Fact(label, format_value(value, dimension), "requests"))
    cause = next(iter(view.shown_causes(diagnosis, every=False)), None)
    if cause is not None:
        facts.append(Fact("cause", view.percent(cause.probability), cause.confidence))
    fired = sum(check.status == "fired" for check in diagnosis.checks)
    judged = fired + sum(check.status == "clear" for check in diagnosis.checks)
    facts.append(Fact("findings", f"{fired} hold", f"of {judged} that could be judged, {len(diagnosis.checks)} in all"))
    return Facts(tuple(facts))


def _highest(seen: Seen, signal: str) -> float | None:
    """Of all subjects: replicas are never averaged."""
    found = seen.evidence.readings_by_signal.get(signal, ()) if seen.evidence else ()
    return max((one.value for one in found if isinstance(one.value, float) and not one.labels), default=None)


def _charts(
    found: over_time.Measured, looks: Sequence[Seen], marks: tuple[Mark, ...], slos: Sequence[float] = ()
) -> list[Section]:
    known = [*slos, *(look.slo_p99 for look in looks if look.slo_p99 is not None)]
    limits = tuple(Limit("SLO", slo) for slo in known[:1])
    latency = over_time.chart(over_time.LATENCY, found, limits, marks)
    beside = tuple(over_time.chart(wanted, found, (), marks) for wanted in over_time.BESIDE)
    drawn = [block for block in (latency, *beside) if isinstance(block, Lines)]
    key: tuple[Block, ...] = (Key(marks),) if drawn and marks else ()
    missing: list[Block] = [block for block in beside if isinstance(block, NotSeen)]
    grid: list[Block] = [block for block in beside if isinstance(block, Lines)]
    spread = [spreads.block(asked, looks) for asked in spreads.BATCHES]
    return [
        Section("over-time", "Over time", (latency, *key, *([Beside(tuple(grid))] if grid else []), *missing)),
        Section("batches", "What was computed together", (Beside(tuple(spread)),)),
        Section("stages", "Where a request's time goes", (stages.block(looks),)),
    ]


def _marks_of(diagnosis: Diagnosis) -> tuple[Mark, ...]:
    """Since when it is slow, and what changed shortly before."""
    found = [(change.time, change.says) for change in diagnosis.changes]
    if diagnosis.since is not None:
        found.append((diagnosis.since.time, "slow since then"))
    return tuple(
        Mark(time, str(number), f"{clock(time)[11:]} {says}", HAPPENED)
        for number, (time, says) in enumerate(sorted(found), start=1)
    )
